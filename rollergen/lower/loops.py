"""The nest of one stage: loops opened one by one, copies made at their depth, phases in turn.

outer loops, copies on the way
  tile:  (peel: whole | with tests)
    each reduction:  start, loops { copies, fragments, update }, finish
    result:          spatial loops { copies, fragments, store }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from rollergen.expr.definition import Reduction
from rollergen.expr.index import Index, linear, weighted_sum
from rollergen.expr.values import Load, Partial, Value, Var, loads
from rollergen.lower import reductions
from rollergen.lower.access import Access, has_edge, put
from rollergen.lower.arithmetic import Scope, evaluate, register_dtype, stored
from rollergen.lower.copies import (
    Prefetch,
    Staged,
    copies_at,
    deposit,
    fill_private,
    fill_registers,
    fill_shared,
    in_registers,
    is_shared,
    make_prefetch,
    next_exists,
    prefetch,
    read_load,
    stages_of,
    varying,
)
from rollergen.lower.ir import Broadcast, Build, Element, Expr, Inside, Name, Number, Operation, Position
from rollergen.lower.place import Lane, Nest, Place, Registers, clipped, conjunction, is_uniform, trip_count
from rollergen.lower.reductions import Threads
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import PARALLEL, SERIAL, UNROLL, Copy, Resident

Inner = Callable[[Place], None]


@dataclass(frozen=True)
class Context:
    """What all steps of one stage's lowering share.  ``filled``: shared buffers that are in use."""

    out: Writer
    nest: Nest
    buffers: Mapping[Copy, Staged]
    threads: Threads
    step: str
    filled: set[Copy] = field(default_factory=set)


@dataclass(frozen=True)
class Phase:
    """One walk over loops: which of them run, which loads it uses, where it ends.

    ``grouped``: a loop that is not walked because results along it are stored as vectors.  ``after``: a
    depth, and what is done there once everything deeper is written.
    """

    loops: frozenset[int]
    loads: tuple[Load, ...]
    stop: int
    fragments: bool
    lane: Lane | None
    grouped: int | None = None
    after: tuple[int, Inner] | None = None


def write_nest(context: Context) -> None:
    """The whole stage inside its grid and thread loops."""
    nest = context.nest
    outer = Phase(
        frozenset(range(nest.first_inner, nest.tile_depth)), nest.definition.loads(), nest.tile_depth, False, nest.lane
    )
    descend(context, Place.outermost(nest), nest.first_inner, outer, lambda place: write_tile(context, place))


def descend(context: Context, place: Place, depth: int, phase: Phase, inside: Inner) -> None:
    """From `depth` to the end of the phase: copies, fragments, the next loop; innermost ``inside``."""
    if phase.fragments is False or depth > context.nest.tile_depth:
        place = make_copies(context, place, depth, phase)
    if phase.fragments:
        place = make_fragments(context, place, depth, phase)
    if depth == phase.stop:
        inside(place)
    elif depth not in phase.loops:
        descend(context, place, depth + 1, phase, inside)
    else:
        open_loop(context, place, depth, phase, inside)
    if phase.after is not None and phase.after[0] == depth:
        phase.after[1](place)


