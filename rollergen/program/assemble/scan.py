"""Plan -> Stage for scans: steps along the row, rows side by side."""

from __future__ import annotations

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import ceil_div, digits, overhanging, useful, vector_copies
from rollergen.program.assemble.plan import ScanPlan
from rollergen.program.assemble.reduction import combining, in_groups, store_vector
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
    Loop,
    Stage,
    Store,
)
from rollergen.tile.rules import contiguous_axis, main_instruction


def scan_stage(op: TensorOp, plan: ScanPlan, device: Device) -> Stage:
    """Every row walked once, from its beginning to its end."""
    (row,) = op.of_role("row")
    groups, threads = in_groups(plan.threads, device)
    along = digits(
        row.name, (SERIAL, ceil_div(row.extent, plan.threads * plan.vector)), (GROUP, groups), (THREAD, threads),
        (UNROLL, plan.vector),
    )  # fmt: skip
    across: list[Loop] = []
    side = row_axis(op)
    for axis in op.of_role("spatial"):
        if axis.name != side:
            across.append(Loop(axis.name, axis.extent, 1, GRID))
    if side:
        blocks = ceil_div(op.axis(side).extent, plan.across * plan.row_threads * plan.rows * plan.lanes)
        across += digits(
            side, (GRID, blocks), (SERIAL, plan.across), (UNROLL, plan.rows), (THREAD, plan.row_threads),
            (LANE, plan.lanes),
        )  # fmt: skip
    every = across + along
    pick = lambda *kinds: [loop for loop in every if loop.kind in kinds]
    of = lambda digits_, kind: [loop for loop in digits_ if loop.kind == kind]
    inside = [*of(across, SERIAL), *of(across, UNROLL), *of(along, UNROLL)]
    loops = useful([*pick(GRID), *pick(*PARALLEL), *of(along, SERIAL), *inside, *pick(LANE)])
    start = next((p for p, loop in enumerate(loops) if loop.kind not in (GRID, *PARALLEL)), len(loops))
    copies = vector_copies(op, device, loops, row.name, plan.vector) if plan.lanes == 1 else ()
    width = 1 if plan.lanes > 1 or plan.rows > 1 else store_vector(op, loops, row.name, plan.vector)
    dtype = accumulator_dtype(op)
    return Stage(
        name="scan",
        op=op,
        loops=tuple(loops),
        compute=Compute(main_instruction(device, dtype).name, plan.lanes),
        accumulator=Accumulator(start, dtype, combine=combining(plan.threads, device)),
        copies=copies,
        store=Store(vector=width),
        guards=tuple((axis, "mask") for axis in overhanging(op, loops)),
    )


def row_axis(op: TensorOp) -> str:
    """The axis whose neighbours are rows that lie side by side: that of neighbours in the output, else the last one;
    "": there is one row."""
    spatial = [axis.name for axis in op.of_role("spatial")]
    along = contiguous_axis(op.stored())
    return along if along in spatial else (spatial[-1] if spatial else "")
