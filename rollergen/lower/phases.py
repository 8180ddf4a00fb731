"""The nest of one stage: outer loops, then for each tile every reduction and the result.

outer loops, copies on the way
  tile:  (peel: whole | with tests)
    each reduction:  start, loops { copies, fragments, update }, finish
    result:          spatial loops { copies, fragments, store }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Value, Within, loads
from rollergen.lower import gathering, reductions
from rollergen.lower.arithmetic import evaluate, evaluate_all
from rollergen.lower.boxes import write_in_boxes
from rollergen.lower.chains import write_chain
from rollergen.lower.context import Context
from rollergen.lower.copies import masked_lines
from rollergen.lower.expressions import Expr, Inside
from rollergen.lower.loops import Phase, descend, output_access, scope_of, spread, tile_loops
from rollergen.lower.matrix import reduce_matrices
from rollergen.lower.matrix_chains import write_matrix_chain
from rollergen.lower.nan_tests import look_for_nan
from rollergen.lower.place import Place, Registers, Scope, conjunction, is_uniform
from rollergen.lower.positions import start_places
from rollergen.lower.prefetching import ask_for_result, ask_for_tile, fetch_next, prefetch_lines
from rollergen.lower.scans import write_scans
from rollergen.lower.stores import (
    Kept,
    Totals,
    allocate_kept_rows,
    keep,
    kept_values,
    once_per_result,
    phase_values,
    write_result,
)
from rollergen.lower.trips import first_trip
from rollergen.lower.writer import Writer
from rollergen.program.loops import asking_depth, asks_for_tile, panel_part, prefetches_lines
from rollergen.program.matrix_chains import is_matrix_chain
from rollergen.program.rprogram import GRID, PARALLEL, SERIAL, KeptRow


def write_nest(context: Context) -> None:
    """The whole stage inside its grid and thread loops."""
    nest = context.nest
    if nest.stage.inner is not None:
        (write_matrix_chain if is_matrix_chain(nest.stage) else write_chain)(context)
        return
    outer = Phase(
        frozenset(range(nest.first_inner, nest.tile_depth)), nest.loads, nest.tile_depth, False, nest.lane
    )
    write = lambda own: descend(
        own, Place.outermost(nest), nest.first_inner, outer, lambda place: write_tile(own, place)
    )
    if nest.boxes:
        write_in_boxes(context, write)
    else:
        write(context)


def write_tile(context: Context, place: Place) -> None:
    """The register tile, twice where its axes are peeled: whole, and with tests.

    An axis along which no tile is ever whole stays with its tests in both.  Of an axis without lanes, along which one
    tile overhangs, that tile is written for itself: which of its rows exist is then known to the compiler (a test of
    each row in each step took 2.5 times as long as a whole tile).
    """
    nest, out = context.nest, context.out
    open_axes = [axis for axis, kind in nest.stage.guards if kind == "peel" and axis not in place.whole]
    fits = {axis: _tile_fits(place, axis, out) for axis in open_axes}
    peeled = {axis: test for axis, test in fits.items() if test is None or _may_hold(test, out)}
    for axis, test in peeled.items():
        last = None if test is None or axis == nest.lane_axis else _last_tile(place, axis)
        if test is not None and last is not None:
            with out.when(test):
                write_tile(context, place.knowing([axis]))
            with out.otherwise():
                write_tile(context, place.bind(last))
            return
    whole = place.knowing(peeled)
    condition = conjunction(test for test in peeled.values() if test is not None)
    if condition is None:
        _write_windows(context, whole)
        return
    with out.when(condition):
        _write_windows(context, whole)
    with out.otherwise():
        write_phases(context, place)


def _last_tile(place: Place, axis: str) -> dict[int, Index] | None:
    """The loops around the tile where the one tile that overhangs `axis` begins; None where there may be others."""
    nest = place.nest
    own = [(p, loop) for p, loop in enumerate(nest.loops) if loop.axis == axis]
    outer = [(p, loop) for p, loop in own if p < nest.tile_depth]
    span = 1 + sum((loop.extent - 1) * loop.stride for p, loop in own if p >= nest.tile_depth)
    kinds = [loop.kind for _, loop in outer]
    if nest.is_open(axis) or any(kind != SERIAL for kind in kinds[1:]) or not {*kinds} <= {GRID, SERIAL}:
        return None
    found, left = {}, nest.extents[axis] // span * span
    for p, loop in outer:
        if loop.stride % span:
            return None
        at, left = divmod(left, loop.stride)
        found[p] = Index((), at)
    return found


def _write_windows(context: Context, place: Place) -> None:
    """The tile, twice where its windows are of lines that outputs share (see `shares_lines`) and may lie wholly inside
    their tensors: without these tests, which would be a mask for each line, and with them."""
    tests = dict(_window_tests(context, place))
    held = {bound: test for bound, test in tests.items() if test is None or _may_hold(test, context.out)}
    condition = conjunction(test for test in held.values() if test is not None)
    if condition is None:
        write_phases(context, place)
        return
    with context.out.when(condition):
        write_phases(context, place.holding(held))
    with context.out.otherwise():
        write_phases(context, place)


def _window_tests(context: Context, place: Place) -> Iterator[tuple[Within, Inside | None]]:
    """The bounds of shared lines, with what makes each hold all over the tile (None: nothing)."""
    out, nest = context.out, context.nest
    if not out.masked_loads:
        return
    inner = {p: Index() for p in range(nest.tile_depth, len(nest.loops))}
    first = place.bind(inner)
    for load in nest.op.loads():
        if not load.guard or not masked_lines(out, nest, load):
            continue
        for bound in load.guard:
            if not bound.index.is_affine or any(c < 0 for _, c in bound.index.terms):
                continue
            reach = sum(
                (loop.extent - 1) * loop.stride * bound.index.coefficient(loop.axis)
                for loop in nest.loops[nest.tile_depth :]
            )
            at = bound.index.substitute(first.axes).simplify(out.ranges)
            low, high = at.bounds(out.ranges)
            above = bound.low if low < bound.low else None
            below = bound.high - reach if high >= bound.high - reach else None
            yield bound, None if above is None and below is None else Inside(at, above, below)


def _may_hold(test: Inside, out: Writer) -> bool:
    low, high = test.index.bounds(out.ranges)
    return (test.low is None or high >= test.low) and (test.high is None or low < test.high)


def _tile_fits(place: Place, axis: str, out: Writer) -> Inside | None:
    """The first and last point of the tile along `axis` are within the extent (of all threads' tiles, if
    they must agree)."""
    nest = place.nest
    uniform = is_uniform(nest, nest.tile_depth - 1)
    first, reached = nest.start(axis), 0
    for p, loop in enumerate(nest.loops):
        if loop.axis != axis:
            continue
        if p >= nest.tile_depth or (uniform and loop.kind in PARALLEL):
            reached += (loop.extent - 1) * loop.stride
        else:
            first = first + place.point[p] * loop.stride
    first = first.simplify(out.ranges)
    below = nest.extents[axis] - reached
    if nest.is_open(axis):
        first, below = first - nest.size(axis), -reached
        return Inside(first, None, below) if first.bounds(out.ranges)[1] >= below else None
    low, high = first.bounds(out.ranges)
    above = 0 if low < 0 else None
    if above is None and high < below:
        return None
    return Inside(first, above, below if high >= below else None)


def write_phases(context: Context, place: Place) -> None:
    """Every reduction, then the result; scans and results together."""
    op = context.nest.op
    if op.scans:
        write_scans(context, place)
        return
    totals: dict[str, tuple[Registers, ...]] = {}
    kept = allocate_kept_rows(context)
    for number, reduction in enumerate(op.reductions):
        totals[reduction.name] = _reduce(context, place, reduction, number, totals, kept)
    write_result(context, place, totals, kept)


def _reduce(
    context: Context, place: Place, reduction: Reduction, number: int, totals: Totals, kept: Kept
) -> tuple[Registers, ...]:
    """One reduction over all its loops; its results over the tile's spatial loops."""
    out, nest = context.out, context.nest
    made, bodies = phase_values(nest, number, reduction.bodies)
    used = loads(*(value for _, value in made), *bodies)
    phase = Phase(tile_loops(nest, "spatial", "reduce", "row"), nest.numbered(used), nest.innermost, True, nest.lane)
    if nest.instruction is not None:
        return reduce_matrices(context, place, reduction)
    levels = reductions.make_levels(out, nest, reduction)
    acc = levels[-1]
    reductions.start(out, place, levels[0])
    if acc.in_order is not None:
        start_places(out, scope_of(context, place, nest.lane, totals, {}), acc)

    def point_scope(here: Place) -> Scope:
        names = _keep(context, here, number, made, totals, kept)
        return scope_of(context, here, nest.lane, totals, names)

    def point(here: Place) -> None:
        scope = point_scope(here)
        reductions.update(out, scope, acc, evaluate_all(out, scope, bodies))
        if number == len(nest.op.reductions) - 1:
            if nest.stage.prefetch >= 0 and part is None and not prefetches_lines(nest.stage):
                fetch_next(context, here, used)
            if nest.stage.store.prefetch_distance and not asks_for_tile(nest.stage):
                ask_for_result(context, here)

    part = panel_part(nest.stage)
    if part is not None:
        phase = replace(phase, before=((part.depth, lambda here: fetch_next(context, here, used, part)),))
    elif prefetches_lines(nest.stage):
        phase = replace(phase, before=((asking_depth(nest.stage), lambda here: prefetch_lines(context, here)),))
    if asks_for_tile(nest.stage):
        block = (nest.stage.accumulator.flush[-1], partial(ask_for_tile, context))
        phase = replace(phase, before=(*phase.before, block))
    if acc.tests is not None:
        together = lambda here: look_for_nan(out, here, acc.tests)
        phase = replace(phase, after=((acc.separate[0], together), *phase.after))
    phase = _in_levels(context, phase, levels)
    if nest.stage.accumulator.gathered:
        _gather(context, place, acc, phase, point_scope, bodies[0])
    else:
        descend(context, place, nest.tile_depth, phase, point)
    scope = scope_of(context, place, nest.lane, totals, {})
    first = first_trip(place, out) if nest.stage.accumulator.carry else None
    output = once_per_result(context, output_access(place, out)) if first is not None else None
    return reductions.finish(out, scope, levels[0], context.threads, output, first)


