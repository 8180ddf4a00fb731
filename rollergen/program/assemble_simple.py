"""Plan -> Stage for what has no operand reuse: reductions, row stages, elementwise stages."""

from __future__ import annotations

from math import prod

from rollergen.expr.definition import Definition
from rollergen.expr.values import Load, Unary, Value, loads, walk
from rollergen.hal.spec import Device
from rollergen.program.assemble import accumulator_dtype
from rollergen.program.nest import ceil_div, copy_vector, digits, overhanging, useful
from rollergen.program.plan import ElementwisePlan, ReductionPlan, RowPlan
from rollergen.program.rprogram import (
    GRID,
    LANE,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLL,
    Accumulator,
    Compute,
    Copy,
    Loop,
    Resident,
    Stage,
    Store,
)
from rollergen.tile.rules import block_layer, contiguous_axis, main_instruction


def reduction_stage(definition: Definition, plan: ReductionPlan, device: Device, name: str = "reduction") -> Stage:
    """Rows of outputs, each reduced along the last reduce axis by threads and lanes."""
    spatial = [a.name for a in definition.of_role("spatial")]
    reduced = [a.name for a in definition.of_role("reduce")]
    row = _row_digits(definition, spatial, plan.rows, plan.row_threads)
    k = reduced[-1]
    span = plan.threads * plan.vector * plan.lanes * plan.chains
    k_loops = digits(
        k,
        (SERIAL, ceil_div(definition.axis(k).extent, span)),
        (UNROLL, plan.chains),
        (THREAD, plan.threads),
        (UNROLL, plan.vector),
        (LANE, plan.lanes),
    )
    outer = [Loop(axis, definition.axis(axis).extent, 1, SERIAL) for axis in reduced[:-1]]
    loops = _arrange(row, [*outer, *k_loops])
    start = next((p for p, x in enumerate(loops) if x.axis in reduced and x.kind not in PARALLEL), len(loops))
    separate = tuple(p for p, x in enumerate(loops) if x.axis == k and x.kind == UNROLL)
    return Stage(
        name=name,
        definition=definition,
        loops=tuple(loops),
        compute=Compute(main_instruction(device, accumulator_dtype(definition)).name, plan.lanes),
        accumulator=Accumulator(
            start, accumulator_dtype(definition), separate=separate, combine=_combine(plan.threads, device)
        ),
        copies=_vector_copies(definition, device, loops, k, plan.vector),
        guards=tuple((axis, "mask") for axis in overhanging(definition, loops)),
    )


def _combine(threads: int, device: Device) -> str:
    if threads == 1:
        return "none"
    return "shuffle" if threads <= device.execution_width else "tree"


def _row_digits(definition: Definition, spatial: list[str], rows: int, row_threads: int) -> list[Loop]:
    if not spatial:
        return []
    last = spatial[-1]
    batch = [Loop(axis, definition.axis(axis).extent, 1, GRID) for axis in spatial[:-1]]
    extent = definition.axis(last).extent
    return batch + digits(last, (GRID, ceil_div(extent, rows * row_threads)), (SERIAL, rows), (THREAD, row_threads))


def _arrange(row: list[Loop], inner: list[Loop]) -> list[Loop]:
    """Grid loops, then thread loops (of rows first), then serial rows, then the rest as listed."""
    everything = row + inner
    grid = [x for x in everything if x.kind == GRID]
    threads = [x for x in everything if x.kind == THREAD]
    rest = [x for x in row if x.kind == SERIAL] + [x for x in inner if x.kind not in (GRID, THREAD)]
    return useful(grid + threads + rest)


def _vector_copies(
    definition: Definition, device: Device, loops: list[Loop], axis: str, vector: int
) -> tuple[Copy, ...]:
    """Register copies that make the loads along `axis` vectors, where the innermost digit is one."""
    if vector == 1 or not loops or loops[-1].axis != axis or loops[-1].kind != UNROLL or loops[-1].extent != vector:
        return ()
    depth = len(loops) - 1
    return tuple(
        Copy(number, device.backing.name, "registers", depth, (axis,), axis, vector)
        for number, load in enumerate(definition.loads())
        if axis in load.axes() and copy_vector(definition, load, axis, vector) == vector
    )


def row_stage(definition: Definition, plan: RowPlan, device: Device, name: str = "rows") -> Stage:
    """Every row reduced (several times) and stored by the same threads (softmax)."""
    spatial = [a.name for a in definition.of_role("spatial")]
    rows = [a.name for a in definition.of_role("row")]
    j = rows[-1]
    row = _row_digits(definition, spatial, plan.rows, plan.row_threads)
    span = plan.threads * plan.vector * plan.lanes * plan.chains
    j_loops = digits(
        j,
        (SERIAL, ceil_div(definition.axis(j).extent, span)),
        (UNROLL, plan.chains),
        (THREAD, plan.threads),
        (UNROLL, plan.vector),
        (LANE, plan.lanes),
    )
    outer = [Loop(axis, definition.axis(axis).extent, 1, SERIAL) for axis in rows[:-1]]
    loops = _arrange(row, [*outer, *j_loops])
    start = next((p for p, x in enumerate(loops) if x.axis in rows and x.kind not in PARALLEL), len(loops))
    separate = tuple(p for p, x in enumerate(loops) if x.axis == j and x.kind == UNROLL)
    width = _row_store_vector(definition, loops, j, plan)
    return Stage(
        name=name,
        definition=definition,
        loops=tuple(loops),
        compute=Compute(main_instruction(device, accumulator_dtype(definition)).name, plan.lanes),
        accumulator=Accumulator(
            start, accumulator_dtype(definition), separate=separate, combine=_combine(plan.threads, device)
        ),
        residents=residents(definition, plan.resident),
        store=Store(vector=width),
        guards=tuple((axis, "mask") for axis in overhanging(definition, loops)),
    )


