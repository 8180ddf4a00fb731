"""Matrix instructions in a program: which loops are one tile of the instruction, and which operands it takes.

An execution width multiplies an m x k fragment by a k x n one.  Of the m x n results each thread has its own as
ordinary loops say: 8 rows of 4 threads, so that a thread's results are ``m / 8`` rows of ``n / 4`` neighbours.  For
layout "quads" this is where the hardware puts them (PTX ISA, "Matrix fragments for mma.m16n8k16"); from "opaque"
fragments they are brought there through the block's layer, once, when the reduction is through.  Of layout "wavefront"
a thread has 4 neighbouring rows of one of 16 columns, of float64 rows 4 apart, and of a factor's row a quarter of its
k, neighbours (LLVM's tests of the AMDGPU target and AMD's matrix instruction calculator: v_mfma_f32_16x16x16_f16,
v_mfma_f64_16x16x4_f64).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Cast, Load, Value
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np
from rollergen.hal.spec import Device, Instruction
from rollergen.program.conversions import (
    CONVERTED,
    CONVERTED_EIGHT,
    Conversion,
    can_convert,
    can_take_eight,
    conversion_of,
)
from rollergen.program.rprogram import GROUP, THREAD, UNROLL, Loop, Stage

ROWS, COLUMNS = 8, 4
"""Threads of an execution width along m and n."""

ROW_BYTES = 16
"""Rows of operands are read in pieces of this size, and begin at multiples of it."""

QUAD_PAIRS = "quad_pairs"
"""The layout of Volta's instructions, by two times four threads each."""
WAVEFRONT = "wavefront"
"""The layout of AMD's MFMA of 16 x 16 results by 64 threads."""

NEIGHBOURS = 4
"""Rows of results that such a thread has; so many of its threads have a factor's row."""

TF32 = "tf32"
"""float32 without the 13 lowest bits of its significand."""

FLOAT8_FACTORS = "float8"
"""The value of `Compute.factors` for factors of float8, whose sums hold `FLOAT8_SUM_BITS`."""
FLOAT8_SUM_BITS = 14
"""Significant bits that tensor cores of sm_89 and sm_90 keep of such sums, cutting off the others (Zhang et al.,
"SageAttention2", 2024, section 4; DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.2)."""

PANEL_BYTES, SWIZZLE = 128, 8
"""Of operands in the block's layer that an asynchronous instruction reads: bytes of a panel's row, and of how many rows
pieces of `ROW_BYTES` change places (PTX ISA, "128-byte swizzle")."""

PANEL_ALIGNMENT = PANEL_BYTES * SWIZZLE
"""Bytes at whose multiples their buffers begin."""

LEAST_WIDE, MOST_WIDE = 8, 32
"""Tiles along n that an asynchronous instruction multiplies at once: whole panels, and as many as it may."""

_LEAST_RING = 2
"""Buffers that are in use while the products of two iterations run."""

_SCRATCH_PADDING = 4
"""Elements behind each row of results on their way: rows of threads then fall on different banks."""


def matrix_instruction(stage: Stage, device: Device) -> Instruction | None:
    """The stage's instruction if it is a matrix instruction."""
    return _matrix_named(device, stage.compute.instruction)


@lru_cache(maxsize=256)
def _matrix_named(device: Device, name: str) -> Instruction | None:
    return next((one for one in device.instructions if one.name == name and one.is_matrix), None)


def factor_dtype(instruction: Instruction) -> str:
    """The dtype of the loads that the instruction multiplies: float32 for tf32."""
    return "float32" if instruction.dtype == TF32 else instruction.dtype


def factors_of(
    op: TensorOp, loops: Sequence[Loop], k: str, instruction: Instruction, operands: Operands
) -> tuple[str, ...]:
    """What `Compute.factors` may be of a stage with the instruction, what takes least first."""
    if not operands.conversions:
        return (instruction.permission,)
    steps = [one.extent for one in loops if one.axis == k and one.kind == UNROLL and one.stride == instruction.k]
    eight = all(can_take_eight(op, conversion, k) for _, conversion in operands.conversions)
    return (CONVERTED_EIGHT, CONVERTED) if eight and steps and steps[0] % 2 == 0 else (CONVERTED,)


