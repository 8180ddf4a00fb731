"""Every memory access of a stage: how many, how wide, and what the lanes' addresses cost.

Copies into a block's layer are filled by all threads together; copies into registers by each thread;
what no copy brings is read where it is used, each distinct element of the unrolled loops once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from rollergen.expr.index import FloorDiv, Index, Mod
from rollergen.expr.quick import quick
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model.block_windows import fill_services, fill_steps, read_service, reuse_of
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import Operand
from rollergen.program.model.lanes import broken_share, evaluate_lanes, lanes_apart, line_split, masks_loads
from rollergen.program.model.nest import Nest, is_batch
from rollergen.program.model.numeric import Number, ceil_div, choose, least, most, per_distinct_rows
from rollergen.program.model.wavefronts import (
    WIDEST_ACCESS_BYTES,
    digits_of_rows,
    transactions,
    wavefronts_of_rows,
)
from rollergen.program.rprogram import LANE, PARALLEL, SERIAL, UNROLL, Copy
from rollergen.program.windows import of_block, window_shape


@quick
@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One kind of access of a thread.

    ``role``: read | fill_read | fill_write | fill_past, through (see `fill_accesses`) | write | exchange
    (between threads); ``layer``: where the address lies (the backing store's name for what goes through caches);
    ``count``: of one thread in one block; ``width_bytes`` of each; ``service``: wavefronts, or transactions where the
    layer has no banks, of one access by a warp;
    ``uses``: arithmetic instructions that each value feeds (1 folds into a memory operand);
    ``split``: lines that one vector touches on average; ``gathered``: lanes accessed one by one; ``broken``: share of
    the vectors that are, because they wrap in a view or meet a bound; ``tested``: bounds that each is tested for;
    ``decoded``: divisions and remainders that each access computes anew.
    """

    load: int
    role: str
    layer: str
    count: Number
    width_bytes: Number
    service: Number = 1
    split: Number = 1
    uses: Number = 0
    gathered: bool = False
    broken: Number = 0
    tested: Number = 0
    reduces: bool = True
    decoded: Number = 0


@lru_cache(maxsize=64)
def path_layer(device: Device) -> MemoryLayer | None:
    """The layer through which a unit reads the backing store: its innermost cache."""
    return next((x for x in device.layers if not x.managed and x.scope == "unit"), None)


def block_copy(nest: Nest, load: int) -> Copy | None:
    """The copy of a load into the layer that a block shares, if it is staged."""
    for copy in nest.stage.copies:
        if copy.load == load and copy.to_layer != "registers":
            return copy
    return None


def register_copy(nest: Nest, load: int) -> Copy | None:
    for copy in reversed(nest.stage.copies):
        if copy.load == load and copy.to_layer == "registers":
            return copy
    return None


def into_registers(copy: Copy) -> bool:
    return copy.to_layer == "registers"


