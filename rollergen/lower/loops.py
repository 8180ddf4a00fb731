"""Loops opened one by one; copies and fragments at the depth where they belong; where results lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollergen.expr.index import Index, weighted_sum
from rollergen.expr.values import Load, Partial
from rollergen.hal.dataclass import dataclass
from rollergen.lower.arithmetic import register_dtype
from rollergen.lower.boxes import write_boxes
from rollergen.lower.context import Context
from rollergen.lower.copies import Staged, copies_at, in_registers, is_shared, read_load, varying
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Broadcast, Expr, Name, position
from rollergen.lower.fills import fill_private, fill_registers, fill_shared
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.pipelines import write_pipeline
from rollergen.lower.place import Place, Registers, Scope, clipped, is_uniform, trip_count, whole_iterations
from rollergen.lower.realigned import fill_realigned
from rollergen.lower.reductions import loops_over
from rollergen.lower.windows import fill_block_window, fill_window
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import SERIAL, UNROLL, Copy

Inner = Callable[[Place], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One walk over loops: which of them run, which loads it uses (by number), where it ends.

    ``grouped``: a loop that is not run because results along it are stored as vectors.  ``before``, ``after``:
    depths, and what is done there before anything deeper is written, and once everything is.  ``together``: threads
    fetch fragments of memory tiles together, where the loops end.
    """

    loops: frozenset[int]
    loads: Mapping[int, Load]
    stop: int
    fragments: bool
    lane: Lane | None
    grouped: int | None = None
    before: tuple[tuple[int, Inner], ...] = ()
    after: tuple[tuple[int, Inner], ...] = ()
    together: bool = False


def descend(context: Context, place: Place, depth: int, phase: Phase, inside: Inner) -> None:
    """From `depth` to the end of the phase: copies, fragments, the next loop; innermost ``inside``."""
    if context.nest.overlapping:
        place = overlapped(context, place, depth)
    if depth == context.nest.asks_at and (depth > context.nest.tile_depth or phase.stop == depth):
        prefetch_output(context, place)
    if depth in context.nest.copies and (phase.fragments is False or depth > context.nest.tile_depth):
        place = make_copies(context, place, depth, phase)
    if phase.fragments and not phase.together:
        place = make_fragments(context, place, depth, phase)
    _done_at(depth, phase.before, place)
    if depth == phase.stop:
        inside(place)
    elif depth not in phase.loops:
        descend(context, place, depth + 1, phase, inside)
    else:
        open_loop(context, place, depth, phase, inside)
    _done_at(depth, phase.after, place)


def _done_at(depth: int, every: tuple[tuple[int, Inner], ...], place: Place) -> None:
    for at, what in every:
        if at == depth:
            what(place)


def prefetch_output(context: Context, place: Place) -> None:
    """Prefetches the lines in which the tile's vectors begin `Store.prefetch_distance` iterations later."""
    out, nest = context.out, context.nest
    last = max(p for p, loop in enumerate(nest.loops) if loop.kind == SERIAL)
    later = place.bind({last: place.point[last] + nest.stage.store.prefetch_distance})
    rows = tuple(p for p in nest.positions("spatial", after=last + 1) if nest.loops[p].kind == UNROLL)
    if nest.lane_position is not None:
        later = later.bind({nest.lane_position: Index()})
    with loops_over(out, later, rows):
        access = output_access(later, out)
        out.prefetch_line(access.pointer, access.offset, writing=True)


def overlapped(context: Context, place: Place, depth: int) -> Place:
    """The place of a tile that ends with its axis: the last one begins earlier.

    It applies once all loops are open that say where a tile begins.
    """
    out, nest = context.out, context.nest
    for axis, (inside, side) in nest.overlapping.items():
        if depth < inside or axis in place.back:
            continue
        outer = weighted_sum([(place.point[p], x.stride) for p, x in enumerate(nest.loops[:inside]) if x.axis == axis])
        beyond = (outer + (side - nest.extents[axis])).simplify(out.ranges)
        low, high = beyond.bounds(out.ranges)
        back = out.integer(f"{axis}_back", clipped(position(beyond, out.ranges), low, high, high), (0, side - 1))
        place = place.beginning_earlier(axis, back)
    return place


def open_loop(context: Context, place: Place, p: int, phase: Phase, inside: Inner) -> None:
    """Loop `p` around everything deeper; the tiles of its pipelined copies are fetched ahead."""
    out, nest = context.out, context.nest
    loop, variable = nest.loops[p], nest.variables[p]
    inner = lambda here: descend(context, here, p + 1, phase, inside)
    if loop.kind != SERIAL:
        with out.loop(variable, loop.extent, (0, loop.extent - 1), loop.kind == UNROLL):
            inner(place)
        return
    count = trip_count(place, p, is_uniform(nest, p), out.ranges)
    if not isinstance(count, int):
        count = out.let(f"{variable}_count", count)
    due = copies_at(nest, p + 1)
    pipelined = [copy for copy in due if _is_multibuffered(nest, copy) and copy.load in phase.loads]
    if pipelined:
        (write_boxes if nest.boxes else write_pipeline)(context, place, p, count, pipelined, inner)
        return
    bounds = (0, loop.extent - 1)
    whole = whole_iterations(place, p, out)
    if whole is not None:
        with out.loop(variable, whole, bounds):
            inner(place.knowing([loop.axis]).running_full(loop.axis))
    with out.loop(variable, count, bounds, start=0 if whole is None else whole):
        inner(place)