def _in_levels(context: Context, phase: Phase, levels: tuple[reductions.Accumulators, ...]) -> Phase:
    """The walk with accumulators inside the outermost ones started and combined into those outside."""
    out, scope_at = context.out, lambda here: scope_of(context, here, context.nest.lane, {}, {})
    for depth, outer, inner in zip(context.nest.stage.accumulator.flush, levels[:-1], levels[1:], strict=False):
        begin = lambda here, inner=inner: reductions.start(out, here, inner)
        end = lambda here, inner=inner, outer=outer: reductions.flush(out, scope_at(here), inner, outer)
        phase = replace(phase, before=(*phase.before, (depth, begin)), after=((depth, end), *phase.after))
    return phase


def _gather(
    context: Context,
    place: Place,
    acc: reductions.Accumulators,
    phase: Phase,
    scope_at: Callable[[Place], Scope],
    element: Value,
) -> None:
    """The walk over a row whose points go into their pair together."""
    out, nest = context.out, context.nest
    depth = nest.stage.accumulator.gathered[0]
    held: list[Registers] = []

    def point(here: Place) -> None:
        scope = scope_at(here)
        gathering.take(out, scope, acc, held[-1], evaluate(out, scope, element))

    def together(here: Place) -> None:
        gathering.put_together(out, scope_of(context, here, None, {}, {}), acc, held[-1])

    begin = lambda here: held.append(gathering.hold(out, here, acc))
    walk = replace(phase, before=(*phase.before, (depth, begin)), after=((depth, together), *phase.after))
    descend(context, place, nest.tile_depth, walk, point)


def _keep(
    context: Context, here: Place, number: int, made: tuple[tuple[KeptRow, Value], ...], totals: Totals, kept: Kept
) -> dict[str, Expr]:
    """The kept rows' values at this point, those of this phase computed first."""
    names = kept_values(context, here, kept, number, context.nest.lane)
    for kept_row, value in made:
        scope = scope_of(context, here, context.nest.lane, totals, names)
        fresh = context.out.atom("value", spread(evaluate(context.out, scope, value), context.nest.lane))
        keep(context, here, kept, kept_row, fresh)
        names[kept_row.name] = fresh
    return names
