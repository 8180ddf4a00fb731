"""Plan -> Stage for reductions without operand reuse, and for rows that are reduced and read again."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, Unary, Value, loads, walk
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.levels import in_blocks, longest_chain
from rollergen.program.assemble.nest import ceil_div, copy_vector, digits, overhanging, useful, vector_copies
from rollergen.program.assemble.plan import InnerProductPlan, ReductionPlan
from rollergen.program.layers import REGISTERS
from rollergen.program.rprogram import (
    GRID,
    GROUP,
    LANE,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLL,
    Accumulator,
    Compute,
    KeptRow,
    Loop,
    Stage,
    Store,
)
from rollergen.tile.rules import instruction_for


def reduction_stage(op: TensorOp, plan: ReductionPlan, device: Device, name: str = "reduction") -> Stage:
    """Rows of outputs, each reduced (several times, if need be) along the last reduce axis by threads and lanes."""
    stage = _reduced(op, plan, device, "reduce", name)
    k = op.of_role("reduce")[-1].name
    copies = vector_copies(op, device, list(stage.loops), k, plan.vector)
    kept = kept_rows(op, plan.kept_in) if len(op.reductions) > 1 else ()
    return _in_blocks(replace(stage, kept_rows=kept, copies=copies), device)


def row_stage(op: TensorOp, plan: ReductionPlan, device: Device, name: str = "rows") -> Stage:
    """Every row reduced (several times) and stored by the same threads (softmax)."""
    stage = _reduced(op, plan, device, "row", name)
    j = op.of_role("row")[-1].name
    width = store_vector(op, list(stage.loops), j, plan.vector) if plan.lanes == 1 else 1
    kept = kept_rows(op, plan.kept_in)
    if plan.kept_in == device.backing.name:
        kept = tuple(r for r in kept if r.value.dtype == op.output.dtype)[:1]
    copies = vector_copies(op, device, list(stage.loops), j, plan.vector)
    return _in_blocks(replace(stage, kept_rows=kept, copies=copies, store=Store(vector=width)), device)


def _in_blocks(stage: Stage, device: Device) -> Stage:
    return in_blocks(stage, longest_chain(stage, device, reused=False))


def _reduced(op: TensorOp, plan: ReductionPlan, device: Device, role: str, name: str) -> Stage:
    """The nest of both: rows outside; inside, the axes of `role`, the last one shared out."""
    row_axes = [a.name for a in op.of_role(role)]
    last, dtype = row_axes[-1], accumulator_dtype(op)
    span = plan.threads * plan.vector * plan.lanes * plan.chains
    groups, threads = in_groups(plan.threads, device)
    own = digits(
        last,
        (UNROLL if plan.kept_in == REGISTERS else SERIAL, ceil_div(op.axis(last).extent, span)),
        (UNROLL, plan.chains),
        (GROUP, groups),
        (THREAD, threads),
        (UNROLL, plan.vector),
        (LANE, plan.lanes),
    )
    outer = [Loop(axis, op.axis(axis).extent, 1, SERIAL) for axis in row_axes[:-1]]
    loops = _arrange(_row_digits(op, plan.rows, plan.row_threads), [*outer, *own])
    start = next((p for p, x in enumerate(loops) if x.axis in row_axes and x.kind not in PARALLEL), len(loops))
    unrolled = tuple(p for p, x in enumerate(loops) if x.axis == last and x.kind == UNROLL and x.stride < span)
    separate, gathered = ((), unrolled) if plan.gathered else (unrolled, ())
    return Stage(
        name=name,
        op=op,
        loops=tuple(loops),
        compute=Compute(instruction_for(op, device, dtype).name, plan.lanes),
        accumulator=Accumulator(
            start, dtype, separate=separate, combine=combining(plan.threads, device), gathered=gathered
        ),
        guards=tuple((axis, "mask") for axis in overhanging(op, loops)),
    )


def inner_product_stage(
    op: TensorOp, rows: str, columns: str, plan: InnerProductPlan, device: Device, name: str = "inner_product"
) -> Stage:
    """A tile of outputs along two axes, each summed over vectors along the last reduce axis: both operands are read as
    they lie, each vector once for all outputs of the tile that it serves."""
    *outer, last = op.of_role("reduce")
    span, dtype = plan.lanes * plan.chains, accumulator_dtype(op)
    steps = digits(
        last.name, (SERIAL, ceil_div(last.extent, span)), (UNROLL, plan.chains), (LANE, plan.lanes)
    )
    of_rows = digits(
        rows, (GRID, ceil_div(op.axis(rows).extent, plan.rows * plan.row_tile)), (SERIAL, plan.rows),
        (UNROLL, plan.row_tile),
    )  # fmt: skip
    of_columns = digits(
        columns, (SERIAL, ceil_div(op.axis(columns).extent, plan.column_tile)), (UNROLL, plan.column_tile)
    )
    batch = [Loop(a.name, a.extent, 1, GRID) for a in op.of_role("spatial") if a.name not in (rows, columns)]
    everything = useful([
        *batch, *of_rows[:2], of_columns[0], *(Loop(a.name, a.extent, 1, SERIAL) for a in outer), steps[0],
        of_rows[2], of_columns[1], *steps[1:],
    ])  # fmt: skip
    reduced = {axis.name for axis in (*outer, last)}
    start = next(p for p, loop in enumerate(everything) if loop.axis in reduced)
    separate = tuple(p for p, loop in enumerate(everything) if loop.axis == last.name and loop.kind == UNROLL)
    # Vectors that overhang are masked; tiles that do have code of their own, so that whole ones test nothing.
    stage = Stage(
        name=name,
        op=op,
        loops=tuple(everything),
        compute=Compute(instruction_for(op, device, dtype).name, plan.lanes),
        accumulator=Accumulator(start, dtype, separate=separate),
        guards=tuple((axis, "mask" if axis in reduced else "peel") for axis in overhanging(op, everything)),
    )
    return in_blocks(stage, longest_chain(stage, device, reused=True))


def in_groups(threads: int, device: Device) -> tuple[int, int]:
    """(groups, threads of each): whole execution widths where their threads exchange registers."""
    if combining(threads, device) != "groups":
        return 1, threads
    return threads // device.execution_width, device.execution_width


def combining(threads: int, device: Device) -> str:
    """What groups found is combined by the threads of one: more groups than those combine as a tree."""
    if threads == 1:
        return "none"
    if not device.kind.exchanges or threads > device.execution_width**2:
        return "tree"
    return "shuffle" if threads <= device.execution_width else "groups"


def _row_digits(op: TensorOp, rows: int, row_threads: int) -> list[Loop]:
    spatial = [a.name for a in op.of_role("spatial")]
    if not spatial:
        return []
    last = spatial[-1]
    batch = [Loop(axis, op.axis(axis).extent, 1, GRID) for axis in spatial[:-1]]
    extent = op.axis(last).extent
    return batch + digits(last, (GRID, ceil_div(extent, rows * row_threads)), (SERIAL, rows), (THREAD, row_threads))


def _arrange(row: list[Loop], inner: list[Loop]) -> list[Loop]:
    """Grid loops, then thread loops (of rows first), then serial rows, then the rest as listed."""
    everything = row + inner
    grid = [x for x in everything if x.kind == GRID]
    threads = [x for x in everything if x.kind in PARALLEL]
    rest = [x for x in row if x.kind == SERIAL] + [x for x in inner if x.kind not in (GRID, *PARALLEL)]
    return useful(grid + threads + rest)


def store_vector(op: TensorOp, loops: list[Loop], axis: str, vector: int) -> int:
    """Neighbours along the axis that are stored at once, of the `vector` of the innermost loop."""
    if vector == 1 or loops[-1].axis != axis or loops[-1].kind != UNROLL:
        return 1
    return min(vector, copy_vector(op, op.stored(), axis, vector))


def is_costly(node: Value) -> bool:
    """Whether the value is a function that takes several operations."""
    return isinstance(node, Unary) and PRIMITIVES[node.op].chain > 1


def kept_rows(op: TensorOp, layer: str) -> tuple[KeptRow, ...]:
    """Row values worth keeping in `layer`: those used again in a later phase that cost a
    transcendental to recompute, and (in registers) the loads themselves, read once."""
    if not layer:
        return ()
    row_axes = {a.name for a in op.of_role("row", "reduce")}
    phases = [*(r.bodies for r in op.reductions), (op.result,)]
    kept: list[KeptRow] = []
    for phase, bodies in enumerate(phases[:-1]):
        for value in _candidates(bodies, layer, row_axes):
            later = any(value == node for bodies_ in phases[phase + 1 :] for body in bodies_ for node in walk(body))
            if later and all(value != r.value for r in kept):
                kept.append(KeptRow(f"kept{len(kept)}", value, layer, phase))
    return tuple(kept)


def _candidates(bodies: tuple[Value, ...], layer: str, row_axes: set[str]) -> list[Value]:
    found: list[Value] = []
    for body in bodies:
        for node in walk(body):
            row_dependent = any(load.axes() & row_axes for load in loads(node))
            if row_dependent and (is_costly(node) or (layer == REGISTERS and isinstance(node, Load))):
                found.append(node)
    return found
