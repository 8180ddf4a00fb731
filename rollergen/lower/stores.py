"""Results stored: point by point, in groups, or through a private tile at edges; row values kept for later phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.expr.places import put_of
from rollergen.expr.values import Cast, Load, Partial, Value, Var, loads
from rollergen.hal.dtypes import DTYPES
from rollergen.lower.access import fetch, has_edge, put
from rollergen.lower.arithmetic import evaluate, register_dtype, stored
from rollergen.lower.boxed_stores import Target, store_in_boxes
from rollergen.lower.context import Context
from rollergen.lower.copies import read_load
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Build, Element, Expr, Inside, Pointer, Read
from rollergen.lower.ir import PRIVATE, Write
from rollergen.lower.loops import Phase, descend, output_access, scope_of, spread
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.place import Place, Registers, Scope
from rollergen.lower.prefetching import fetch_next_takes
from rollergen.lower.puts import placed
from rollergen.lower.reductions import loops_over
from rollergen.lower.register_tiles import RegisterTile
from rollergen.lower.trips import last_trip
from rollergen.lower.vectors import alignment
from rollergen.program.matrix import (
    COLUMNS,
    ROWS,
    exchanged_loops,
    exchanges,
    matrix_instruction,
    row_loop,
    tiles_across_rows,
)
from rollergen.program.rprogram import SERIAL, KeptRow
from rollergen.program.stores import read_beside

Totals = Mapping[str, tuple[Registers, ...]]
Kept = Mapping[str, Registers]


def write_result(context: Context, place: Place, totals: Totals, kept: Kept) -> None:
    """The result of every output of the tile; on passes before the last one the bare partial results."""
    nest, out = context.nest, context.out
    op = nest.op
    last = last_trip(place, out) if nest.stage.accumulator.carry else None
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
    depth: int | None = None,
) -> None:
    """The result at every point of the tile, or of one step of a scan, which begins at `depth`."""
    nest, out = context.nest, context.out
    depth = nest.tile_depth if depth is None else depth
    lane = None if nest.op.reductions and nest.roles.get(nest.lane_axis or "") == "reduce" else nest.lane
    _, (value,) = phase_values(nest, len(nest.op.reductions), (result,))
    value = _unrounded(value)
    inside = frozenset(nest.positions("spatial", "row", after=depth))
    exchanged = _exchanged(nest)
    grouped = exchanged[-1] if exchanged else _grouped_loop(nest, inside, lane)
    phase = Phase(inside - {grouped, *exchanged}, nest.numbered(loads(value)), nest.innermost, True, lane, grouped)
    tile = None if put_of(nest.op) else _edge_tile(context, place, inside, lane)

    def scope_at(here: Place) -> Scope:
        names = kept_values(context, here, kept, len(nest.op.reductions), lane)
        return scope_of(context, here, lane, totals, names)

    def point(here: Place) -> None:
        if exchanged and nest.stage.store.across_rows:
            _store_rows(context, here, exchanged, value, scope_at, single)
            return
        if exchanged:
            _store_exchanged(context, here, exchanged, value, scope_at)
            return
        if grouped is not None:
            _store_groups(context, here, grouped, value, scope_at)
            return
        if nest.stage.prefetch >= 0 and not nest.op.reductions:
            fetch_next_takes(context, here)
        single(here)

    def single(here: Place, scoped: Callable[[Place], Scope] = scope_at) -> None:
        scope = scoped(here)
        whole = stored(evaluate(out, scope, value), nest.op.output.dtype)
        access = once_per_result(context, placed(out, scope, output_access(here, out)))
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

    if nest.stage.store.boxes:
        written = lambda here, at, target: _write_group(context, here, at, exchanged, value, scope_at, target)
        store_in_boxes(context, place, written)
        return
    if tile is not None:
        phase = replace(phase, after=((tile.positions[0], flush),))
    descend(context, place, depth, phase, point)


def _unrounded(result: Value) -> Value:
    """The result but for a rounding to a float that exists in memory only, which the store does."""
    if isinstance(result, Cast) and DTYPES[result.dtype].narrow and result.x.dtype == "float32":
        return result.x
    return result


def store_tile(context: Context, place: Place, totals: Totals, depth: int) -> None:
    """The result at every point of one step of a scan, which begins at `depth`."""
    _store_all(context, place, context.nest.op.result, totals, {}, depth)


def _edge_tile(context: Context, place: Place, inside: frozenset[int], lane: Lane | None) -> RegisterTile | None:
    """A detour through memory for tiles of several vectors whose stores have edges."""
    nest, out = context.nest, context.out
    if lane is None:
        return None
    serial = [p for p in inside if nest.loops[p].kind == SERIAL]
    unrolled = tuple(p for p in sorted(inside) if p > max(serial, default=-1))
    if prod(nest.loops[p].extent for p in unrolled) <= 2 or not has_edge(
        out, output_access(place, out), lane, storing=True
    ):
        return None
    dtype = register_dtype(nest.op.output.dtype)
    return RegisterTile.allocate(out, nest, unrolled, dtype)


def once_per_result(context: Context, access: Access) -> Access:
    """The access of the one thread that touches the output where threads share a reduction.

    In stages of rows each thread stores its part of a row.
    """
    nest = context.nest
    if context.threads.count == 1 or any(role == "row" for role in nest.roles.values()):
        return access
    return access.testing((Inside(context.threads.rank, None, 1), *access.tests))


def _grouped_loop(nest: Nest, inside: frozenset[int], lane: Lane | None) -> int | None:
    """The loop along which ``vector`` results are stored at once: the innermost of the tile."""
    width = nest.stage.store.vector
    if width == 1 or lane is not None or not inside:
        return None
    p = max(inside)
    if nest.loops[p].extent % width:
        raise ProgramError(
            f"{nest.stage.name}: results are stored {width} at a time along {nest.loops[p].axis} "
            f"in a loop of {nest.loops[p].extent}; expected a multiple"
        )
    return p


Within = Callable[[Index], Place]
"""The place of an element of a vector, by its number."""


def _store_groups(context: Context, place: Place, p: int, value: Value, scope_at: Callable[[Place], Scope]) -> None:
    """Results along loop `p` in groups of the store's width."""
    out, nest = context.out, context.nest
    width = nest.stage.store.vector
    steps = nest.loops[p].extent // width

    def group(base: Index) -> None:
        element = lambda e: place.bind({p: base + e})
        _store_group(context, element, element, value, scope_at)

    if steps == 1:
        group(Index())
        return
    with out.loop(nest.variables[p], steps, (0, steps - 1), unroll=True) as at:
        group(at * width)