def _is_multibuffered(nest: Nest, copy: Copy) -> bool:
    return copy.depth > 1 and is_shared(copy, nest)


def make_copies(context: Context, place: Place, depth: int, phase: Phase) -> Place:
    """The copies made at this depth for the phase's loads, memory before registers."""
    out, nest = context.out, context.nest
    due = [c for c in copies_at(nest, depth) if c.load in phase.loads]
    if not due:
        return place
    memory = [c for c in due if not in_registers(c, nest) and not _is_pipelined(place, nest, c)]
    shared = [c for c in memory if is_shared(c, nest)]
    if shared and (depth > nest.first_inner or any(c in context.filled for c in shared)):
        out.barrier()
    for copy in memory:
        load, staged = nest.load(copy), context.buffers[copy]
        if copy in shared:
            context.filled.add(copy)
        if copy.window:
            fill_block_window(out, place, staged, load)
        elif copy in shared:
            fill = fill_realigned if copy.realigned else fill_shared
            fill(out, place, staged, load, context.threads.thread, context.step)
        else:
            fill_private(out, place, staged, load)
    if shared:
        out.barrier(products=nest.products)
    for copy in memory:
        place = place.with_source(nest.load(copy), context.buffers[copy])
    for copy in due:
        if in_registers(copy, nest):
            load = nest.load(copy)
            filled = fill_window if copy.window else fill_registers
            place = place.with_source(load, filled(out, place, copy, load))
    return place


def _is_pipelined(place: Place, nest: Nest, copy: Copy) -> bool:
    source = place.source(nest.load(copy))
    return isinstance(source, Staged) and source.copy == copy


def make_fragments(context: Context, place: Place, depth: int, phase: Phase) -> Place:
    """Loads whose place is here, fetched once for all loops inside that do not change them.

    A load is fetched inside the innermost serial loop, as deep as only loops that change it lie
    outside; loops inside that change it make its registers an array.
    """
    nest = context.nest
    for number, load in phase.loads.items():
        if isinstance(place.sources.get(number), Registers) or nest.deepest.get(number, 0) > depth:
            continue
        on = varying(nest, place, load)
        if phase.grouped in on or _fragment_depth(nest, phase, on, depth) != depth:
            continue
        inner = tuple(p for p in sorted(on) if p in phase.loops and p >= depth)
        place = place.with_source(load, _fetch_fragment(context, place, load, inner, phase.lane))
    return place


def _fragment_depth(nest: Nest, phase: Phase, on: frozenset[int], now: int) -> int:
    """Where a load that varies `on` these loops is fetched; never before `now`."""
    inside = sorted(phase.loops)
    serial = [p for p in inside if nest.loops[p].kind == SERIAL]
    depth = serial[-1] + 1 if serial else nest.tile_depth
    for p in inside:
        if p < depth:
            continue
        if p not in on:
            break
        depth = p + 1
    return max(depth, now)


def _fetch_fragment(context: Context, place: Place, load: Load, inner: tuple[int, ...], lane: Lane | None) -> Registers:
    out, nest = context.out, context.nest
    wish = load.buffer.name.lower()
    if not inner:
        value = spread(read_load(out, place, load, lane), lane)
        name = value.name if isinstance(value, Name) else out.let(wish, value).name
        return Registers(name, (), value.dtype, value.lanes)
    lanes = lane.width if lane else 1
    shape = tuple(nest.loops[p].extent for p in inner)
    dtype = register_dtype(load.dtype)
    registers = Registers(out.register(wish, dtype, shape, lanes), tuple(((p, 1),) for p in inner), dtype, lanes)
    with loops_over(out, place, inner):
        out.assign(place.element(registers), spread(read_load(out, place, load, lane), lane))
    return registers


def spread(value: Expr, lane: Lane | None) -> Expr:
    return Broadcast(value, lane.width) if lane is not None and value.lanes == 1 else value


def tile_loops(nest: Nest, *roles: str) -> frozenset[int]:
    return frozenset(nest.positions(*roles, after=nest.tile_depth))


def scope_of(
    context: Context,
    place: Place,
    lane: Lane | None,
    totals: Mapping[str, tuple[Registers, ...]],
    kept: Mapping[str, Expr],
) -> Scope:
    """Leaves of values at a point: loads from registers (or memory), partial results, kept rows."""

    def load(node: Load) -> Expr:
        return spread(read_load(context.out, place, node, lane), lane)

    def partial(node: Partial) -> Expr:
        return place.element(totals[node.name][node.component])

    return Scope(place, lane, load, partial, kept)


def output_access(place: Place, out: Writer) -> Access:
    """The access to the point's result, with the tests under which it may be touched."""
    nest = place.nest
    op = nest.op
    axes = [axis for axis, _ in nest.stage.guards if nest.roles[axis] != "reduce" and place.unsure(axis)]
    bounds = (*(place.axis_test(axis) for axis in axes), *op.where)
    offset = op.stored().offset().substitute(place.axes).simplify(out.ranges)
    pointer, size, missing = nest.parameters[op.output.name], op.output.elements, nest.missing(op.output)
    return Access(pointer, offset, place.tests(bounds, out.ranges), elements=size, missing=missing)