def fill_accesses(nest: Nest, device: Device, copy: Copy) -> tuple[Access, ...]:
    """The load and the store by which a block fills its tile, `vector` elements a thread at a time; asynchronous
    copies are one instruction, and pass the first cache (``through``) unless they are as wide as any access."""
    operand = nest.facts.loads[copy.load]
    shape = tile_shape(nest, copy, block=True)
    rounds = nest.visits(copy.at_loop) * groups_of_a_thread(nest, copy)
    width = copy.vector * operand.itemsize
    parts = pieces(nest, width)
    if of_block(copy):
        from_tensor, into_tile = fill_services(nest, device, copy, path_layer(device))
        return (
            Access(copy.load, "fill_read", copy.from_layer, rounds, width, from_tensor, tested=tests_of(nest, operand)),
            Access(copy.load, "fill_write", copy.to_layer, rounds, width, into_tile),
        )
    runs = _runs(nest, copy, shape)
    from_tensor = _fill_service(nest, device, copy, operand, shape, runs, shared=False)
    into_tile = _fill_service(nest, device, copy, operand, shape, runs, shared=True)
    decoded, tested = _decoded(nest, operand) + _dealt(nest, copy, shape), retested(nest, copy)
    if copy.asynchronous:
        past = Access(
            copy.load, "fill_past", copy.to_layer, rounds, width, into_tile, tested=tested,
            decoded=decoded,
        )  # fmt: skip
        through = Access(copy.load, "through", copy.from_layer, rounds, width, from_tensor)
        return (past,) if width == WIDEST_ACCESS_BYTES else (past, through)
    whole = copy.along == copy.order[-1]
    stores, stored = (parts, width // parts) if whole else (copy.vector, operand.itemsize)
    return (
        Access(copy.load, "fill_read", copy.from_layer, rounds * parts, width // parts, from_tensor,
               tested=tested, decoded=decoded),
        Access(copy.load, "fill_write", copy.to_layer, rounds * stores, stored, into_tile),
    )  # fmt: skip


def fill_groups(nest: Nest, copy: Copy) -> Number:
    """Groups of `vector` elements in the tile that a block fills together."""
    shape = tile_shape(nest, copy, block=True)
    along = copy.order.index(copy.along)
    groups = ceil_div(shape[along], copy.vector)
    for d, extent in enumerate(shape):
        if d != along:
            groups = groups * extent
    return groups


def groups_of_a_thread(nest: Nest, copy: Copy) -> Number:
    """Groups that the busiest thread moves: whole runs of them."""
    if of_block(copy):
        return fill_steps(nest, copy)
    run = prod(copy.runs) // copy.vector if copy.runs else 1
    return ceil_div(fill_groups(nest, copy), nest.threads * run) * run


def _dealt(nest: Nest, copy: Copy, shape: tuple[Number, ...]) -> Number:
    """Divisions and remainders that tell where in the tile each group of a thread lies: none where the groups of a row
    are a multiple or a divisor of the threads, for then the groups of a thread lie at constant distances."""
    if nest.lockstep == 1 or copy.runs:
        return 0
    groups = ceil_div(shape[copy.order.index(copy.along)], copy.vector)
    even = (nest.threads % groups == 0) | (groups % nest.threads == 0)
    return choose(even, 0, 2)


def _decoded(nest: Nest, operand: Operand) -> Number:
    """Divisions and remainders in the operand's place that a step of a serial loop changes: the others, and those
    whose divisor the step is a multiple of, are computed once before the loop."""
    if nest.lockstep == 1:
        return 0
    total: Number = 0
    for atom in _divided(operand.offset):
        total = total + _changes(nest, atom)
    return total


def _changes(nest: Nest, atom: FloorDiv | Mod) -> Number:
    """1 where a step of a serial loop changes more of `atom` than a constant that it adds, else 0."""
    changes: Number = 0
    for term, coefficient in atom.index.terms:
        if not isinstance(term, str):
            stepped = any(nest.loops[p].axis in term.index.axes() for p in nest.positions(SERIAL))
            changes = most(changes, 1 if stepped and isinstance(term, FloorDiv) else _changes(nest, term))
            continue
        for p in nest.positions(SERIAL):
            if nest.loops[p].axis == term:
                changes = most(changes, choose(coefficient * nest.loops[p].stride % atom.divisor != 0, 1, 0))
    return changes


def retested(nest: Nest, copy: Copy) -> Number:
    """Bounds that each access of a copy tests anew: none where these are of a window whose taps a step of the serial
    loop takes a whole number of times, for then they are tested once before the loop (if a thread has one pixel: the
    results for several do not fit the predicate registers)."""
    operand, shape = nest.facts.loads[copy.load], tile_shape(nest, copy, block=True)
    tests, masked = tests_of(nest, operand), least(_tails(nest, operand), 1)
    if nest.lockstep == 1 or not operand.guard or (type(masked) is int and masked):
        return tests
    stepped = {nest.loops[p].axis for p in nest.positions(SERIAL)}
    changes: Number = 0
    for bound in operand.guard:
        for atom, _ in bound.index.terms:
            if not isinstance(atom, str):
                changes = most(changes, _changes(nest, atom))
            elif atom in stepped:
                changes = 1
    pixels = ceil_div(ceil_div(shape[copy.order.index(copy.along)], copy.vector), nest.threads)
    return tests * choose(pixels > 1, 1, most(changes, masked))


def _divided(index: Index) -> set[FloorDiv | Mod]:
    """Every division and remainder of an axis within `index`, the outer ones not counted where inner ones say all."""
    found: set[FloorDiv | Mod] = set()
    for atom, _ in index.terms:
        if not isinstance(atom, str):
            inner = _divided(atom.index)
            found |= inner | ({atom} if any(isinstance(a, str) for a, _ in atom.index.terms) else set())
    return found


def is_uneven(nest: Nest, operand: Operand) -> bool:
    """Whether neighbours along a spatial axis may lie at varying distances: it stands in a quotient or remainder."""
    axes = {axis for one in _divided(operand.offset) for axis in one.index.axes()}
    return any(nest.spatial(axis) for axis in axes)


def pieces(nest: Nest, width_bytes: Number) -> Number:
    """Instructions of one vector: none is wider than 16 bytes on a machine of scalar threads."""
    return 1 if nest.lockstep == 1 else ceil_div(width_bytes, WIDEST_ACCESS_BYTES)


def tile_shape(nest: Nest, copy: Copy, *, block: bool) -> tuple[Number, ...]:
    """`Stage.buffer_shape` for a batch as well; of a window, its own shape."""
    known = nest.tiles.get((id(copy), block))
    if known is None:
        known = nest.tiles[id(copy), block] = _tile_shape(nest, copy, block)
    return known


def _tile_shape(nest: Nest, copy: Copy, block: bool) -> tuple[Number, ...]:
    if copy.window:
        return window_shape(nest.stage, copy)
    return tuple([nest.extent(nest.inside(axis, copy.at_loop, block=block)) for axis in copy.order])


def tile_bytes(nest: Nest, copy: Copy) -> Number:
    """Bytes of a staged tile with its padding and all its buffers."""
    shape = tile_shape(nest, copy, block=True)
    elements = shape[-1] + copy.padding
    for extent in shape[:-1]:
        elements = elements * extent
    return elements * nest.facts.loads[copy.load].itemsize * copy.depth


class _Runs(NamedTuple):
    """What neighbouring threads of a fill move: along the axes in the order ``walk`` (positions in the copy's order,
    the last fastest) runs of so many ``elements`` of each, of which the lanes of a width come to the ``first``."""

    walk: tuple[int, ...]
    elements: tuple[Number, ...]
    first: list[Number]


def _runs(nest: Nest, copy: Copy, shape: tuple[Number, ...]) -> _Runs:
    along = copy.order.index(copy.along)
    walk = (*(d for d in range(len(shape)) if d != along), along)
    elements = copy.runs or tuple(copy.vector if d == along else 1 for d in range(len(shape)))
    dealt = [ceil_div(shape[d], elements[d]) for d in walk]
    return _Runs(walk, elements, _reached(dealt, nest.lockstep))


def _fill_service(
    nest: Nest, device: Device, copy: Copy, operand: Operand, shape: tuple[Number, ...], runs: _Runs, *, shared: bool
) -> Number:
    """Service of one access of the cooperative fill, for the addresses in the tile or in the tensor."""
    target = device.layer(copy.to_layer) if shared else path_layer(device)
    if target is None or (shared and not target.banks):
        return 1
    walk, _, first = runs
    columns = [*first, least(nest.threads, nest.lockstep)]
    columns += [0, *shape[1:]] if shared else [_unit(nest, copy, copy.order[d]) for d in walk]
    count, along = len(walk), walk[-1]

    def decided(vector: int, padding: int) -> OfRows:
        elements = copy.runs or tuple(vector if d == along else 1 for d in range(count))
        width = (vector if not shared or along == count - 1 else 1) * operand.itemsize

        def service(numbers: list[np.ndarray], rows: list[np.ndarray]) -> list[float]:
            at = {d: numbers[n] * elements[d] for n, d in enumerate(walk)}
            if shared:
                addresses = _place([at[d] for d in range(count)], rows[count + 1 :], copy, vector, padding)
            else:
                coordinates = {copy.order[d]: at[d] * rows[count + 1 + n] for n, d in enumerate(walk)}
                addresses = evaluate_lanes(operand.offset, coordinates, numbers[0].shape)
            return _serve(addresses * operand.itemsize, width, target, merge=False)

        how = along, vector, copy.runs, nest.lockstep, target.transaction_bytes, target.banks, target.bank_bytes
        if shared:
            table = _tile_table(("fill", count, padding, copy.swizzle, operand.itemsize, *how))
        else:
            table = nest.facts.tables.setdefault(("fill", copy.load, copy.order, *how), {})
        return _remembered(table, _by_lanes(service, count, nest.lockstep, threads=count))

    return _per_decided(decided, (copy.vector, copy.padding if shared else 0), columns)


def _unit(nest: Nest, copy: Copy, axis: str) -> Number:
    """Axis elements between neighbouring positions of the tile."""
    inside = nest.inside(axis, copy.at_loop, block=True)
    return nest.loops[inside[-1]].stride if inside else 1


@lru_cache(maxsize=1024)
def _tile_table(key: Hashable) -> dict[Hashable, float]:
    """What was found for places within a tile: of all definitions, for it does not depend on where the tile came from
    (what does is kept beside the definition's facts)."""
    return {}


Row = tuple[int, ...]
OfRows = Callable[[list[Row]], list[float]]


def _per_decided(decided: Callable[..., OfRows], choices: tuple[Number, ...], columns: list[Number]) -> Number:
    """What ``decided(*choices)`` says of each program's row of `columns`, where the programs of a batch may differ in
    what was chosen as well."""
    if not any(type(one) is np.ndarray for one in choices):
        return per_distinct_rows(decided(*choices), columns)
    count = len(choices)

    def of_rows(rows: list[Row]) -> list[float]:
        alike: dict[Row, list[int]] = {}
        for n, row in enumerate(rows):
            alike.setdefault(row[:count], []).append(n)
        found = [0.0] * len(rows)
        for chosen, own in alike.items():
            for n, one in zip(own, decided(*chosen)([rows[n][count:] for n in own]), strict=True):
                found[n] = one
        return found

    return per_distinct_rows(of_rows, [*choices, *columns])


def _remembered(
    table: dict[Hashable, float], function: Callable[[list[Row]], list[float]],
    key: Callable[[Row], Hashable] = lambda row: row,
) -> Callable[[list[Row]], list[float]]:  # fmt: skip
    """`function` with its results kept in `table`, under the `key` of their rows."""

    def look_up(rows: list[Row]) -> list[float]:
        if len(rows) == 1:
            own = key(rows[0])
            found = table.get(own)
            if found is None:
                found = table[own] = function(rows)[0]
            return [found]
        keys = [key(row) for row in rows]
        lacking = {own: row for own, row in zip(keys, rows, strict=True) if own not in table}
        if lacking:
            table.update(zip(lacking, function(list(lacking.values())), strict=True))
        return [table[own] for own in keys]

    return look_up


def _by_lanes(
    service: Callable[[list[np.ndarray], list[np.ndarray]], Sequence[float]], count: int, lockstep: int,
    threads: int | None = None,
) -> Callable[[list[Row]], list[float]]:  # fmt: skip
    """What `service` says of rows that begin with the extents of ``count`` loops: it is given the digits of each lane
    in these (arrays [rows, lanes]) and the columns of the rows (arrays [rows, 1]), of as many lanes at a time.

    ``threads``: the column that says how many threads there are, where it is not all that the loops have."""

    def of_rows(rows: list[Row]) -> list[float]:
        alike: dict[int, list[int]] = {}
        for n, row in enumerate(rows):
            lanes = min(prod(row[:count]), lockstep, lockstep if threads is None else row[threads])
            alike.setdefault(lanes, []).append(n)
        found = [0.0] * len(rows)
        for lanes, own in alike.items():
            table = np.array([rows[n] for n in own], dtype=np.int64).reshape(len(own), -1)
            columns = [table[:, c : c + 1] for c in range(table.shape[1])]
            for n, one in zip(own, service(digits_of_rows(columns[:count], lanes), columns), strict=True):
                found[n] = one
        return found

    return of_rows


def _place(
    positions: list[np.ndarray], shape: Sequence[np.ndarray], copy: Copy, vector: int, padding: int
) -> np.ndarray:
    """Element offset in a staged tile: row-major, padded, swizzled as `Copy` says."""
    row: np.ndarray | int = 0
    for position, extent in zip(positions[:-1], shape[:-1], strict=True):
        row = row * extent + position
    column = positions[-1]
    if copy.swizzle > 1:
        column = column ^ (row % copy.swizzle) * vector
    return row * (shape[-1] + padding) + column


def _serve(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge: bool) -> list[float]:
    """Service of each row's access instruction; a vector wider than 16 bytes is several instructions."""
    parts = ceil_div(width_bytes, WIDEST_ACCESS_BYTES)
    if layer.banks:
        return [one / parts for one in wavefronts_of_rows(addresses, width_bytes, layer, merge_pairs=merge)]
    return [transactions(row, width_bytes, layer.transaction_bytes) / parts for row in addresses]


def thread_service(nest: Nest, device: Device, operand: Operand, width_bytes: Number) -> Number:
    """Service of an access to the tensor itself at each thread's own coordinates."""
    layer = path_layer(device)
    if layer is None or nest.lockstep == 1:
        return 1
    serve = lambda places, width: _serve(places, width, layer, merge=False)
    return _at_threads(nest, operand, ("thread", layer.name), width_bytes, serve)


def thread_transactions(nest: Nest, operand: Operand, line: int) -> Number:
    """Lines of ``line`` bytes that the threads of an execution width touch together, an element each, at their own
    coordinates."""
    serve = lambda places, width: [transactions(row, width, line) for row in places]
    return _at_threads(nest, operand, ("lines", line), operand.itemsize, serve)


Serve = Callable[[np.ndarray, int], Sequence[float]]
"""What is asked of byte addresses [accesses, lanes] of so many bytes each."""


def _at_threads(
    nest: Nest, operand: Operand, key: tuple[Hashable, ...], width_bytes: Number, serve: Serve
) -> Number:
    """What `serve` says of accesses of `width_bytes`; kept under `key`."""
    threads = _threads_of(nest)
    if threads is None or type(width_bytes) is np.ndarray:
        return _found_at_threads(nest, operand, key, width_bytes, serve)
    kept = nest.facts.tables.setdefault(("at", *key, width_bytes, id(operand), nest.lockstep), {})
    found = kept.get(threads)
    if found is None:
        found = kept[threads] = _found_at_threads(nest, operand, key, width_bytes, serve)
    return found


def _threads_of(nest: Nest) -> tuple[tuple[str, int, int], ...] | None:
    """(axis, extent, stride) of the loops of threads, which programs of one tile share; None for a batch."""
    if _threads_of not in nest.unbuffered:
        loops = [nest.loops[p] for p in nest.positions(*PARALLEL)]
        one = tuple([(loop.axis, loop.extent, loop.stride) for loop in loops])
        nest.unbuffered[_threads_of] = None if is_batch(tuple(loops)) else one
    return nest.unbuffered[_threads_of]  # type: ignore[no-any-return]


def _found_at_threads(
    nest: Nest, operand: Operand, key: tuple[Hashable, ...], width_bytes: Number, serve: Serve
) -> Number:
    parallel = nest.positions(*PARALLEL)
    axes = [nest.loops[p].axis for p in parallel]

    def moving(row: Row) -> tuple[tuple[str, int, int], ...]:
        """(axis, extent, stride) of the loops of threads: those of extent 1 tell nothing apart."""
        return tuple([one for one in zip(axes, row, row[len(axes) :], strict=False) if one[1] != 1])

    def decided(width: int) -> OfRows:
        def service(numbers: list[np.ndarray], rows: list[np.ndarray]) -> Sequence[float]:
            coordinates: dict[str, np.ndarray] = {}
            for axis, number, stride in zip(axes, numbers, rows[len(axes) :], strict=True):
                coordinates[axis] = coordinates.get(axis, 0) + number * stride
            shape = numbers[0].shape if numbers else (1, 1)
            return serve(evaluate_lanes(operand.offset, coordinates, shape) * operand.itemsize, width)

        table = nest.facts.tables.setdefault((*key, width, id(operand), nest.lockstep), {})
        return _remembered(table, _by_lanes(service, len(axes), nest.lockstep), moving)

    return _per_decided(decided, (width_bytes,), _telling_apart(nest, operand, parallel))


def _telling_apart(nest: Nest, operand: Operand, parallel: tuple[int, ...]) -> list[Number]:
    """Extents, then strides, of the loops of threads as far as the lanes of one execution width differ in them: the
    outer ones are cut to what lanes reach, and steps that do not move the operand are 0.  So few programs differ."""
    extents = _reached([nest.loops[p].extent for p in parallel], nest.lockstep)
    moves = [(nest.loops[p], extent) for p, extent in zip(parallel, extents, strict=True)]
    return extents + [choose(extent > 1, x.stride, 0) if x.axis in operand.axes else 0 for x, extent in moves]


def _reached(extents: Sequence[Number], lanes: int) -> list[Number]:
    """Of loops of these extents, what so many neighbours come to (the last loop is the fastest)."""
    found: list[Number] = []
    left: Number = lanes
    for extent in reversed(extents):
        found.append(least(extent, left))
        left = ceil_div(left, found[-1])
    return found[::-1]


def tile_service(nest: Nest, device: Device, copy: Copy, width_bytes: Number) -> Number:
    """Service of a read from a staged tile at each thread's own coordinates."""
    layer = device.layer(copy.to_layer)
    if not layer.banks:
        return 1
    if of_block(copy):
        return read_service(nest, device, copy)
    parallel = nest.positions(*PARALLEL)
    shape = tile_shape(nest, copy, block=True)
    columns: list[Number] = [nest.loops[p].extent for p in parallel]
    dims = []
    for p in parallel:
        axis = nest.loops[p].axis
        if axis in copy.order:
            inside = nest.inside(axis, copy.at_loop, block=True)
            dims.append(copy.order.index(axis))
            columns.append(nest.extent(inside[inside.index(p) + 1 :]))
        else:
            dims.append(-1)
            columns.append(0)
    columns += list(shape)
    itemsize = nest.facts.loads[copy.load].itemsize

    def decided(width: int, vector: int, padding: int) -> OfRows:
        def service(numbers: list[np.ndarray], rows: list[np.ndarray]) -> list[float]:
            count = len(dims)
            places = [np.zeros(numbers[0].shape if numbers else (1, 1), dtype=np.int64) for _ in shape]
            for dim, number, step in zip(dims, numbers, rows[count : 2 * count], strict=True):
                if dim >= 0:
                    places[dim] = places[dim] + number * step
            addresses = _place(places, rows[2 * count :], copy, vector, padding) * itemsize
            return _serve(addresses, width, layer, merge=True)

        how = vector, padding, copy.swizzle, layer.transaction_bytes, layer.banks, layer.bank_bytes
        key = ("tile", tuple(dims), len(shape), width, itemsize, nest.lockstep, *how)
        return _remembered(_tile_table(key), _by_lanes(service, len(dims), nest.lockstep))

    # Where nothing is swizzled the width of the fill's vectors moves no place.
    vector = copy.vector if copy.swizzle > 1 else 1
    return _per_decided(decided, (width_bytes, vector, copy.padding), columns)


def register_accesses(nest: Nest, device: Device, copy: Copy, source: Copy | None, phase_reduces: bool) -> Access:
    """The reads that fill a register copy, `vector` elements at a time."""
    operand = nest.facts.loads[copy.load]
    elements: Number = 1
    for extent in tile_shape(nest, copy, block=False):
        elements = elements * extent
    contiguous = source is None or copy.along == source.order[-1]
    vector = copy.vector if contiguous else 1
    width = vector * operand.itemsize
    parts = pieces(nest, width)
    count = nest.visits(copy.at_loop) * ceil_div(elements, vector) * parts
    service = tile_service(nest, device, source, width) if source else thread_service(nest, device, operand, width)
    tested = tests_of(nest, operand) if source is None else 0
    return Access(
        copy.load, "read", copy.from_layer, count, width // parts, service, tested=tested, reduces=phase_reduces
    )


def direct_access(
    nest: Nest, device: Device, operand: Operand, load: int, loops: tuple[int, ...], source: Copy | None, *,
    role: str = "read", vector: Number = 1, reduces: bool = True,
) -> Access:  # fmt: skip
    """An access at the point of use, in the given loops of a thread: each distinct element of the unrolled loops
    once; loops that it does not depend on are left where they are innermost (the value stays in a register)."""
    used = operand.axes
    last = max((p for p in loops if nest.loops[p].kind == SERIAL and nest.loops[p].axis in used), default=-1)
    count: Number = 1
    uses: Number = 1
    lane = next((p for p in loops if nest.loops[p].kind == LANE), None)
    for p in loops:
        if p == lane:
            continue
        loop = nest.loops[p]
        if p < last or loop.axis in used:
            count = count * nest.trips[p]
        elif loop.kind == UNROLL:
            uses = uses * loop.extent
    if source is not None and of_block(source):
        reuse, passes = reuse_of(nest, source, loops)
        count = reuse.distinct * passes
    width, gathered = operand.itemsize, False
    if source is None and lane is not None:
        count = count * _distinct_share(nest, device, operand, lane)
    if lane is not None and nest.loops[lane].axis in used:
        if source is not None:
            apart = 1 if source.order[-1] == nest.loops[lane].axis else 0
        else:
            apart = lanes_apart(nest, operand, lane)
        if apart == 1 or (apart == 2 and load >= 0):
            count, width = count * apart, width * nest.lanes
        else:
            count, gathered = count * nest.lanes, True
    elif type(vector) is np.ndarray or vector > 1:
        count, width = ceil_div(count, vector), width * vector
    layer = source.to_layer if source else device.backing.name
    service = tile_service(nest, device, source, width) if source else thread_service(nest, device, operand, width)
    parts = pieces(nest, width)
    vectors = source is None and lane is not None and not gathered and nest.loops[lane].axis in used
    split: Number = 1
    if vectors:
        split = line_split(nest, path_layer(device), operand, width, int(costs_of(device).array_alignment))
    broken = broken_share(nest, device, operand, lane, read=load >= 0) if vectors and lane is not None else 0
    tested = tests_of(nest, operand) if source is None else 0
    return Access(
        load, role, layer, count * parts, width // parts, service, split, uses, gathered, broken, tested, reduces
    )


def _distinct_share(nest: Nest, device: Device, operand: Operand, lane: int) -> Number:
    """Share of the vectors that differ where unrolled taps shift the address by as much as unrolled points lie apart,
    or by a whole part of it.  (Compilers see it where no path of its own reads what a guard cuts.)"""
    if operand.guard and not masks_loads(nest, device, operand, lane):
        return 1
    offset = operand.offset
    unrolled = [loop for loop in nest.loops if loop.kind == UNROLL and offset.coefficient(loop.axis) > 0]
    share: Number = 1
    for points in (loop for loop in unrolled if nest.spatial(loop.axis)):
        for taps in (loop for loop in unrolled if not nest.spatial(loop.axis)):
            apart = offset.coefficient(points.axis) * points.stride, offset.coefficient(taps.axis) * taps.stride
            share = share * _met_share(points.extent, apart[0], taps.extent, apart[1])
    return share


def _met_share(points: Number, step: Number, taps: Number, shift: Number) -> Number:
    """Distinct sums of ``points`` multiples of ``step`` and ``taps`` multiples of ``shift``, as a share of all: where
    the shift is s steps, each further tap reaches s new ones (where the step is s shifts, each further point)."""
    by_taps = (points + (taps - 1) * (shift // step)) / (points * taps)
    by_points = (taps + (points - 1) * (step // shift)) / (points * taps)
    share = choose(shift % step == 0, by_taps, choose(step % shift == 0, by_points, 1))
    return least(share, 1)


def tests_of(nest: Nest, operand: Operand) -> Number:
    """Bounds that each access of a scalar thread tests: those of the view's guard and of masked tails; of a vector,
    whether there are any."""
    if nest.lockstep == 1:
        return is_tested(nest, operand)
    return len(operand.guard) + _tails(nest, operand)


def is_tested(nest: Nest, operand: Operand) -> Number:
    """1 where each access tests its own bounds: a guard of the view, or the masked tail of an axis."""
    return 1 if operand.guard else least(_tails(nest, operand), 1)


def _tails(nest: Nest, operand: Operand) -> Number:
    """Axes of the operand with a masked tail."""
    tails: Number = 0
    for axis, how in nest.stage.guards:
        if how == "mask" and axis in operand.axes:
            tails = tails + choose(nest.overhangs.get(axis, False), 1, 0)
    return tails