def _exchanged(nest: Nest) -> tuple[int, ...]:
    """The loops over tiles, threads and neighbours whose results were exchanged; none where nothing was."""
    stage = nest.stage
    one = matrix_instruction(stage, nest.device)
    return exchanged_loops(stage, one) if one is not None and (stage.store.across_rows or exchanges(stage, one)) else ()


def _store_exchanged(
    context: Context, place: Place, loops: tuple[int, ...], value: Value, scope_at: Callable[[Place], Scope]
) -> None:
    """Of `COLUMNS` tiles at a time what thread q of a row has of them: in tile j those of its neighbours in tile q that
    were thread j's.  Tile j then begins q - j tiles later than its own loop says, and as much earlier as threads q and
    j lie apart: `COLUMNS` threads lie as far apart as a tile is wide."""
    out, nest = context.out, context.nest
    tiles, steps = loops[0], nest.loops[loops[0]].extent // COLUMNS
    with out.loop(nest.variables[tiles], steps, (0, steps - 1), unroll=True) as at:
        _store_group(context, *_exchanged_places(nest, place, loops, at * COLUMNS), value, scope_at)


def _exchanged_places(nest: Nest, place: Place, loops: tuple[int, ...], tile: Index) -> tuple[Within, Within]:
    """(element, vector) of `_store_group` for the `COLUMNS` tiles from ``tile`` on."""
    tiles, thread, neighbours = loops
    own, first = nest.loops[neighbours].extent, place.point[thread] * COLUMNS

    def element(e: Index) -> Place:
        of = e // own
        return place.bind({tiles: tile + of, thread: first - of * (COLUMNS - 1), neighbours: e % own})

    return element, lambda e: place.bind({tiles: tile, thread: first, neighbours: e})


