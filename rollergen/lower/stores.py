"""Results stored: point by point, in groups, or through a private tile where it has edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.expr.values import Partial, Value, loads
from rollergen.lower.access import Access, has_edge, put
from rollergen.lower.arithmetic import Scope, evaluate, register_dtype, stored
from rollergen.lower.context import Context
from rollergen.lower.expressions import Build, Element, Inside
from rollergen.lower.kept_rows import kept_values, phase_values
from rollergen.lower.loops import Phase, descend, scope_of, walked_loops
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.outputs import output_access
from rollergen.lower.place import Place, Registers
from rollergen.lower.reductions import RegisterTile, loops_over
from rollergen.lower.visits import last_visit
from rollergen.program.rprogram import SERIAL

Totals = Mapping[str, tuple[Registers, ...]]
Kept = Mapping[str, Registers]


def write_result(context: Context, place: Place, totals: Totals, kept: Kept) -> None:
    """The result of every output of the tile; on visits before the last one the bare partial results."""
    nest, out = context.nest, context.out
    op = nest.op
    last = last_visit(place, out) if nest.stage.accumulator.carry else None
    if last is None or op.result == Partial(op.reductions[0].name, op.result.dtype):
        _store_all(context, place, op.result, totals, kept)
        return
    raw = Partial(op.reductions[0].name, op.reductions[0].bodies[0].dtype)
    with out.when(last):
        _store_all(context, place, op.result, totals, kept)
    with out.otherwise():
        _store_all(context, place, raw, totals, kept)


def _store_all(
    context: Context,
    place: Place,
    result: Value,
    totals: Totals,
    kept: Kept,
) -> None:
    """The result at every point of the tile."""
    nest, out = context.nest, context.out
    lane = None if nest.op.reductions and nest.roles.get(nest.lane_axis or "") == "reduce" else nest.lane
    _, (value,) = phase_values(nest, len(nest.op.reductions), (result,))
    walked = walked_loops(nest, "spatial", "row")
    grouped = _grouped_loop(nest, walked, lane)
    phase = Phase(walked - {grouped}, nest.numbered(loads(value)), nest.innermost, True, lane, grouped)
    tile = _edge_tile(context, place, walked, lane)

    def scope_at(here: Place) -> Scope:
        names = kept_values(context, here, kept, len(nest.op.reductions), lane)
        return scope_of(context, here, lane, totals, names)

    def point(here: Place) -> None:
        if grouped is not None:
            _store_groups(context, here, grouped, value, scope_at)
            return
        whole = stored(evaluate(out, scope_at(here), value), nest.op.output.dtype)
        access = once_per_result(context, output_access(here, out))
        if tile is not None and has_edge(out, access, lane, storing=True):
            tile.write(out, here, whole)
            return
        put(out, access, whole, lane, nest.stage.store)

    def flush(here: Place) -> None:
        if tile is None or not has_edge(out, output_access(here, out), lane, storing=True):
            return
        with loops_over(out, here, tile.positions, rolled=True):
            access = once_per_result(context, output_access(here, out))
            put(out, access, tile.read(here), lane, nest.stage.store)

    if tile is not None:
        phase = replace(phase, after=((tile.positions[0], flush),))
    descend(context, place, nest.tile_depth, phase, point)


def _edge_tile(context: Context, place: Place, walked: frozenset[int], lane: Lane | None) -> RegisterTile | None:
    """A detour through memory for tiles of several vectors whose stores have edges."""
    nest, out = context.nest, context.out
    if lane is None:
        return None
    serial = [p for p in walked if nest.loops[p].kind == SERIAL]
    unrolled = tuple(p for p in sorted(walked) if p > max(serial, default=-1))
    if prod(nest.loops[p].extent for p in unrolled) <= 2 or not has_edge(
        out, output_access(place, out), lane, storing=True
    ):
        return None
    dtype = register_dtype(nest.op.output.dtype)
    return RegisterTile.allocate(out, nest, unrolled, dtype)


def once_per_result(context: Context, access: Access) -> Access:
    """Where threads share a reduction, the first of them touches the output (each stores its part of a row)."""
    nest = context.nest
    if context.threads.count == 1 or any(role == "row" for role in nest.roles.values()):
        return access
    return access.testing((Inside(context.threads.rank, None, 1), *access.tests))


def _grouped_loop(nest: Nest, walked: frozenset[int], lane: Lane | None) -> int | None:
    """The loop along which ``vector`` results are stored at once: the innermost that is walked."""
    width = nest.stage.store.vector
    if width == 1 or lane is not None or not walked:
        return None
    p = max(walked)
    if nest.loops[p].extent % width:
        raise ProgramError(
            f"{nest.stage.name}: results are stored {width} at a time along {nest.loops[p].axis} "
            f"in a loop of {nest.loops[p].extent}; expected a multiple"
        )
    return p


def _store_groups(context: Context, place: Place, p: int, value: Value, scope_at: Callable[[Place], Scope]) -> None:
    """Results along loop `p` in groups of the store's width."""
    out, nest = context.out, context.nest
    width = nest.stage.store.vector
    steps = nest.loops[p].extent // width
    variable, lane = nest.variables[p], Lane(f"element_{width}", width)
    out.ranges[lane.variable] = (0, width - 1)
    dtype = register_dtype(nest.op.output.dtype)

    def group(base: Index) -> None:
        name = out.register("result", dtype, (width,))
        with out.loop(out.names.fresh("e"), width, (0, width - 1), unroll=True) as e:
            here = place.bind({p: base + e})
            out.assign(Element(name, (e,), dtype), stored(evaluate(out, scope_at(here), value), dtype))
        vector = Build(tuple([Element(name, (Index((), e),), dtype) for e in range(width)]))
        there = place.bind({p: base + Index.axis(lane.variable)})
        access = once_per_result(context, output_access(there, out))
        put(out, access, vector, lane, nest.stage.store)

    if steps == 1:
        group(Index())
        return
    with out.loop(variable, steps, (0, steps - 1), unroll=True) as at:
        group(at * width)
