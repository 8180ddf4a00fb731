"""The tile of a chain of two contractions that a matrix instruction computes, read off its loops and copies.

Of the m x n accumulators of two neighbouring n8 tiles each thread holds what it holds of one m x k16 factor (PTX ISA,
"Matrix fragments for mma.m16n8k16"): weights go from the scores' accumulators to the second product in registers.
T. Dao, FlashAttention-2, arXiv 2307.08691 (2023).  An asynchronous instruction's accumulators and factors in registers
are those of its execution widths side by side (PTX ISA, "wgmma register fragments"); it reads queries, keys and what
they weigh in the block's layer.

Of m8n8k4 a thread's accumulators are two rows by four columns, its factor is one row (PTX ISA, "Matrix Fragments for
mma.m8n8k4 with .f16 floating point type"): threads exchange weights.  An instruction of quad pairs is four of these,
two along either side.  Threads of one row then share its keys: each multiplies those of its own quad pair first.

Where a device has no asynchronous copies, the next half of a block of keys (keys, then what they weigh) is fetched into
registers while a product runs, and put into its only buffer at the next barrier.
"""

from __future__ import annotations

from functools import lru_cache

from rollergen.errors import ProgramError
from rollergen.expr.chains import unrounded
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Cast, Load, Value
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.program.chains import ChainRoles, chain_factors, chain_roles, read_columns, steps_of, tile_of_chain
from rollergen.program.matrix import (
    LEAST_WIDE,
    MOST_WIDE,
    PANEL_BYTES,
    QUAD_PAIRS,
    ROW_BYTES,
    ROWS,
    SWIZZLE,
    accumulators_of,
    rows_of_thread,
    widths_of,
)
from rollergen.program.rprogram import GRID, GROUP, SERIAL, THREAD, UNROLL, Copy, Loop, Stage

_F32 = "float32"


@dataclass(frozen=True, slots=True)
class MatrixChainTile:
    """Sizes: ``groups`` of the execution widths that execute an instruction together (one, or several of an
    asynchronous one), of ``tiles`` rows of the instruction's tiles each; ``keys`` of a block, staged in ``depth``
    buffers; ``held``: queries stay in registers, else they are read again for each block of keys.  ``m``: rows of the
    instruction."""

    groups: int
    tiles: int
    keys: int
    depth: int
    held: bool
    m: int = 16

    @property
    def rows(self) -> int:
        return self.groups * self.tiles * self.m


@dataclass(frozen=True, slots=True)
class ChainLoads:
    """Numbers of the three factors' loads."""

    queries: int
    keys: int
    weighed: int


def chain_loads(op: TensorOp, dtype: str) -> ChainLoads | None:
    """The loads that a matrix instruction for factors of `dtype` multiplies; None where factors are others."""
    found = chain_factors(op)
    if len(found.weighed) != 1 or len(found.weights) != 1:
        return None
    (weight,) = found.weights
    if unrounded(weight) is weight or weight.children()[0].dtype != dtype:
        return None
    numbers = []
    for value in (found.queries, found.keys, found.weighed[0]):
        load = _factor(value, dtype)
        if load is None:
            return None
        numbers.append(op.loads().index(load))
    return ChainLoads(*numbers)


def _factor(value: Value, dtype: str) -> Load | None:
    match value:
        case Cast(x=Load() as load, dtype="float32") if load.dtype == dtype and load.fill == 0:
            return load
    return None


def fits_instruction(op: TensorOp, roles: ChainRoles, one: Instruction) -> bool:
    """Whether the instruction computes both contractions: factors of its dtype whose rows are whole pieces of 16 bytes,
    along the inner axis and along the columns."""
    if one.layout == "opaque" or one.accumulator_dtype != _F32 or len(roles.inner) != 1:
        return False
    loads = chain_loads(op, one.dtype) if one.dtype in ITEMSIZE else None
    if loads is None or op.output.dtype not in (one.dtype, _F32):
        return False
    extents, every = op.extents(), op.loads()
    along = {loads.queries: roles.inner[0], loads.keys: roles.inner[0], loads.weighed: roles.column}
    columns = extents[roles.column]
    if extents[roles.inner[0]] % one.k or columns % (2 * ROWS):
        return False
    if one.is_asynchronous and (columns > MOST_WIDE * one.n or read_columns(op, roles.column) < columns):
        return False
    return all(_in_pieces(every[number], axis, one) for number, axis in along.items())


