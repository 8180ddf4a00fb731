"""Plan -> Stage for elementwise stages: every element once, transposed operands through a tile."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import linear
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.views import in_a_row
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import (
    ceil_div,
    copy_vector,
    digits,
    is_divided,
    overhanging,
    useful,
    useful_digits,
    vector_copies,
)
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.loops import OVERLAP
from rollergen.program.rprogram import (
    GRID,
    LANE,
    SERIAL,
    THREAD,
    UNROLL,
    Accumulator,
    Compute,
    Copy,
    Loop,
    Stage,
    Store,
)
from rollergen.tile.rules import contiguous_axis, main_instruction


def elementwise_stage(
    op: TensorOp, plan: ElementwisePlan, device: Device, name: str = "elementwise"
) -> Stage:
    """Every element once: (m, n) are the axes of `elementwise_axes`, the others get blocks."""
    if plan.square:
        return _square_tile_stage(op, plan, device, name)
    axes = reading_axes(op) if plan.as_read else None
    m, n, batch = axes or elementwise_axes(op)
    loops: list[Loop] = [Loop(axis, op.axis(axis).extent, 1, GRID) for axis in batch]
    tiles = ceil_div(op.axis(n).extent, plan.pn * plan.un * plan.tn * plan.vector * plan.lanes)
    n_loops = useful_digits(
        n,
        *(((SERIAL, ceil_div(tiles, plan.strides)), (GRID, plan.strides)) if plan.strides else ((GRID, tiles),)),
        (SERIAL, plan.pn),
        (UNROLL, plan.un),
        (THREAD, plan.tn),
        (UNROLL, plan.vector),
        (LANE, plan.lanes),
    )
    m_loops: list[Loop] = []
    if m is not None:
        extent = op.axis(m).extent
        blocks = ceil_div(extent, plan.pm * plan.um * plan.tm)
        m_loops = useful_digits(m, (GRID, blocks), (SERIAL, plan.pm), (UNROLL, plan.um), (THREAD, plan.tm))
    pick = lambda kind: [x for x in m_loops + n_loops if x.kind == kind]
    loops = useful([*loops, *pick(GRID), *pick(THREAD), *pick(SERIAL), *pick(UNROLL), *pick(LANE)])
    first = next((p for p, x in enumerate(loops) if x.kind not in (GRID, THREAD)), len(loops))
    tile = next((p for p, x in enumerate(loops) if x.kind in (UNROLL, LANE)), len(loops))
    copies: tuple[Copy, ...] = ()
    in_block = any(x.axis in (m, n) and x.kind != GRID for x in loops)  # a single element is not transposed
    if plan.staged >= 0 and in_block:
        copies = (_transposing_copy(op, plan, device, loops, first),)
    elif plan.vector > 1 and plan.lanes == 1:
        copies = vector_copies(op, device, loops, n, plan.vector)
    width = min(plan.vector, copy_vector(op, op.stored(), n, plan.vector)) if plan.lanes == 1 else 1
    wide = loops and loops[-1].kind == UNROLL and loops[-1].axis == n
    rows = [p for p, x in enumerate(loops) if x.kind == SERIAL and x.axis == m]
    return Stage(
        name=name,
        op=op,
        loops=tuple(loops),
        compute=Compute(main_instruction(device, accumulator_dtype(op)).name, plan.lanes),
        accumulator=Accumulator(tile, accumulator_dtype(op)),
        copies=copies,
        store=Store(vector=width if wide else 1, streaming=plan.streaming),
        guards=tuple((axis, "mask") for axis in overhanging(op, loops)),
        prefetch=rows[0] if plan.ahead and rows else -1,
    )


def _square_tile_stage(op: TensorOp, plan: ElementwisePlan, device: Device, name: str) -> Stage:
    """Square tiles of the staged load, transposed in registers, in blocks of ``pn`` x ``pm`` of them.

    n lies outside (``across``: inside).  The last tiles overlap those before them; where vectors begin on lines, the
    first and last are cut.
    """
    m, n, batch = elementwise_axes(op)
    assert m is not None
    side = plan.square
    reach = op.axis(n).extent + (side - 1 if plan.on_lines else 0)
    n_loops = digits(n, (GRID, ceil_div(reach, plan.pn * side)), (SERIAL, plan.pn), (LANE, side))
    m_loops = digits(
        m, (GRID, ceil_div(op.axis(m).extent, plan.pm * side)), (SERIAL, plan.pm), (UNROLL, side)
    )
    outer = [Loop(axis, op.axis(axis).extent, 1, GRID) for axis in batch]
    grid, steps = (m_loops[0], n_loops[0]), (n_loops[1], m_loops[1])
    if plan.across:
        grid, steps = grid[::-1], steps[::-1]
    loops = useful([*outer, *grid, *steps, m_loops[2], n_loops[2]])
    tile = next(p for p, x in enumerate(loops) if x.kind == UNROLL)
    rows = next((p for p, x in enumerate(loops) if x.kind == SERIAL and x.axis == m), tile) if not plan.across else tile
    over = set(overhanging(op, loops)) | ({n} if plan.on_lines else set())
    prefetch_distance = plan.prefetch_distance if any(loop.kind == SERIAL for loop in loops) else 0
    load = op.loads()[plan.staged]
    vector = side if in_a_row(load, m) else copy_vector(op, load, m, side, side * ITEMSIZE[load.dtype])
    return Stage(
        name=name,
        op=op,
        loops=tuple(loops),
        compute=Compute(main_instruction(device, accumulator_dtype(op)).name, side),
        accumulator=Accumulator(rows, accumulator_dtype(op)),
        copies=(Copy(plan.staged, device.backing.name, plan.layer, tile, (m, n), m, vector),),
        store=Store(streaming=plan.streaming, on_lines=plan.on_lines, prefetch_distance=prefetch_distance),
        guards=tuple((axis, "peel" if plan.on_lines and axis == n else OVERLAP) for axis in sorted(over)),
    )


def _transposing_copy(
    op: TensorOp, plan: ElementwisePlan, device: Device, loops: list[Loop], depth: int
) -> Copy:
    load = op.loads()[plan.staged]
    layer = device.kind.block_layer or plan.layer
    m, n, _ = elementwise_axes(op)
    along = contiguous_axis(load)
    order = tuple(axis for axis in (n, m) if axis is not None and any(x.axis == axis and x.kind != GRID for x in loops))
    along = along if along in order else order[-1]
    inside = prod(x.extent for x in loops if x.axis == along and x.kind != GRID)
    limit = 4 if device.kind.threads else max(plan.lanes, 1)
    vector = copy_vector(op, load, along, inside, limit * 4) if not device.kind.threads else 1
    # One processor fills the rows by vectors, of narrow elements more than there are lanes: rows begin on them.
    padding = 1 if device.kind.threads else max(plan.lanes, vector)
    return Copy(plan.staged, device.backing.name, layer, depth, order, along, vector, padding)


@lru_cache(maxsize=64)
def elementwise_axes(op: TensorOp) -> tuple[str | None, str, tuple[str, ...]]:
    """The axes (m, n, batch) of an elementwise stage.

    n is contiguous in the output. m is contiguous in a load in which n is not, else it is the next axis outward (None
    if there is none).
    """
    axes = [a.name for a in op.of_role("spatial", "row")]
    n = contiguous_axis(op.stored())
    n = n if n in axes else axes[-1]
    others = [a for a in axes if a != n]
    transposed = [contiguous_axis(load) for load in op.loads() if contiguous_axis(load) in others]
    m = transposed[0] if transposed else (others[-1] if others else None)
    return m, n, tuple(a for a in others if a != m)


@lru_cache(maxsize=64)
def reading_axes(op: TensorOp) -> tuple[str, str, tuple[str, ...]] | None:
    """`elementwise_axes` in the order of the one array read, whose rows along n are contiguous in it as well; None
    where that is the output's order, or where it has none."""
    m, n, batch = elementwise_axes(op)
    loads = op.loads()
    others = [a.name for a in op.of_role("spatial", "row") if a.name != n]
    if len(loads) != 1 or loads[0].guard or contiguous_axis(loads[0]) != n or not others:
        return None
    if any(is_divided(loads[0], axis) for axis in others):
        return None
    offset = linear(loads[0].indices, loads[0].buffer.shape)
    steps = {axis: offset.coefficient(axis) for axis in others}
    if min(steps.values()) <= 0:
        return None
    *outer, inner = sorted(others, key=lambda axis: -steps[axis])
    return None if (inner, tuple(outer)) == (m, batch) else (inner, n, tuple(outer))