def matrix_axes(stage: Stage) -> tuple[str, ...]:
    """The axes (m, n, k) of the stage's matrix instruction; not three of them where the stage fits none."""
    threads = tuple(loop.axis for _, loop in stage.of_kind(THREAD))
    return (*threads, *(axis for reduction in stage.op.reductions for axis in reduction.axes))


def widths_of(instruction: Instruction) -> int:
    """Execution widths that execute the instruction together."""
    return instruction.lanes // (ROWS * COLUMNS)


def rows_of_thread(instruction: Instruction) -> int:
    """Rows of the instruction's tile of which a thread has results."""
    return instruction.m // ROWS // widths_of(instruction)


@dataclass(frozen=True, slots=True)
class Accumulators:
    """Where a tile's accumulators lie in the threads of an execution width: (whether along columns, how many, step) of
    its ``threads`` by falling number; of one thread's rows the step, and (how many, step) of its ``columns``."""

    threads: tuple[tuple[bool, int, int], ...]
    row_step: int
    columns: tuple[tuple[int, int], ...]

    @property
    def apart(self) -> tuple[int, ...]:
        """Bits of their numbers by which threads that share a row differ, rising."""
        bits = [across for across, count, _ in self.threads for _ in range(count.bit_length() - 1)]
        return tuple(1 << place for place, across in enumerate(reversed(bits)) if across)

    @property
    def neighbours(self) -> int:
        """How many columns of a thread are neighbours."""
        return self.columns[-1][0]

    @property
    def places(self) -> tuple[int, ...]:
        """The column of each of a thread's accumulators of a row, from its first on."""
        found = [0]
        for count, step in self.columns:
            found = [place + number * step for place in found for number in range(count)]
        return tuple(found)


_OF_QUAD_PAIRS = Accumulators(
    ((False, 2, 8), (True, 2, 4), (False, 2, 4), (True, 2, 2), (False, 2, 1)), 2, ((2, 8), (2, 1))
)
"""Rows 8 apart are those of either quad, 4 apart those of neighbouring quad pairs; columns likewise: threads that read
a factor's pieces of 16 bytes side by side then read them in rows of different numbers modulo `SWIZZLE`."""


def has_neighbouring_rows(instruction: Instruction) -> bool:
    """Whether the results that a thread has of a tile are neighbours along m; else they are along n, or none."""
    return instruction.layout == WAVEFRONT and instruction.dtype != "float64"


def turns_rows(instruction: Instruction) -> bool:
    """Whether its fragments are loaded from rows across k, too: of opaque ones, and in quads of 16 bits (ldmatrix) and
    of 64."""
    return instruction.layout == "opaque" or (
        instruction.layout == "quads" and ITEMSIZE[factor_dtype(instruction)] in (2, 8)
    )


def reads_numbers(instruction: Instruction) -> bool:
    """Whether each thread reads its numbers of a fragment in quads by itself: those of 64 bits, from row and column
    ``thread // 4`` and its k ``thread % 4`` (PTX ISA, "Matrix fragments for mma.m16n8k4 with .f64"); else eight
    threads name the rows of a matrix."""
    return instruction.layout == "quads" and instruction.dtype == "float64"


def padding_bytes(instruction: Instruction) -> int:
    """Bytes behind each row of an operand, so that rows that are read together fall on different banks."""
    return COLUMNS * ITEMSIZE["float64"] if reads_numbers(instruction) else ROW_BYTES