def multiplied_columns(one: Instruction, columns: int) -> int:
    """The columns of what is weighed that are multiplied: an asynchronous instruction reads whole panels, and what lies
    behind the last column is never stored."""
    panel = PANEL_BYTES // ITEMSIZE[one.dtype]
    return steps_of(columns, panel) * panel if one.is_asynchronous else columns


def keys_problem(tile: MatrixChainTile, one: Instruction) -> str:
    """What is wrong with the number of keys of a block, and of its buffers; empty: nothing."""
    least, most = (LEAST_WIDE * one.n, MOST_WIDE * one.n) if one.is_asynchronous else (one.k, tile.keys)
    depths = (1,) if one.layout == QUAD_PAIRS else (1, 2)
    if tile.keys % least or tile.keys > most or tile.depth not in depths or (tile.held and one.is_asynchronous):
        held = ", queries held" if tile.held else ""
        limit = f" up to {most}, queries read again," if one.is_asynchronous else ""
        buffers = " or ".join(map(str, depths))
        return f"blocks of {tile.keys} keys in {tile.depth} buffers{held}; expected whole {least}{limit} in {buffers}"
    return ""


def _in_pieces(load: Load, axis: str, one: Instruction) -> bool:
    """Whether neighbours along the axis are neighbours in memory, all other steps whole pieces, and bounds cut none."""
    offset, piece = load.offset(), ROW_BYTES // ITEMSIZE[one.dtype]
    for bound in load.guard:
        cut = bound.index == Index.axis(axis) and bound.low % piece == bound.high % piece == 0
        if axis in bound.index.axes() and not cut:
            return False
    rest = offset.without(axis)
    whole = rest.const % piece == 0 and all(factor % piece == 0 for _, factor in rest.terms)
    return offset.coefficient(axis) == 1 and whole and all(axis not in _axes_of(atom) for atom, _ in rest.terms)


def _axes_of(atom: object) -> frozenset[str]:
    return frozenset([atom]) if isinstance(atom, str) else frozenset(atom.index.axes())  # type: ignore[attr-defined]