def open_loop(context: Context, place: Place, p: int, phase: Phase, inside: Inner) -> None:
    """Loop `p` around everything deeper; the tiles of its pipelined copies are fetched ahead."""
    out, nest = context.out, context.nest
    loop, variable = nest.loops[p], nest.variables[p]
    count = trip_count(place, p, is_uniform(nest, p), out.ranges)
    if not isinstance(count, int):
        count = out.let(f"{variable}_count", count)
    ahead = [
        c
        for c in copies_at(nest, p + 1)
        if c.depth > 1 and loop.kind == SERIAL and is_shared(c, nest) and nest.load(c) in phase.loads
    ]
    bounds = (0, loop.extent - 1)
    if not ahead:
        whole = _whole_iterations(place, p, out)
        if whole is not None:
            with out.loop(variable, whole, bounds):
                descend(context, place.knowing([loop.axis]), p + 1, phase, inside)
        with out.loop(variable, count, bounds, loop.kind == UNROLL, start=0 if whole is None else whole):
            descend(context, place, p + 1, phase, inside)
        return
    double = [c for c in ahead if c.depth == 2]
    ring = [c for c in ahead if c.depth > 2]
    first = place.bind({p: Index()})
    _fill_ring_ahead(context, first, ring, p, count)
    fetched = _fetch_first(context, first, double)
    with out.loop(variable, count, bounds) as at:
        if ring:
            out.barrier(pending=min(c.depth for c in ring) - 2)
            _fill_ring(context, place, ring, p, at, count)
        following = place.bind({p: at + 1})
        if double:
            with out.when(next_exists(at, 1, count)):
                for one in fetched:
                    prefetch(out, following, one, context.threads.thread, context.step)
        inner = place
        for copy in ahead:
            staged = stages_of(context.buffers[copy], at, out.ranges)
            inner = inner.with_source(nest.load(copy), staged)
        descend(context, inner, p + 1, phase, inside)
        if double:
            with out.when(next_exists(at, 1, count)):
                for one in fetched:
                    target = stages_of(one.staged, at + 1, out.ranges)
                    deposit(out, following, one, target, context.threads.thread, context.step)
            out.barrier()
    if ring:
        out.barrier()


