"""Invariants of scans: one walk along the row, in its order."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.tensor_op import Axis
from rollergen.expr.values import Partial, walk
from rollergen.program.check.nest import refuse
from rollergen.program.loops import scan_step
from rollergen.program.rprogram import LANE, PARALLEL, SERIAL, UNROLL, Stage


def check_scans(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """The loops of the row run through it in its order, and what a scan cannot have is not there."""
    if not stage.op.scans:
        return
    rows = [axis.name for axis in axes.values() if axis.role == "row"]
    _check_op(stage, rows)
    own = [(p, loop) for p, loop in enumerate(stage.loops) if loop.axis in rows]
    if any(loop.kind == LANE for _, loop in own):
        raise refuse(stage, f"the lane loop is of {rows[0]}, the row of a scan; expected a spatial axis")
    rank = {SERIAL: 0, **dict.fromkeys(PARALLEL, 1), UNROLL: 2}
    ordered = sorted(own, key=lambda item: (-item[1].stride, rank[item[1].kind]))
    kinds = [rank[loop.kind] for _, loop in ordered]
    steps = [p for p, loop in ordered if loop.kind not in PARALLEL]
    parallel = [p for p, loop in ordered if loop.kind in PARALLEL]
    if kinds != sorted(kinds) or steps != sorted(steps) or parallel != sorted(parallel):
        raise refuse(
            stage,
            f"the loops of {rows[0]}, the row of a scan, are {[(x.kind, x.stride) for _, x in own]}; expected serial "
            "ones of the largest strides, then threads, then unrolled ones, each inside those of larger strides",
        )
    accumulator, depth = stage.accumulator, scan_step(stage)
    outside = [p for p, x in enumerate(stage.loops) if accumulator.at_loop <= p < depth and x.axis not in rows]
    if any(stage.loops[p].kind == UNROLL for p in outside):
        raise refuse(stage, f"loops[{outside[0]}] lies between the accumulators and a step of the scan's row")
    shared = accumulator.combine != "none"
    inside = [p for p, x in enumerate(stage.loops) if p >= accumulator.at_loop and x.axis not in rows]
    if shared and any(stage.loops[p].kind not in PARALLEL for p in inside):
        raise refuse(stage, f"loops[{inside[0]}] is inside a scan that threads share; expected loops of its row alone")
    has = [name for name in ("separate", "gathered", "flush", "carry") if getattr(accumulator, name)]
    if has or stage.kept_rows or stage.store.prefetch_distance or stage.prefetch >= 0:
        raise refuse(stage, f"is a scan with {', '.join(has) or 'kept rows or prefetches'}; expected none")


def _check_op(stage: Stage, rows: list[str]) -> None:
    op = stage.op
    if len(rows) != 1 or not all(reduction.running for reduction in op.reductions):
        raise refuse(
            stage, f"scans over the axes {rows} beside other reductions; expected one row axis, and scans alone"
        )
    for reduction in op.reductions:
        if any(isinstance(node, Partial) for body in reduction.bodies for node in walk(body)):
            raise refuse(stage, f"the scan {reduction.name} reads another reduction; expected what is in memory")
