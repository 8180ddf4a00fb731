"""Lines prefetched: of what a loop's next iteration reads, and of where a row's result will be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from rollergen.expr.index import Bounds, Index
from rollergen.expr.takes import widened
from rollergen.expr.values import Load
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.context import Context
from rollergen.lower.expressions import Inside
from rollergen.lower.loops import output_access, scope_of
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, when_all
from rollergen.lower.reductions import loops_over
from rollergen.lower.takes import moved, of_one_lane, one_lane
from rollergen.program.loops import (
    PanelPart,
    asked_lanes,
    asks_near,
    block_loops,
    ids_by_lane,
    line_loops,
    prefetched_lines,
    prefetched_loads,
    prefetched_takes,
)
from rollergen.program.rprogram import SERIAL, UNROLL


def fetch_next(context: Context, here: Place, used: tuple[Load, ...], part: PanelPart | None = None) -> None:
    """Asks for what the loop to prefetch reads at this place in its next iteration; of a panel, at the step at hand,
    for some vectors: which, the loop inside tells.  Behind the last panel of a block of the reduction comes the first
    one of the next block."""
    nest, out, p = context.nest, context.out, context.nest.stage.prefetch
    following: list[dict[int, Index]] = [{p: here.point[p] + 1}]
    if part is not None:
        following = [_next_panel(nest, here, out.ranges)]
        mine = here.point[part.inner] * part.each
        following = [following[0] | _digits(nest, part.vectors, mine + n, out.ranges) for n in range(part.each)]
    for changes, load in product(following, prefetched_loads(nest.stage, used)):
        offset = load.offset().substitute(here.bind(changes).axes)
        first = offset.substitute({nest.lane.variable: Index()}) if nest.lane else offset
        near = part is not None and asks_near(nest.stage, load)
        out.prefetch_line(nest.parameters[load.buffer.name], first.simplify(out.ranges), near=near)


def _next_panel(nest: Nest, here: Place, ranges: Mapping[str, Bounds]) -> dict[int, Index]:
    """Where the loop to prefetch, and the serial loops around it, stand at its next iteration."""
    around = [q for q in range(nest.stage.prefetch + 1) if nest.loops[q].kind == SERIAL]
    found: dict[int, Index] = {}
    carried = Index.of(1)
    for q in reversed(around):
        number, extent = here.point[q] + carried, nest.loops[q].extent
        found[q] = (number if q == around[0] else number % extent).simplify(ranges)
        carried = (number // extent).simplify(ranges)
    return found


def _digits(nest: Nest, loops: tuple[int, ...], number: Index, ranges: Mapping[str, Bounds]) -> dict[int, Index]:
    """Where the loops stand at the iteration of that number; behind the last one they begin again."""
    found: dict[int, Index] = {}
    inside = 1
    for p in reversed(loops):
        extent = nest.loops[p].extent
        found[p] = (number // inside % extent).simplify(ranges)
        inside *= extent
    return found


def prefetch_lines(context: Context, here: Place) -> None:
    """Asks for what a later iteration of a reduction's loop reads (`loops.prefetched_lines`)."""
    nest, out, p = context.nest, context.out, context.nest.stage.prefetch
    for load, iterations in prefetched_lines(nest.stage):
        inside = line_loops(nest.stage, load)
        for at in product(*(range(nest.loops[q].extent) for q in inside)):
            changes = {p: here.point[p] + iterations, **{q: Index.of(n) for q, n in zip(inside, at, strict=True)}}
            later = here.bind(changes | {len(nest.loops) - 1: Index()})
            offset = load.offset().substitute(later.axes).simplify(out.ranges)
            out.prefetch_line(nest.parameters[load.buffer.name], offset, near=asks_near(nest.stage, load))


def ask_for_result(context: Context, here: Place) -> None:
    """Asks for where the row's result at this point will be written (`Store.prefetch_distance`)."""
    nest, out = context.nest, context.out
    first = here if nest.lane_position is None else here.bind({nest.lane_position: Index()})
    access = output_access(first, out)
    out.prefetch_line(access.pointer, access.offset, writing=True)


def ask_for_tile(context: Context, place: Place) -> None:
    """Asks for where the register tile's results will be written, if the block of its sums that begins here is the last
    one (`loops.asks_for_tile`)."""
    nest, out = context.nest, context.out
    first = place if nest.lane_position is None else place.bind({nest.lane_position: Index()})
    vectors = tuple(p for p in nest.positions("spatial", after=nest.tile_depth) if nest.loops[p].kind == UNROLL)
    last = [Inside(place.point[p], nest.loops[p].extent - 1, None) for p in block_loops(nest.stage)]
    with when_all(out, last), loops_over(out, first, vectors):
        access = output_access(first, out)
        out.prefetch_line(access.pointer, access.offset, near=True)


def fetch_next_takes(context: Context, here: Place) -> None:
    """Asks for what takes at this place read in the next iteration of the loop to prefetch, where there is one: its ids
    are read.  They are taken as they are: to make positions of them costs more than asking in vain."""
    nest, out, p = context.nest, context.out, context.nest.stage.prefetch
    following = replace(here.bind({p: here.point[p] + 1}), sources={})  # registers hold what this iteration reads
    bound = here.axis_test(nest.loops[p].axis)
    next_one = bound.index.substitute(following.axes).simplify(out.ranges)
    with out.when(Inside(next_one, None, bound.high)):
        for take in prefetched_takes(nest.stage):
            every = [widened(one, extent) for one, extent in zip(take.ids, take.extents, strict=True)]
            row: Index | None = None
            for lane in asked_lanes(nest.stage, take):
                at = following if nest.lane_position is None else following.bind({nest.lane_position: Index.of(lane)})
                if row is None or ids_by_lane(nest.stage, take):
                    scope = of_one_lane(scope_of(context, at, None, {}, {}))
                    row = moved(out, Index(), take, [one_lane(evaluate(out, scope, one)) for one in every])
                offset = take.row.offset().substitute(at.axes) + row
                out.prefetch_line(nest.parameters[take.row.buffer.name], offset)