def _row_store_vector(definition: Definition, loops: list[Loop], axis: str, plan: RowPlan) -> int:
    if plan.lanes > 1 or plan.vector == 1 or loops[-1].axis != axis or loops[-1].kind != UNROLL:
        return 1
    return min(plan.vector, copy_vector(definition, Load(definition.output, definition.target), axis, plan.vector))


_COSTLY = ("exp", "log", "tanh", "erf", "sqrt", "rsqrt")


def residents(definition: Definition, layer: str) -> tuple[Resident, ...]:
    """Row values worth keeping in `layer`: those used again in a later phase that cost a
    transcendental to recompute, and (in registers) the loads themselves, read once."""
    if not layer:
        return ()
    row_axes = {a.name for a in definition.of_role("row")}
    phases = [*(r.bodies for r in definition.reductions), (definition.result,)]
    kept: list[Resident] = []
    for phase, bodies in enumerate(phases[:-1]):
        for value in _candidates(bodies, layer, row_axes):
            later = any(value == node for bodies_ in phases[phase + 1 :] for body in bodies_ for node in walk(body))
            if later and all(value != r.value for r in kept):
                kept.append(Resident(f"kept{len(kept)}", value, layer, phase))
    return tuple(kept)


def _candidates(bodies: tuple[Value, ...], layer: str, row_axes: set[str]) -> list[Value]:
    found: list[Value] = []
    for body in bodies:
        for node in walk(body):
            row_dependent = any(load.axes() & row_axes for load in loads(node))
            costly = isinstance(node, Unary) and node.op in _COSTLY
            if row_dependent and (costly or (layer == "registers" and isinstance(node, Load))):
                found.append(node)
    return found


def elementwise_stage(
    definition: Definition, plan: ElementwisePlan, device: Device, name: str = "elementwise"
) -> Stage:
    """Every element once: (m, n) are the axes of `elementwise_axes`, the others get blocks."""
    m, n, batch = elementwise_axes(definition)
    loops: list[Loop] = [Loop(axis, definition.axis(axis).extent, 1, GRID) for axis in batch]
    n_loops = digits(
        n,
        (GRID, ceil_div(definition.axis(n).extent, plan.pn * plan.un * plan.tn * plan.vector * plan.lanes)),
        (SERIAL, plan.pn),
        (UNROLL, plan.un),
        (THREAD, plan.tn),
        (UNROLL, plan.vector),
        (LANE, plan.lanes),
    )
    m_loops: list[Loop] = []
    if m is not None:
        extent = definition.axis(m).extent
        m_loops = digits(m, (GRID, ceil_div(extent, plan.pm * plan.tm)), (SERIAL, plan.pm), (THREAD, plan.tm))
    pick = lambda kind: [x for x in m_loops + n_loops if x.kind == kind]
    loops = useful([*loops, *pick(GRID), *pick(THREAD), *pick(SERIAL), *pick(UNROLL), *pick(LANE)])
    first = next((p for p, x in enumerate(loops) if x.kind not in (GRID, THREAD)), len(loops))
    tile = next((p for p, x in enumerate(loops) if x.kind in (UNROLL, LANE)), len(loops))
    copies: tuple[Copy, ...] = ()
    if plan.staged >= 0:
        copies = (_transposing_copy(definition, plan, device, loops, first),)
    elif plan.vector > 1 and plan.lanes == 1:
        copies = _vector_copies(definition, device, loops, n, plan.vector)
    store = Load(definition.output, definition.target)
    width = min(plan.vector, copy_vector(definition, store, n, plan.vector)) if plan.lanes == 1 else 1
    wide = loops and loops[-1].kind == UNROLL and loops[-1].axis == n
    return Stage(
        name=name,
        definition=definition,
        loops=tuple(loops),
        compute=Compute(main_instruction(device, accumulator_dtype(definition)).name, plan.lanes),
        accumulator=Accumulator(tile, accumulator_dtype(definition)),
        copies=copies,
        store=Store(vector=width if wide else 1, streaming=plan.streaming),
        guards=tuple((axis, "mask") for axis in overhanging(definition, loops)),
    )


def _transposing_copy(
    definition: Definition, plan: ElementwisePlan, device: Device, loops: list[Loop], depth: int
) -> Copy:
    load = definition.loads()[plan.staged]
    layer = block_layer(device) or plan.layer
    m, n, _ = elementwise_axes(definition)
    along = contiguous_axis(load)
    order = tuple(axis for axis in (n, m) if axis is not None and any(x.axis == axis and x.kind != GRID for x in loops))
    along = along if along in order else order[-1]
    inside = prod(x.extent for x in loops if x.axis == along and x.kind != GRID)
    limit = 4 if block_layer(device) else max(plan.lanes, 1)
    vector = copy_vector(definition, load, along, inside, limit * 4) if block_layer(device) is None else 1
    padding = 1 if block_layer(device) else max(plan.lanes, 1)
    return Copy(plan.staged, device.backing.name, layer, depth, order, along, vector, padding)


def elementwise_axes(definition: Definition) -> tuple[str | None, str, tuple[str, ...]]:
    """(m, n, batch): n is contiguous in the output; m is contiguous in a load that n is not, else
    the next axis outward (None if there is none)."""
    axes = [a.name for a in definition.of_role("spatial", "row")]
    store = Load(definition.output, definition.target)
    n = contiguous_axis(store)
    n = n if n in axes else axes[-1]
    others = [a for a in axes if a != n]
    transposed = [contiguous_axis(load) for load in definition.loads() if contiguous_axis(load) in others]
    m = transposed[0] if transposed else (others[-1] if others else None)
    return m, n, tuple(a for a in others if a != m)