def _write_group(
    context: Context, place: Place, tile: Index, exchanged: tuple[int, ...], value: Value,
    scope_at: Callable[[Place], Scope], target: Target,
) -> None:  # fmt: skip
    """One vector of results, which leave in boxes: of tiles from ``tile`` on where they were exchanged, else of it."""
    nest = context.nest
    one = matrix_instruction(nest.stage, nest.device)
    assert one is not None
    if exchanged:
        _store_group(context, *_exchanged_places(nest, place, exchanged, tile), value, scope_at, target)
        return
    tiles, _, neighbours = exchanged_loops(nest.stage, one)
    element = lambda e: place.bind({tiles: tile, neighbours: e})
    _store_group(context, element, element, value, scope_at, target)


def _store_rows(
    context: Context, place: Place, loops: tuple[int, ...], value: Value, scope_at: Callable[[Place], Scope],
    single: Callable[[Place, Callable[[Place], Scope]], None],
) -> None:  # fmt: skip
    """Of `tiles_across_rows` at a time what thread r of a column has of them: in place t of row t what stands in place
    r, where places are tiles, or the neighbours of a thread in each of them; of tiles that are left over its own
    results.  ``single`` stores one result."""
    out, nest = context.out, context.nest
    tiles, _, neighbours = loops
    one = matrix_instruction(nest.stage, nest.device)
    assert one is not None
    row, width = row_loop(nest.stage), nest.stage.store.vector
    together = tiles_across_rows(one, width)
    steps, places = nest.loops[tiles].extent // together, ROWS // together

    def stored_vector(here: Callable[[Index], Place], summed: Callable[[Index], Callable[[Place], Scope]]) -> None:
        if width == 1:
            single(here(Index()), summed(Index()))
        else:
            _store_group(context, here, here, value, scope_at, summed=summed)

    over_tiles = out.loop(nest.variables[tiles], steps, (0, steps - 1), unroll=True)
    with over_tiles as at, out.loop(out.names.fresh("row"), ROWS, (0, ROWS - 1), unroll=True) as t:

        def standing(here: Place, number: Index, e: Index) -> Place:
            return here.bind({tiles: at * together + number // places, neighbours: number % places * width + e})

        stored_vector(
            lambda e: standing(place.bind({row: t}), place.point[row], e),
            lambda e: lambda here: replace(scope_at(here), partial=scope_at(standing(here, t, e)).partial),
        )
    for tile in range(steps * together, nest.loops[tiles].extent):
        for first in range(0, nest.loops[neighbours].extent, width):
            own = lambda e, tile=tile, first=first: place.bind({tiles: Index.of(tile), neighbours: e + first})
            stored_vector(own, lambda e: scope_at)


def _store_group(
    context: Context, element: Within, vector: Within, value: Value, scope_at: Callable[[Place], Scope],
    target: Target | None = None, summed: Callable[[Index], Callable[[Place], Scope]] | None = None,
) -> None:  # fmt: skip
    """One vector of results: each is computed at ``element`` of its number, and all are stored from ``vector`` on, or
    written to a buffer at ``target`` of its place.  ``summed``: the scopes of each number, if sums stand elsewhere."""
    out, nest = context.out, context.nest
    width = nest.stage.store.vector
    lane = Lane(f"element_{width}", width)
    out.ranges[lane.variable] = (0, width - 1)
    dtype = register_dtype(nest.op.output.dtype)
    beside = _read_beside(context, vector(Index.axis(lane.variable)), lane)
    name = out.register("result", dtype, (width,))
    with out.loop(out.names.fresh("e"), width, (0, width - 1), unroll=True) as e:
        scope = _reading((summed(e) if summed else scope_at)(element(e)), beside, e)
        out.assign(Element(name, (e,), dtype), stored(evaluate(out, scope, value), dtype))
    whole = Build(tuple([Element(name, (Index((), e),), dtype) for e in range(width)]))
    if target is not None:
        first = target(vector(Index()))
        put(out, replace(first, offset=first.offset + Index.axis(lane.variable)), whole, lane)
        return
    there = output_access(vector(Index.axis(lane.variable)), out)
    access = once_per_result(context, placed(out, scope_at(vector(Index())), there))
    put(out, access, whole, lane, nest.stage.store)


def _read_beside(context: Context, place: Place, lane: Lane) -> dict[Load, Pointer]:
    """Arrays of what is read at once for a vector of results, where the program says so."""
    out, nest, arrays = context.out, context.nest, {}
    for load in read_beside(nest.op) if nest.stage.store.vector_loads else ():
        dtype = register_dtype(load.dtype)
        whole = spread(read_load(out, place, load, lane), lane)
        bytes_of = alignment(dtype, lane.width)
        arrays[load] = out.array(f"{load.buffer.name.lower()}_beside", PRIVATE, dtype, lane.width, bytes_of)
        out.write(Write(arrays[load], Index(), whole, aligned=True))
    return arrays


def _reading(scope: Scope, arrays: Mapping[Load, Pointer], number: Index) -> Scope:
    """The scope of one element, whose loads are those of its number where these were read at once."""

    def load(node: Load) -> Expr:
        return Read(arrays[node], number, arrays[node].dtype) if node in arrays else scope.load(node)

    return replace(scope, load=load) if arrays else scope


def in_output(nest: Nest, kept_row: KeptRow) -> bool:
    """Whether the value waits where the result of its point will be written."""
    return kept_row.layer == nest.device.backing.name


def allocate_kept_rows(context: Context) -> dict[str, Registers]:
    """A private array for each kept row that does not wait in the output, over the loops inside the tile."""
    nest = context.nest
    positions = nest.positions("spatial", "reduce", "row", after=nest.tile_depth)
    shape = tuple(nest.loops[p].extent for p in positions)
    lanes = nest.lane.width if nest.lane else 1
    kept = {}
    for kept_row in nest.stage.kept_rows:
        if in_output(nest, kept_row):
            continue
        dtype = register_dtype(kept_row.value.dtype)
        name = context.out.register(kept_row.name, dtype, shape, lanes)
        kept[kept_row.name] = Registers(name, tuple(((p, 1),) for p in positions), dtype, lanes)
    return kept


def kept_values(
    context: Context, here: Place, kept: Mapping[str, Registers], phase: int, lane: Lane | None
) -> dict[str, Expr]:
    """The values kept before `phase`, at this point."""
    nest, out = context.nest, context.out
    names: dict[str, Expr] = {name: here.element(registers) for name, registers in kept.items()}
    for kept_row in nest.stage.kept_rows:
        if in_output(nest, kept_row) and kept_row.phase < phase:
            names[kept_row.name] = spread(fetch(out, output_access(here, out), lane, kept_row.name), lane)
    return names


def keep(context: Context, here: Place, kept: Mapping[str, Registers], kept_row: KeptRow, value: Expr) -> None:
    """The value put where later phases find it."""
    if in_output(context.nest, kept_row):
        put(context.out, output_access(here, context.out), value, context.nest.lane)
    else:
        context.out.assign(here.element(kept[kept_row.name]), value)


def phase_values(
    nest: Nest, number: int, values: tuple[Value, ...]
) -> tuple[tuple[tuple[KeptRow, Value], ...], tuple[Value, ...]]:
    """The (kept rows of this phase with their values, the phase's values); both read rows kept before."""
    if not nest.stage.kept_rows:
        return (), values
    earlier = tuple(r for r in nest.stage.kept_rows if r.phase < number)
    made: list[tuple[KeptRow, Value]] = []
    known = list(earlier)
    for kept_row in nest.stage.kept_rows:
        if kept_row.phase == number:
            made.append((kept_row, _substituted(kept_row.value, known)))
            known.append(kept_row)
    return tuple(made), tuple(_substituted(value, known) for value in values)


def _substituted(value: Value, known: list[KeptRow]) -> Value:
    """Kept values replaced by their names, largest first (one may contain another)."""
    return _rebuilt(value, sorted(known, key=lambda r: -_size(r.value)))


def _rebuilt(node: Value, sized: list[KeptRow]) -> Value:
    for kept_row in sized:
        if node == kept_row.value:
            return Var(kept_row.name, kept_row.value.dtype)
    children = node.children()
    return node.with_children(tuple(_rebuilt(child, sized) for child in children)) if children else node


def _size(value: Value) -> int:
    return 1 + sum(_size(child) for child in value.children())
