"""The four alignment rules (ROLLER, section 3.2), each a small function that can be switched off.

A rule says which tile sizes fit one fact about the hardware or the tensor: the execution unit
(warp, wavefront, vector lanes), the memory transaction, the memory banks, the tensor's own shape.
"""

from __future__ import annotations

from functools import lru_cache
from math import lcm
from typing import Any

from rollergen.errors import check_field_names, refuse_no_flags
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dot_products import pairs_of
from rollergen.hal.spec import Device, Instruction, MemoryLayer


@check_field_names
@dataclass(frozen=True, slots=True, kw_only=True)
class CodeShapes:
    """Ways of writing a kernel that construction may choose; each can be switched off, the programs stay correct.

    ``shuffles``: the threads of one execution width combine their partial results by exchanging registers, on
    devices that can; else all threads of a block do so through its layer, half of them in each step.
    ``rows_in_registers``: a row that is read several times stays in its threads' registers where it fits, on
    devices with such threads; else every pass reads it again.
    ``online``: a row's maximum and its sum of exponentials are found in one pass over the row (online softmax), on
    devices whose threads exchange registers; else in two.
    ``gathered_pairs``: in that pass, a thread updates its pair once for all elements that it has fetched; else once
    for each.
    ``grid_stride``: elementwise kernels may launch no more blocks than run at once, which stride over the tensor;
    else there is a block for each tile.
    ``matrix_instructions``: contractions of the dtypes that the device's matrix instructions (tensor cores) take.
    ``dot_products``: sums of products of narrow integers, bfloat16 and float16, by the device's instructions for those
    of a word (AVX512-VNNI, AVX512-BF16, dp4a, vpmaddwd, v_dot2).
    ``asynchronous_copies``: tiles are staged past the registers, several ahead of their use, on devices that can;
    else through registers, at most one ahead.
    ``asynchronous_products``: contractions by matrix instructions that run beside the program (wgmma), on devices that
    have them; else by those that a thread waits for.
    ``box_copies``: the factors of such contractions may come in boxes by a copy engine (TMA), on devices that have one;
    else each thread copies its part.
    ``producers``: an execution width of each block may do nothing but start copies of boxes; else one of the threads
    that compute does so, between barriers of the block.
    ``persistent_grids``: the grid may have one block with a producer for each unit, which computes several tiles of the
    output, one after the other; else each tile has a block.
    ``clusters``: two blocks with a producer each may share the copies of what both read, each making a part for both,
    on devices that have clusters of blocks; else each block copies all that it reads.
    ``box_stores``: the engine that brings such factors may store the results, too, from a block's layer; else each
    thread stores its own.
    ``vector_loads``: what is added to products of matrix instructions (residuals, biases) is read in vectors as wide as
    the results are stored in; else element by element.
    ``vectors_along_k``: a staged operand that is contiguous along the reduction stays so in a block's layer, copied
    past the registers in vectors, on devices that can; else its elements are copied one by one into columns.
    ``windows``: threads that reduce over sliding windows keep what neighbouring outputs share in registers, on
    devices of scalar threads; else each output reads its own.
    ``transposed_vectors``: operands that are transposed through a block's layer are stored in vectors, on devices of
    scalar threads; else element by element.
    ``prefetch``: the next staged tile is fetched into registers while this one is used; else after it.
    ``wide_accesses``: a thread of a contraction moves up to 16 bytes at once; else single elements.
    ``register_tiles``: a thread of a contraction computes several outputs, whose operands it keeps; else one.
    ``warp_tiles``: the threads of an execution width share a near-square tile; else rows of the block's.
    ``block_order``: blocks are swizzled where a wave of them then reads less; else they run row by row.
    ``split_reductions``: a reduction with few outputs may be cut into parts, put together by a second kernel.
    ``chains``: a contraction whose results weigh the terms of another one (attention) is computed block by block with
    it, on devices whose blocks are one thread; else each is a kernel of its own.
    ``aligned_rows``: factors of products whose rows begin at no multiple of a vector may be copied into rows that do,
    on devices whose threads share a block's layer.
    ``realigned_vectors``: such rows of 16-bit factors of matrix instructions may be read by vectors of 16 bytes, which
    threads put together in registers; else by as many elements as lie aligned.
    ``edges_apart``: the last rows and columns of a product, where few are left behind whole tiles, may be kernels of
    their own there; the constant frame around a sum may on all devices but machines of tiles.
    """

    shuffles: bool = True
    rows_in_registers: bool = True
    grid_stride: bool = True
    online: bool = True
    gathered_pairs: bool = True
    matrix_instructions: bool = True
    dot_products: bool = True
    asynchronous_copies: bool = True
    asynchronous_products: bool = True
    box_copies: bool = True
    producers: bool = True
    persistent_grids: bool = True
    clusters: bool = True
    box_stores: bool = True
    vector_loads: bool = True
    vectors_along_k: bool = True
    windows: bool = True
    transposed_vectors: bool = True
    prefetch: bool = True
    wide_accesses: bool = True
    register_tiles: bool = True
    warp_tiles: bool = True
    block_order: bool = True
    split_reductions: bool = True
    chains: bool = True
    aligned_rows: bool = True
    realigned_vectors: bool = True
    edges_apart: bool = True

    def __post_init__(self) -> None:
        refuse_no_flags(self)


ALL_SHAPES = CodeShapes()