def _whole_iterations(place: Place, p: int, out: Writer) -> int | Expr | None:
    """How many iterations of serial loop `p` lie wholly within its axis; None where the loop stays one.

    The innermost serial loop of the lanes' axis is written twice where that axis is masked: first the
    iterations in which every vector is whole, without tests, then the tail.
    """
    nest, loop = place.nest, place.nest.loops[p]
    deeper = [inner for inner in nest.loops[p + 1 :] if inner.axis == loop.axis]
    in_tile = p >= nest.tile_depth or not nest.definition.reductions
    if loop.kind != SERIAL or nest.lane_axis != loop.axis or not place.unsure(loop.axis) or nest.threads > 1:
        return None
    if not in_tile or any(inner.kind == SERIAL for inner in deeper):
        return None
    outer = ((place.point[q], nest.loops[q].stride) for q in range(p) if nest.loops[q].axis == loop.axis)
    reach = sum((inner.extent - 1) * inner.stride for inner in deeper)
    left = (weighted_sum(outer) * -1 + (nest.extents[loop.axis] - 1 - reach + loop.stride)).simplify(out.ranges)
    low, high = left.bounds(out.ranges)
    if not left.terms:
        return max(0, min(loop.extent, left.const // loop.stride))
    number = clipped(Operation("div", (Position(left), Number(loop.stride, "int32")), "int32"),
                     low // loop.stride, high // loop.stride, loop.extent)  # fmt: skip
    return out.let(f"{nest.variables[p]}_whole", number)


def _fetch_first(context: Context, first: Place, copies: list[Copy]) -> list[Prefetch]:
    """The first tile of every double-buffered copy in place, and registers for the next ones."""
    out, nest = context.out, context.nest
    fetched = []
    for copy in copies:
        load, staged = nest.load(copy), context.buffers[copy]
        one = make_prefetch(out, nest, staged, load)
        prefetch(out, first, one, context.threads.thread, context.step)
        deposit(out, first, one, staged, context.threads.thread, context.step)
        fetched.append(one)
    if copies:
        out.barrier()
    return fetched


def _fill_ring_ahead(context: Context, first: Place, copies: list[Copy], p: int, count: int | Expr) -> None:
    """All but the last buffer of every ring, as far as there are tiles."""
    for copy in copies:
        for tile in range(copy.depth - 1):
            with context.out.when(next_exists(Index.of(tile), 0, count)):
                _fill_stage(context, first.bind({p: Index.of(tile)}), copy, Index.of(tile))


def _fill_ring(context: Context, place: Place, copies: list[Copy], p: int, at: Index, count: int | Expr) -> None:
    for copy in copies:
        with context.out.when(next_exists(at, copy.depth - 1, count)):
            _fill_stage(context, place.bind({p: at + (copy.depth - 1)}), copy, at + (copy.depth - 1))


def _fill_stage(context: Context, place: Place, copy: Copy, tile: Index) -> None:
    staged = stages_of(context.buffers[copy], tile, context.out.ranges)
    load = context.nest.load(copy)
    fill_shared(context.out, place, staged, load, context.threads.thread, context.step)


# Copies and fragments --------------------------------------------------------------------------


def make_copies(context: Context, place: Place, depth: int, phase: Phase) -> Place:
    """The copies made at this depth for the phase's loads, memory before registers."""
    out, nest = context.out, context.nest
    due = [c for c in copies_at(nest, depth) if nest.load(c) in phase.loads]
    memory = [c for c in due if not in_registers(c, nest) and not _is_pipelined(place, nest, c)]
    shared = [c for c in memory if is_shared(c, nest)]
    if shared and (depth > nest.first_inner or any(c in context.filled for c in shared)):
        out.barrier()
    for copy in memory:
        load, staged = nest.load(copy), context.buffers[copy]
        if copy in shared:
            context.filled.add(copy)
            fill_shared(out, place, staged, load, context.threads.thread, context.step)
        else:
            fill_private(out, place, staged, load)
    if shared:
        out.barrier()
    for copy in memory:
        place = place.with_source(nest.load(copy), context.buffers[copy])
    for copy in due:
        if in_registers(copy, nest):
            load = nest.load(copy)
            place = place.with_source(load, fill_registers(out, place, copy, load))
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
    for load in phase.loads:
        if isinstance(place.source(load), Registers) or _has_deeper_copy(nest, load, depth):
            continue
        on = varying(nest, place, load)
        if phase.grouped in on or _fragment_depth(nest, phase, on, depth) != depth:
            continue
        inner = tuple(p for p in sorted(on) if p in phase.loops and p >= depth)
        place = place.with_source(load, _fetch_fragment(context, place, load, inner, phase.lane))
    return place


def _has_deeper_copy(nest: Nest, load: Load, depth: int) -> bool:
    return any(nest.load(copy) == load and copy.at_loop > depth for copy in nest.stage.copies)


def _fragment_depth(nest: Nest, phase: Phase, on: frozenset[int], now: int) -> int:
    """Where a load that varies `on` these loops is fetched; never before `now`."""
    walked = sorted(phase.loops)
    serial = [p for p in walked if nest.loops[p].kind == SERIAL]
    depth = serial[-1] + 1 if serial else nest.tile_depth
    for p in walked:
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
        value = _spread(read_load(out, place, load, lane), lane)
        name = value.name if isinstance(value, Name) else out.let(wish, value).name
        return Registers(name, (), value.dtype, value.lanes)
    lanes = lane.width if lane else 1
    shape = tuple(nest.loops[p].extent for p in inner)
    dtype = register_dtype(load.dtype)
    registers = Registers(out.register(wish, dtype, shape, lanes), tuple(((p, 1),) for p in inner), dtype, lanes)
    with reductions.loops_over(out, place, inner):
        out.assign(place.element(registers), _spread(read_load(out, place, load, lane), lane))
    return registers


def _spread(value: Expr, lane: Lane | None) -> Expr:
    return Broadcast(value, lane.width) if lane is not None and value.lanes == 1 else value


# Tiles -----------------------------------------------------------------------------------------


def write_tile(context: Context, place: Place) -> None:
    """The register tile, twice where its axes are peeled: whole, and with tests."""
    nest, out = context.nest, context.out
    peeled = [axis for axis, kind in nest.stage.guards if kind == "peel"]
    whole = place.knowing(peeled)
    condition = conjunction(test for test in (_tile_fits(place, axis, out) for axis in peeled) if test)
    if condition is None:
        write_phases(context, whole)
        return
    with out.when(condition):
        write_phases(context, whole)
    with out.otherwise():
        write_phases(context, place)


def _tile_fits(place: Place, axis: str, out: Writer) -> Inside | None:
    """The last point of the tile along `axis` is within the extent (of all threads' tiles, if they
    must agree)."""
    nest = place.nest
    uniform = is_uniform(nest, nest.tile_depth - 1)
    last = Index()
    for p, loop in enumerate(nest.loops):
        if loop.axis != axis:
            continue
        reach = p >= nest.tile_depth or (uniform and loop.kind in PARALLEL)
        last = last + (Index.of(loop.extent - 1) if reach else place.point[p]) * loop.stride
    last = last.simplify(out.ranges)
    extent = nest.extents[axis]
    return None if last.bounds(out.ranges)[1] < extent else Inside(last, None, extent)


def write_phases(context: Context, place: Place) -> None:
    """Every reduction, then the result."""
    definition = context.nest.definition
    totals: dict[str, tuple[Registers, ...]] = {}
    kept = _allocate_residents(context)
    for number, reduction in enumerate(definition.reductions):
        totals[reduction.name] = _reduce(context, place, reduction, number, totals, kept)
    _write_result(context, place, totals, kept)


def _walked(nest: Nest, *roles: str) -> frozenset[int]:
    return frozenset(nest.positions(*roles, after=nest.tile_depth))


def _scope(
    context: Context,
    place: Place,
    lane: Lane | None,
    totals: Mapping[str, tuple[Registers, ...]],
    kept: Mapping[str, Expr],
) -> Scope:
    """Leaves of values at a point: loads from registers (or memory), partial results, residents."""

    def load(node: Load) -> Expr:
        return _spread(read_load(context.out, place, node, lane), lane)

    def partial(node: Partial) -> Expr:
        return place.element(totals[node.name][node.component])

    return Scope(place, lane, load, partial, kept)


# Residents -------------------------------------------------------------------------------------


def _allocate_residents(context: Context) -> dict[str, Registers]:
    """A private array for each resident, over the loops inside the tile."""
    nest = context.nest
    positions = nest.positions("spatial", "row", after=nest.tile_depth)
    shape = tuple(nest.loops[p].extent for p in positions)
    lanes = nest.lane.width if nest.lane else 1
    kept = {}
    for resident in nest.stage.residents:
        dtype = register_dtype(resident.value.dtype)
        name = context.out.register(resident.name, dtype, shape, lanes)
        kept[resident.name] = Registers(name, tuple(((p, 1),) for p in positions), dtype, lanes)
    return kept


def _phase_values(
    nest: Nest, number: int, values: tuple[Value, ...]
) -> tuple[tuple[tuple[Resident, Value], ...], tuple[Value, ...]]:
    """(residents made in this phase with their values, the phase's values), both reading kept ones."""
    earlier = tuple(r for r in nest.stage.residents if r.phase < number)
    made: list[tuple[Resident, Value]] = []
    known = list(earlier)
    for resident in nest.stage.residents:
        if resident.phase == number:
            made.append((resident, _substituted(resident.value, known)))
            known.append(resident)
    return tuple(made), tuple(_substituted(value, known) for value in values)


def _substituted(value: Value, known: list[Resident]) -> Value:
    """Kept values replaced by their names, largest first (one may contain another)."""
    sized = sorted(known, key=lambda r: -_size(r.value))

    def rebuild(node: Value) -> Value:
        for resident in sized:
            if node == resident.value:
                return Var(resident.name, resident.value.dtype)
        children = node.children()
        return node.with_children(tuple(rebuild(child) for child in children)) if children else node

    return rebuild(value)


def _size(value: Value) -> int:
    return 1 + sum(_size(child) for child in value.children())


# Phases ----------------------------------------------------------------------------------------


def _reduce(
    context: Context,
    place: Place,
    reduction: Reduction,
    number: int,
    totals: Mapping[str, tuple[Registers, ...]],
    kept: Mapping[str, Registers],
) -> tuple[Registers, ...]:
    out, nest = context.out, context.nest
    made, bodies = _phase_values(nest, number, reduction.bodies)
    phase = Phase(
        _walked(nest, "spatial", "reduce", "row"),
        loads(*(value for _, value in made), *bodies),
        nest.innermost,
        True,
        nest.lane,
    )
    acc = reductions.make_accumulators(out, nest, reduction)
    split = reductions.is_split(nest, context.threads)
    first = _first_visit(place, out) if nest.stage.accumulator.carry else None
    if first is None or split:
        reductions.start(out, place, acc)
    else:
        with out.when(first):
            reductions.start(out, place, acc)
        with out.otherwise():
            reductions.resume(out, place, acc, output_access(place, out))

    def point(here: Place) -> None:
        names = {name: here.element(registers) for name, registers in kept.items()}
        for resident, value in made:
            scope = _scope(context, here, nest.lane, totals, names)
            at = here.element(kept[resident.name])
            fresh = out.atom("value", _spread(evaluate(out, scope, value), nest.lane))
            out.assign(at, fresh)
            names[resident.name] = fresh  # type: ignore[assignment]
        scope = _scope(context, here, nest.lane, totals, names)
        reductions.update(out, scope, acc, tuple(evaluate(out, scope, body) for body in bodies))

    descend(context, place, nest.tile_depth, phase, point)
    scope = _scope(context, place, nest.lane, totals, {})
    output = output_access(place, out) if first is not None else None
    return reductions.finish(out, scope, acc, context.threads, output, first)


def _outer_reductions(place: Place) -> dict[str, tuple[Index, int]]:
    """Reduce axes with loops outside the tile: what those have walked so far, and their last stride."""
    nest, found = place.nest, dict[str, tuple[Index, int]]()
    for p, loop in enumerate(nest.loops[: nest.tile_depth]):
        if nest.roles[loop.axis] == "reduce" and loop.kind in (SERIAL, UNROLL):
            walked, stride = found.get(loop.axis, (Index(), loop.stride))
            found[loop.axis] = (walked + place.point[p] * loop.stride, min(stride, loop.stride))
    return found


def _first_visit(place: Place, out: Writer) -> Expr | None:
    tests = []
    for walked, _ in _outer_reductions(place).values():
        if walked.bounds(out.ranges)[1] > 0:
            tests.append(_reduced(walked, 0, 1))
    return conjunction(tests)


def _last_visit(place: Place, out: Writer) -> Expr | None:
    tests = []
    for axis, (walked, stride) in _outer_reductions(place).items():
        low = place.nest.extents[axis] - stride
        if walked.bounds(out.ranges)[0] < low:
            tests.append(_reduced(walked, low, None))
    return conjunction(tests)


def _reduced(walked: Index, low: int, high: int | None) -> Inside:
    """``low <= walked < high``, the common factor of a single term divided out."""
    if len(walked.terms) != 1 or walked.const:
        return Inside(walked, low, high)
    factor = walked.terms[0][1]
    return Inside(Index(((walked.terms[0][0], 1),)), -(-low // factor), None if high is None else -(-high // factor))


def output_access(place: Place, out: Writer) -> Access:
    """Where the point's result lies, and the tests under which it may be touched."""
    nest = place.nest
    definition = nest.definition
    axes = [axis for axis, _ in nest.stage.guards if nest.roles[axis] != "reduce" and place.unsure(axis)]
    bounds = (*(place.axis_test(axis) for axis in axes), *definition.where)
    offset = linear(definition.target, definition.output.shape).substitute(place.axes).simplify(out.ranges)
    return Access(nest.parameters[definition.output.name], offset, place.tests(bounds, out.ranges))


def _write_result(
    context: Context, place: Place, totals: Mapping[str, tuple[Registers, ...]], kept: Mapping[str, Registers]
) -> None:
    nest, out = context.nest, context.out
    definition = nest.definition
    last = _last_visit(place, out) if nest.stage.accumulator.carry else None
    if last is None or definition.result == Partial(definition.reductions[0].name, definition.result.dtype):
        _store_all(context, place, definition.result, totals, kept)
        return
    raw = Partial(definition.reductions[0].name, definition.reductions[0].bodies[0].dtype)
    with out.when(last):
        _store_all(context, place, definition.result, totals, kept)
    with out.otherwise():
        _store_all(context, place, raw, totals, kept)


def _store_all(
    context: Context,
    place: Place,
    result: Value,
    totals: Mapping[str, tuple[Registers, ...]],
    kept: Mapping[str, Registers],
) -> None:
    """The result at every point of the tile."""
    nest, out = context.nest, context.out
    lane = None if nest.definition.reductions and nest.roles.get(nest.lane_axis or "") == "reduce" else nest.lane
    _, (value,) = _phase_values(nest, len(nest.definition.reductions), (result,))
    walked = _walked(nest, "spatial", "row")
    grouped = _grouped_loop(nest, walked, lane)
    phase = Phase(walked - {grouped}, loads(value), nest.innermost, True, lane, grouped)
    tile = _edge_tile(context, place, walked, lane)

    def scope_at(here: Place) -> Scope:
        return _scope(context, here, lane, totals, {n: here.element(r) for n, r in kept.items()})

    def point(here: Place) -> None:
        if grouped is not None:
            _store_groups(context, here, grouped, value, scope_at)
            return
        whole = stored(evaluate(out, scope_at(here), value), nest.definition.output.dtype)
        if tile is not None:
            tile.write(out, here, whole)
            return
        access = _once_per_result(context, output_access(here, out))
        put(out, access, whole, lane, nest.stage.store.streaming)

    def flush(here: Place) -> None:
        assert tile is not None
        with reductions.loops_over(out, here, tile.positions, rolled=True):
            access = _once_per_result(context, output_access(here, out))
            put(out, access, tile.read(here), lane, nest.stage.store.streaming)

    if tile is not None:
        phase = replace(phase, after=(tile.positions[0], flush))
    descend(context, place, nest.tile_depth, phase, point)


def _edge_tile(
    context: Context, place: Place, walked: frozenset[int], lane: Lane | None
) -> reductions.RegisterTile | None:
    """A detour through memory for tiles of several vectors whose stores have edges."""
    nest, out = context.nest, context.out
    serial = [p for p in walked if nest.loops[p].kind == SERIAL]
    unrolled = tuple(p for p in sorted(walked) if p > max(serial, default=-1))
    if prod(nest.loops[p].extent for p in unrolled) <= 2 or not has_edge(out, output_access(place, out), lane):
        return None
    dtype = register_dtype(nest.definition.output.dtype)
    return reductions.RegisterTile.allocate(out, nest, unrolled, dtype)


def _once_per_result(context: Context, access: Access) -> Access:
    """Where threads share a reduction, the first of them stores (each stores its part of a row)."""
    nest = context.nest
    if context.threads.count == 1 or any(role == "row" for role in nest.roles.values()):
        return access
    return replace(access, tests=(Inside(context.threads.rank, None, 1), *access.tests))


def _grouped_loop(nest: Nest, walked: frozenset[int], lane: Lane | None) -> int | None:
    """The loop along which ``vector`` results are stored at once: the innermost that is walked."""
    width = nest.stage.store.vector
    if width == 1 or lane is not None or not walked:
        return None
    p = max(walked)
    return p if nest.loops[p].extent % width == 0 else None


def _store_groups(context: Context, place: Place, p: int, value: Value, scope_at: Callable[[Place], Scope]) -> None:
    """Results along loop `p` in groups of the store's width."""
    out, nest = context.out, context.nest
    width = nest.stage.store.vector
    steps = nest.loops[p].extent // width
    variable, lane = nest.variables[p], Lane(f"element_{width}", width)
    out.ranges[lane.variable] = (0, width - 1)
    dtype = register_dtype(nest.definition.output.dtype)

    def group(base: Index) -> None:
        name = out.register("result", dtype, (width,))
        with out.loop(out.names.fresh("e"), width, (0, width - 1), unroll=True) as e:
            here = place.bind({p: base + e})
            out.assign(Element(name, (e,), dtype), stored(evaluate(out, scope_at(here), value), dtype))
        vector = Build(tuple(Element(name, (Index.of(e),), dtype) for e in range(width)))
        there = place.bind({p: base + Index.axis(lane.variable)})
        access = _once_per_result(context, output_access(there, out))
        put(out, access, vector, lane, nest.stage.store.streaming)

    if steps == 1:
        group(Index())
        return
    with out.loop(variable, steps, (0, steps - 1), unroll=True) as at:
        group(at * width)