def matrix_chain_loops(
    op: TensorOp, roles: ChainRoles, tile: MatrixChainTile, one: Instruction
) -> tuple[tuple[Loop, ...], tuple[Loop, ...], int]:
    """(the stage's loops, those of its inner contraction, the depth of these) of a tile."""
    extent = op.extents()
    (inner_axis,) = roles.inner
    rows, key, column = roles.rows, roles.key, roles.column
    grid = [Loop(axis, extent[axis], 1, GRID) for axis in roles.batch]
    grid.append(Loop(rows, steps_of(extent[rows], tile.rows), tile.rows, GRID))
    own, widths, spread = rows_of_thread(one), widths_of(one), accumulators_of(one)
    of_rows = (Loop(rows, tile.tiles, one.m, UNROLL), Loop(rows, own, spread.row_step, UNROLL))
    beside = (Loop(rows, widths, own * ROWS, GROUP),) if widths > 1 else ()
    along = lambda axis: tuple(Loop(axis, count, step, UNROLL) for count, step in spread.columns)
    outer = (
        *grid,
        Loop(rows, tile.groups, tile.tiles * one.m, GROUP),
        *beside,
        *(Loop(column if across else rows, count, step, THREAD) for across, count, step in spread.threads),
        Loop(key, steps_of(extent[key], tile.keys), tile.keys, SERIAL),
        Loop(key, tile.keys // one.k, one.k, UNROLL),
        of_rows[0],
        Loop(column, extent[column] // one.n, one.n, UNROLL),
        of_rows[1],
        *along(column),
        Loop(key, one.k, 1, UNROLL),
    )
    inner = (
        Loop(inner_axis, extent[inner_axis] // one.k, one.k, UNROLL),
        of_rows[0],
        Loop(key, tile.keys // one.n, one.n, UNROLL),
        of_rows[1],
        *(Loop(key, count, step, THREAD) for across, count, step in spread.threads if across),
        *along(key),
        Loop(inner_axis, one.k, 1, UNROLL),
    )
    return outer, inner, outer.index(next(loop for loop in outer if loop.kind == SERIAL)) + 1


def matrix_chain_copies(
    op: TensorOp, roles: ChainRoles, tile: MatrixChainTile, one: Instruction, device: Device
) -> tuple[Copy, ...]:
    """Queries once, keys and what they weigh block by block, past the registers; queries that are held from there."""
    loads, layer = chain_loads(op, one.dtype), device.kind.block_layer
    if loads is None or layer is None:
        raise ProgramError(f"{one.name} multiplies no factors of {op.output.name} through {layer} of {device.name}")
    at_key = matrix_chain_loops(op, roles, tile, one)[2]
    (inner,) = roles.inner
    plans = ((loads.queries, roles.rows, inner, at_key - 1, 1), (loads.keys, roles.key, inner, at_key, tile.depth),
             (loads.weighed, roles.key, roles.column, at_key, tile.depth))  # fmt: skip
    piece, beside = ROW_BYTES // ITEMSIZE[one.dtype], device.layer(layer).asynchronous_copy_bytes >= ROW_BYTES
    found = []
    for load, rows, along, depth, buffers in plans:
        width = op.extents()[along]
        pieces, panel = width // piece, PANEL_BYTES // ITEMSIZE[one.dtype] if one.is_asynchronous else 0
        swizzle = SWIZZLE if panel or pieces % SWIZZLE == 0 else 0
        padding = 0 if swizzle or pieces % 2 else piece  # an odd number of pieces: neighbouring rows on other banks
        padding = -width % panel if panel else padding
        found.append(Copy(load, device.backing.name, layer, depth, (rows, along), along, piece, padding, swizzle,
                          buffers, asynchronous=beside, panel=panel))  # fmt: skip
    if tile.held:
        found.append(Copy(loads.queries, layer, device.layers[0].name, at_key - 1, (roles.rows, inner), inner))
    return tuple(found)


def is_matrix_chain(stage: Stage) -> bool:
    """Whether a matrix instruction computes the stage's chain: its blocks are of many threads."""
    return stage.inner is not None and any(loop.kind == THREAD for loop in stage.loops)


@lru_cache(maxsize=256)
def tile_of_matrix_chain(stage: Stage) -> tuple[ChainRoles, MatrixChainTile]:
    """The roles and sizes of a stage whose loops may be a matrix chain's; `check.matrix_chains` holds that they are.

    Raises ProgramError for loops that have no such sizes.
    """
    roles = chain_roles(stage.op, stage.loops)
    if roles is None or stage.inner is None:
        raise ProgramError(f"stage {stage.name}: has an inner contraction; expected roles of its axes, and its loops")
    of = lambda axis, kind: [loop for loop in stage.loops if loop.axis == axis and loop.kind == kind]
    group, blocks, tiles = of(roles.rows, GROUP), of(roles.key, SERIAL), of(roles.rows, UNROLL)
    if len(group) not in (1, 2) or len(blocks) != 1 or len(tiles) != 2 or len(stage.copies) not in (3, 4):
        raise ProgramError(
            f"stage {stage.name}: the loops are not those of a chain of {roles.rows} and {roles.key} by a matrix "
            "instruction; expected those of `matrix_chains.matrix_chain_loops`, for some sizes"
        )
    tile = MatrixChainTile(
        group[0].extent, tiles[0].extent, blocks[0].stride, stage.copies[1].depth, len(stage.copies) == 4,
        tiles[0].stride,
    )  # fmt: skip
    return roles, tile


@dataclass(frozen=True, slots=True)
class ChainBlock:
    """What a block of any chain has: ``row_count`` of ``rows``, ``key_count`` keys at a time, all columns.  Keys behind
    the last that a row sees are run up to a multiple of ``key_step``."""

    rows: str
    row_count: int
    key: str
    key_count: int
    key_step: int
    column: str


def block_of_chain(stage: Stage) -> ChainBlock:
    if is_matrix_chain(stage):
        roles, own = tile_of_matrix_chain(stage)
        return ChainBlock(roles.rows, own.rows, roles.key, own.keys, own.keys, roles.column)
    roles, tile = tile_of_chain(stage)
    return ChainBlock(roles.rows, tile.rows, roles.key, tile.keys, tile.key_step, roles.column)
