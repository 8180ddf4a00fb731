"""The next panel of a contraction, prefetched while one is computed: which part of it at which step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rollergen.expr.values import Load
from rollergen.program.rprogram import LANE, PARALLEL, SERIAL, UNROLL, Stage


@dataclass(frozen=True, slots=True)
class PanelPart:
    """Positions of loops: ``inner`` (serial, between the panels and the steps of the reduction), whose iterations share
    the vectors of a step out among them; ``vectors`` (unrolled), of one step; ``depth``: where a step begins."""

    inner: int
    vectors: int
    depth: int


def panel_part(stage: Stage) -> PanelPart | None:
    """How the iterations inside a loop that is prefetched share the next panel; None: as rows are fetched.

    Of the one reduction of a stage whose accumulators lie inside serial loops along two axes and whose steps are
    serial: at each step every iteration of the inner of them asks for one vector along the axis of the outer."""
    p, reductions = stage.prefetch, stage.op.reductions
    if p < 0 or len(reductions) != 1:
        return None
    axis = stage.loops[p].axis
    roles = {one.name: one.role for one in stage.op.axes}
    spatial = [q for q, loop in enumerate(stage.loops) if roles[loop.axis] == "spatial" and loop.kind not in PARALLEL]
    inner = [q for q in spatial if p < q < stage.accumulator.at_loop and stage.loops[q].kind == SERIAL]
    vectors = [q for q in spatial if stage.loops[q].axis == axis and stage.loops[q].kind == UNROLL]
    lanes = [q for q in spatial if stage.loops[q].axis == axis and stage.loops[q].kind == LANE]
    steps = [q for q, loop in enumerate(stage.loops) if roles[loop.axis] == "reduce" and loop.kind == SERIAL]
    if len(inner) != 1 or len(vectors) != 1 or len(lanes) != 1 or not steps or stage.loops[inner[0]].axis == axis:
        return None
    depth = max(steps) + 1
    return PanelPart(inner[0], vectors[0], depth) if stage.accumulator.at_loop < depth <= vectors[0] else None


def prefetched_loads(stage: Stage, used: Iterable[Load]) -> tuple[Load, ...]:
    """Of the loads of the last reduction, those whose next element is prefetched: they change with the loop that is
    prefetched and, of a panel, with no loop inside its step but that over its vectors."""
    axis, part = stage.loops[stage.prefetch].axis, panel_part(stage)
    inside = set() if part is None else {loop.axis for loop in stage.loops[part.depth :]} - {axis}
    return tuple(load for load in used if axis in load.axes() and not inside & set(load.axes()))