@check_field_names
@dataclass(frozen=True, slots=True)
class AlignmentRules:
    """Which alignment rules hold.  All do by default; an ablation may switch any of them off, and programs stay
    correct.

    ``execution_unit``: the threads of a block fill whole execution widths (warps, wavefronts), lanes whole vectors.
    ``transaction``: the rows of a tile fill whole memory transactions.  ``bank``: threads that read together read
    different banks.  ``tensor_shape``: padding costs at most ``epsilon`` of an axis.
    ``epsilon``: the largest padded share of an axis, 0.1 for 10 %; None: whatever pays.
    ``pad_value``: what packed copies hold beyond the end of an axis.
    ``shapes``: which ways of writing kernels construction may choose.  ``tf32``: whether float32 factors may lose their
    13 lowest bits.  ``float8``: whether matrix instructions may add up products of float8, of whose sums they keep 14
    bits.
    ``atomics``: whether the parts of a sum may be added up in any order.  ``winograd``: outputs along one side of the
    largest tile of Winograd's filtering; 0 forbids it.

    Raises ArgumentError for a switch that is neither True nor False, UnknownNameError for a name that no switch has.
    """

    execution_unit: bool = True
    transaction: bool = True
    bank: bool = True
    tensor_shape: bool = True
    epsilon: float | None = None
    pad_value: float = 0.0
    shapes: CodeShapes = ALL_SHAPES
    tf32: bool = False
    float8: bool = False
    atomics: bool = False
    winograd: int = 0

    def __post_init__(self) -> None:
        refuse_no_flags(self)

    def allows(self, instruction: Instruction) -> bool:
        """Whether programs may use an instruction of less exact results."""
        return not instruction.permission or bool(getattr(self, instruction.permission))


def padding_waste(extent: Any, tile: Any) -> Any:
    """Padded share of an axis (ROLLER, section 3.2; sign mended: an exact fit wastes nothing)."""
    return (-extent % tile) / extent


def as_slow_as_memory(cache: MemoryLayer, device: Device) -> bool:
    """Whether the cache is read no faster than the backing store: what lies in it is as far away."""
    return 0 < cache.bytes_per_clock <= _AS_SLOW * device.backing.bytes_per_clock


_AS_SLOW = 1.25
"""Rates this close are the same: probes of them vary as much from one minute to the next."""


@lru_cache(maxsize=256)
def main_instruction(device: Device, dtype: str) -> Instruction:
    """The device's multiply-add for accumulators of `dtype`, widest plain (1 x lanes x 1) first.

    A device without one for the dtype (integers on a CPU) uses the float32 entry's lanes.
    """
    plain = [i for i in device.instructions if i.m == 1 and i.k == 1]
    same = [i for i in plain if i.accumulator_dtype == dtype and i.dtype == dtype]
    wide = same or [i for i in plain if i.accumulator_dtype == "float32" and i.dtype == "float32"]
    return max(wide, key=lambda i: i.lanes)


def instruction_for(op: TensorOp, device: Device, dtype: str) -> Instruction:
    """What the tensor op's multiply-adds are written with, for accumulators of `dtype`."""
    return main_instruction(device, dtype) if op.multiplied is None else dot_instruction(device, op.multiplied)


@lru_cache(maxsize=64)
def dot_instruction(device: Device, dtypes: tuple[str, str]) -> Instruction:
    """The device's instruction for dot products of such numbers, one of `Kind.dot_products`."""
    return next(one for one in device.instructions if dtypes in multiplies(one))


def multiplies(instruction: Instruction) -> frozenset[tuple[str, str]]:
    """Dtypes of the numbers whose dot products the instruction adds up; none of one that adds up others."""
    return pairs_of(instruction.name, instruction.dtype) if instruction.is_dot_product else frozenset()


WIDEST_VECTOR = 16
"""Elements of the widest vector that OpenCL C has (specification, section 6.3.2), of any dtype."""


def vector_lanes(device: Device, dtype: str) -> int:
    """Lanes of a vector program on the device for accumulators of `dtype` (1: scalar threads)."""
    instruction = main_instruction(device, dtype)
    if instruction.lanes == 1:
        return 1
    fitting = instruction.lanes * ITEMSIZE[instruction.accumulator_dtype] // ITEMSIZE[dtype]
    return max(1, min(fitting, WIDEST_VECTOR))


def thread_multiple(device: Device, rules: AlignmentRules) -> int:
    """Rule 1: threads of a block come in whole execution widths."""
    return device.execution_width if rules.execution_unit else 1


def transaction_elements(device: Device, dtype: str, rules: AlignmentRules) -> int:
    """Rule 2: elements of one transaction of the backing store; 1 when switched off."""
    if not rules.transaction:
        return 1
    return max(1, device.backing.transaction_bytes // ITEMSIZE[dtype])


@lru_cache(maxsize=128)
def contiguous_axis(load: Load) -> str | None:
    """The axis along which the load's addresses are adjacent, if any."""
    for atom, coefficient in load.offset().terms:
        if coefficient == 1:
            return atom if isinstance(atom, str) else min(atom.index.axes(), default=None)
    return None


def aligned_multiple(op: TensorOp, axis: str, device: Device, rules: AlignmentRules) -> int:
    """Rule 2 for one axis: the multiple that keeps every operand's contiguous rows whole transactions."""
    multiple = 1
    for load in op.loads():
        if contiguous_axis(load) == axis:
            multiple = lcm(multiple, transaction_elements(device, load.dtype, rules))
    return multiple


def bank_padding(device: Device, row_elements: Any, dtype: str, vector: int, rules: AlignmentRules) -> Any:
    """Rule 3: elements added to a staged row so that column accesses spread over the banks.

    Whole vectors only (a pad of one element would break wide loads); none is needed where the row
    already shifts successive rows by a bank vector.
    """
    name = device.kind.block_layer
    if not rules.bank or name is None or not device.layer(name).banks:
        return 0
    layer = device.layer(name)
    period = layer.banks * layer.bank_bytes // ITEMSIZE[dtype]
    return (row_elements % period == 0) * vector