def accumulators_of(one: Instruction) -> Accumulators:
    if one.layout == QUAD_PAIRS:
        return _OF_QUAD_PAIRS
    return Accumulators(((False, ROWS, 1), (True, COLUMNS, one.n // COLUMNS)), ROWS, ((one.n // COLUMNS, 1),))


def fragment_loops(instruction: Instruction) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The loops of m, n and k that are one tile of the instruction: (kind, extent) by falling stride.

    Of several execution widths each has its own rows (PTX ISA, "wgmma register fragments")."""
    if instruction.layout == WAVEFRONT:
        rows = ((THREAD, instruction.m // NEIGHBOURS), (UNROLL, NEIGHBOURS))
        rows = rows if has_neighbouring_rows(instruction) else rows[::-1]
        return rows, ((THREAD, instruction.n),), ((UNROLL, instruction.k),)
    widths = widths_of(instruction)
    groups = ((GROUP, widths),) if widths > 1 else ()
    return (
        (*groups, (UNROLL, rows_of_thread(instruction)), (THREAD, ROWS)),
        ((THREAD, COLUMNS), (UNROLL, instruction.n // COLUMNS)),
        ((UNROLL, instruction.k),),
    )


@dataclass(frozen=True, slots=True)
class Operands:
    """Numbers of the loads that are the m x k and the k x n factor of each component's product.

    ``conversions``: of the factors that threads compute from narrow elements, each with the number of these, which
    stands for the factor.  ``columns``: (number, axis of the factor) of the other loads in them."""

    products: tuple[tuple[int, int], ...]
    conversions: tuple[tuple[int, Conversion], ...] = ()
    columns: tuple[tuple[int, str], ...] = ()

    @property
    def a(self) -> tuple[int, ...]:
        """The m x k factors, each once: products may share one."""
        return tuple(dict.fromkeys(a for a, _ in self.products))

    @property
    def b(self) -> tuple[int, ...]:
        """The k x n factors, each once."""
        return tuple(dict.fromkeys(b for _, b in self.products))


NO_OPERANDS = Operands(())


def matrix_operands(op: TensorOp, axes: tuple[str, ...], instruction: Instruction) -> Operands | None:
    """The factors, if the tensor op has sums of products that the instruction computes along (m, n, k)."""
    if len(op.reductions) != 1 or len(axes) != 3 or op.of_role("row"):
        return None
    reduction = op.reductions[0]
    if reduction.combiner.name != "sum" or tuple(reduction.axes) != axes[2:]:
        return None
    found = []
    conversions: dict[int, Conversion] = {}
    columns: dict[int, str] = {}
    for body in reduction.bodies:
        pair = _factors(op, body, axes, instruction)
        if pair is None:
            return None
        loads = op.loads()
        found.append((loads.index(_narrow(pair[0])), loads.index(_narrow(pair[1]))))
        for number, factor, axis in zip(found[-1], pair, axes, strict=False):
            if isinstance(factor, Conversion):
                conversions[number] = factor
                columns |= {loads.index(one): axis for one in factor.columns}
    staged = {number for pair in found for number in pair}
    if staged & columns.keys():
        return None
    return Operands(tuple(found), tuple(conversions.items()), tuple(columns.items()))


def _factors(
    op: TensorOp, body: Value, axes: tuple[str, ...], instruction: Instruction
) -> tuple[Load | Conversion, Load | Conversion] | None:
    """The m x k and the k x n factor of one product."""
    if body.dtype != instruction.accumulator_dtype or not isinstance(body, Binary) or body.op != "mul":
        return None
    m, n, k = axes
    factors = [_factor(op, part, instruction, k) for part in (body.a, body.b)]
    if factors[0] is None or factors[1] is None:
        return None
    a, b = factors if m in _narrow(factors[0]).axes() else factors[::-1]
    if a is None or b is None or a == b:
        return None
    if not {m, k} <= _narrow(a).axes() or not {n, k} <= _narrow(b).axes() or n in _axes(a) or m in _axes(b):
        return None
    return a, b


def _narrow(factor: Load | Conversion) -> Load:
    return factor.load if isinstance(factor, Conversion) else factor


def _axes(factor: Load | Conversion) -> frozenset[str]:
    columns = factor.columns if isinstance(factor, Conversion) else ()
    return _narrow(factor).axes().union(*(load.axes() for load in columns))


def _factor(op: TensorOp, value: Value, instruction: Instruction, k: str) -> Load | Conversion | None:
    """The load that `value` is, but for a conversion to the accumulators' dtype, or what threads compute from narrow
    elements; masked elements must be 0."""
    inner = value.x if isinstance(value, Cast) and value.dtype == instruction.accumulator_dtype else value
    if isinstance(inner, Load) and inner.dtype == factor_dtype(instruction):
        return inner if inner.fill == 0 else None
    return conversion_of(op, inner, instruction.dtype, k) if can_convert(instruction) else None


def first_fragment_loop(stage: Stage, device: Device) -> int:
    """Depth at which fragments are loaded and multiplied: inside it are only results and one tile's k."""
    instruction = device.instruction(stage.compute.instruction)
    m, n, k = matrix_axes(stage)
    depth = len(stage.loops)
    while depth:
        loop = stage.loops[depth - 1]
        own = loop.axis in (m, n) or (loop.axis == k and bool(np.all(loop.stride < instruction.k)))
        if loop.kind != UNROLL or not own:
            break
        depth -= 1
    return depth


def results_of(instruction: Instruction) -> int:
    """Loops over what a thread has of one tile of results."""
    return sum(kind == UNROLL for loops in fragment_loops(instruction)[:2] for kind, _ in loops)


def fragment_bytes(instruction: Instruction) -> int:
    """Of a thread's neighbours along k in one fragment of a factor, of layout "wavefront"."""
    return instruction.k // NEIGHBOURS * ITEMSIZE[factor_dtype(instruction)]


def exchanges(stage: Stage, instruction: Instruction) -> bool:
    """Whether the `COLUMNS` threads of a row exchange results before they store them.

    Each then has a tile's whole row of one in `COLUMNS` tiles: 16 bytes of half floats.  Without, each has 4 bytes of
    every tile, and a warp writes half of each sector of 32 bytes (an H200 stores 51 MB of float16 in 63 us by 4 bytes a
    thread, in 36 by 16).  For a batch of programs: an array."""
    return stage.store.vector > instruction.n // COLUMNS if instruction.layout != WAVEFRONT else False


def exchanged_loops(stage: Stage, instruction: Instruction) -> tuple[int, int, int]:
    """Positions of the loops along n: over tiles, over the threads of a row, over what a thread has of a tile."""
    n = matrix_axes(stage)[1]
    own = [(p, loop) for p, loop in enumerate(stage.loops) if loop.axis == n]
    at = lambda kind, stride: next((p for p, x in own if x.kind == kind and np.all(x.stride == stride)), -1)
    return at(UNROLL, instruction.n), at(THREAD, instruction.n // COLUMNS), at(UNROLL, 1)


def row_loop(stage: Stage) -> int:
    """Position of the loop over the `ROWS` threads of a column.

    Where `Store.across_rows`, threads of it exchange results (see `tiles_across_rows`).  All threads of an execution
    width then store one row after the other, of which they have neighbours; without, they write as many rows at once,
    few bytes of each."""
    m = matrix_axes(stage)[0]
    return next(p for p, loop in stage.of_kind(THREAD) if loop.axis == m)


def tiles_across_rows(instruction: Instruction, vector: Any) -> Any:
    """Tiles along n of which the `ROWS` threads of a column exchange results, stored ``vector`` at once
    (`Store.across_rows`): together they have as many vectors of a row of these.  Tiles that are left over stay.

    Place t of a thread is its vector t in those tiles: after the exchange thread r has, in place t, what thread t had
    in place r.  All threads of an execution width then have neighbours of one row in a place (their order among these
    is of no matter).  For a batch of programs: an array."""
    own = fragment_loops(instruction)[1][-1][1]
    return ROWS * vector // own


def trails(stage: Stage, device: Device) -> bool:
    """Whether the products of one iteration may still run in the next: the instruction is asynchronous (executed by
    several execution widths, all of a thread's tiles along n at once, beside the program), and all tiles come into
    rings with a buffer to spare."""
    one = matrix_instruction(stage, device)
    if one is None or not one.is_asynchronous:
        return False
    return all(copy.asynchronous and np.min(copy.depth) > _LEAST_RING for copy in stage.copies)


def groups(stage: Stage) -> int:
    """The number of execution widths in a block."""
    total = 1
    for _, loop in stage.of_kind(GROUP):
        total = total * loop.extent
    return total


def scratch_pitch(instruction: Instruction) -> int:
    """Elements from row to row of the results on their way; 0 where they need not go anywhere."""
    return instruction.n + _SCRATCH_PADDING if instruction.layout == "opaque" else 0


def scratch_bytes(stage: Stage, instruction: Instruction) -> int:
    """Bytes of the block's layer through which opaque results pass: one tile of every execution width."""
    return groups(stage) * instruction.m * scratch_pitch(instruction) * ITEMSIZE[instruction.accumulator_dtype]
