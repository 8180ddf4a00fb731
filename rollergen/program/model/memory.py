"""Caches by set occupancy: how many lines of each operand cross each cache, from the loop nest and real strides.

From the innermost loops outward, an operand's line fetches multiply by a loop's iterations where it
brings new lines, and by the share that did not survive the iteration where it brings old ones.  What
survives follows from how full the sets are with the lines that one iteration of all operands touches.
Caches without sets in the spec count as one set of all their lines; the translation buffers are the
same thing with pages for lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rollergen.hal.spec import MemoryLayer, Tlb
from rollergen.program.model.costs import Costs
from rollergen.program.model.facts import Operand
from rollergen.program.model.nest import Nest, Waves
from rollergen.program.model.numeric import Number, ceil_div, choose, clip, gcd, least, most, times
from rollergen.program.rprogram import GRID, LANE, SERIAL, UNROLL


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One operand as the caches see it: touched by the loops at ``depth`` and deeper as a tile, again at
    each trip to that depth; ``passes``: over the row; ``load``: its number, -1 the store, `FILL` what a thread
    writes into an array of its own.  ``fills``: moved while such an array is filled, and nothing is computed.
    ``array``: depth at which the array that this is is filled (-1: it is a tensor)."""

    operand: Operand
    load: int
    depth: int
    passes: int = 1
    fills: bool = False
    array: int = -1


FILL = -2


class Footprint(NamedTuple):
    """Lines that a tile touches: ``rows`` segments of ``segment`` bytes; ``sets``: how many cache sets they reach
    (0 where not asked); ``stride``: bytes from row to row."""

    lines: Number
    rows: Number
    segment: Number
    stride: Number


def footprint(operand: Operand, spans: dict[str, Number], line: int) -> Footprint:
    """What a tile with the given axis spans covers, rows that touch being merged."""
    strides, itemsize = operand.strides, operand.itemsize
    if not operand.indices:
        return Footprint(1, 1, itemsize, line)
    reached, elements = operand.reach(-1, spans)
    segment = reached * itemsize
    rows: Number = 1
    stride: Number = 0
    for dim in range(len(strides) - 2, -1, -1):
        if not operand.indices[dim].terms:
            continue
        count = operand.distinct(dim, spans)
        step = strides[dim]
        single = rows == 1
        joined = ((segment >= step) | (step <= line)) & single
        stride = choose(single & (count > 1) & _negate(joined), step, stride)
        rows, segment, elements = (
            choose(joined, rows, times(rows, count)),
            choose(joined, (count - 1) * step + least(segment, step), segment),
            elements * count,
        )
    start = gcd(segment, operand.row_alignment(line))
    per_row = (segment + line - least(start, line)) / line
    return Footprint(least(rows * per_row, elements), rows, segment, stride)


def _kept_footprint(operand: Operand, spans: dict[str, Number], line: int) -> Footprint:
    """`footprint` of one program's tile: programs of one block tile share most of theirs."""
    key = (line, *[spans.get(axis, 1) for axis in operand.axes])
    found = operand.footprints.get(key)
    if found is None:
        found = operand.footprints[key] = footprint(operand, spans, line)
    return found


def _negate(condition: Number) -> Number:
    return condition == False  # noqa: E712  (bool or array of bool)


def sets_reached(tile: Footprint, sets: int, line: int) -> Number:
    """Distinct sets that the tile's lines map to: rows a power of two apart fall on few."""
    if sets <= 1:
        return 1
    way = sets * line
    per_row = most(tile.segment / line, 1)
    common = gcd(tile.stride, way)
    common = choose(common == 0, way, common)
    period = way // common
    spacing = most(common / line, 1)
    inside = choose(tile.rows >= period, least(per_row, spacing), per_row)
    return clip(least(tile.rows, period) * inside, 1, sets)


def stride_sets(stride: Number, sets: int, line: int) -> Number:
    """Sets that rows at the given stride (bytes) begin in, however many rows there are."""
    common = gcd(stride, sets * line)
    common = choose(common == 0, sets * line, common)
    return least(sets * line // common, sets)


class Cache(NamedTuple):
    """What a cache, or a translation buffer, is to this module."""

    line: int
    sets: int
    ways: Number
    shared: bool


def cache_of(layer: MemoryLayer, resident: Number) -> Cache:
    """A layer's lines; blocks resident on one unit share its capacity."""
    shared = layer.scope == "device"
    ways = layer.ways if layer.ways else layer.capacity_bytes // layer.transaction_bytes // max(layer.sets, 1)
    return Cache(layer.transaction_bytes, max(layer.sets, 1), ways if shared else ways / resident, shared)


def tlb_cache(tlb: Tlb) -> Cache:
    return Cache(tlb.page_bytes, 1, tlb.entries, False)


class Level(NamedTuple):
    """One loop of the walk outward: ``axis`` None for the walks over a kept row; ``grow`` what the span of the
    axis multiplies by."""

    position: int
    axis: str | None
    trips: Number
    grow: Number


class Walk:
    """The nest seen from the inside out, with the footprints of every stream at every level (found once)."""

    def __init__(self, nest: Nest, waves: Waves, streams: tuple[Stream, ...], line: int) -> None:
        self.nest, self.waves, self.streams, self.line = nest, waves, streams, line
        self.levels = levels_of(nest, waves)
        self.tiles: list[list[Footprint]] = []
        every = grown_spans(nest, self.levels)
        self.tiles.append([_kept_footprint(s.operand, every[0], line) for s in streams])
        for level, spans in zip(self.levels, every[1:], strict=True):
            if level.axis is not None and not is_one(level.grow):
                old = self.tiles[-1]
                self.tiles.append(
                    [
                        _kept_footprint(s.operand, spans, line) if level.axis in s.operand.axes else tile
                        for s, tile in zip(streams, old, strict=True)
                    ]
                )
            else:
                self.tiles.append(self.tiles[-1])

    def columns(self, i: int) -> list[Footprint]:
        """What stream `i` covers after each loop over one of its axes."""
        stream = self.streams[i]
        return [
            self.tiles[number + 1][i]
            for number in range(self.start_level(stream), len(self.levels))
            if self.levels[number].axis in stream.operand.axes and self.levels[number].position >= 0
        ]

    def start_level(self, stream: Stream) -> int:
        """How many levels lie inside the stream's own depth."""
        return sum(1 for level in self.levels if level.position >= stream.depth)

    def fetched(self, cache: Cache | None, costs: Costs) -> list[Number]:
        """Lines of each stream that one unit's share of one block's work fetches from beyond the cache (None: no
        cache at all), counted over all rounds of blocks: the mean of one block."""
        starts = [self.start_level(s) for s in self.streams]
        shares = [concurrent_share(self.nest, self.waves, s, cache) for s in self.streams]
        totals: list[Number] = [self.tiles[n][i].lines * shares[i] for i, n in enumerate(starts)]
        for number, level in enumerate(self.levels):
            tiles, after = self.tiles[number], self.tiles[number + 1]
            if level.axis is not None and is_one(level.trips):
                continue
            active = [i for i, start in enumerate(starts) if number >= start]
            touched = _Touched(cache, tiles, shares, active, costs)
            for i in active:
                trips = self.streams[i].passes if level.axis is None else level.trips
                once = tiles[i].lines
                visited = trips * once
                unique = least(after[i].lines if level.axis in self.streams[i].operand.axes else once, visited)
                again = visited - unique
                if type(again) is np.ndarray or again > 0:
                    alone = level.position < self.streams[i].array
                    unique = unique + again * (1 - (touched.survive_alone(i) if alone else touched.survive(i)))
                totals[i] = totals[i] * (unique / once)
        blocks = rounds_of_blocks(self.waves, cache)
        return [total / blocks for total in totals]


def concurrent_share(nest: Nest, waves: Waves, stream: Stream, cache: Cache | None) -> Number:
    """Tiles of a stream in one cache: one that all units share sees those of all blocks of a wave."""
    return waves.concurrent(nest, stream.operand.axes) if cache is not None and cache.shared else 1


def rounds_of_blocks(waves: Waves, cache: Cache | None) -> Number:
    """Blocks whose work a cache sees."""
    rounds = waves.all_rounds
    return rounds * waves.wave_blocks if cache is not None and cache.shared else rounds


def is_one(value: Number) -> bool:
    """Whether a number is 1 for every program."""
    return type(value) is not np.ndarray and value == 1


class _Touched:
    """The lines that one iteration of a loop touches, and how many of them are there at the next."""

    def __init__(
        self, cache: Cache | None, tiles: list[Footprint], shares: list[Number], active: list[int], costs: Costs
    ) -> None:
        self.cache, self.tiles, self.shares, self.active, self.costs = cache, tiles, shares, active, costs
        self.all_lines: Number | None = None

    def survive(self, i: int) -> Number:
        """Share of the lines of stream `i` that the cache still holds."""
        cache = self.cache
        if cache is None:
            return 0.0
        if self.all_lines is None:
            self.all_lines = 0
            for other in self.active:
                self.all_lines = self.all_lines + self.tiles[other].lines * self.shares[other]
        if cache.sets == 1:
            return survival(self.all_lines / cache.ways, self.costs)
        own = self.tiles[i].lines * self.shares[i]
        in_its_sets = own / sets_reached(self.tiles[i], cache.sets, cache.line)
        return survival((in_its_sets + (self.all_lines - own) / cache.sets) / cache.ways, self.costs)


    def survive_alone(self, i: int) -> Number:
        """The same of an array of a thread's own, from one filling to the next."""
        if self.cache is None:
            return 0.0
        return survival(fill_alone(self.tiles[i].lines, self.cache), self.costs)


def fill_alone(lines: Number, cache: Cache) -> Number:
    """How full the sets are that hold so many lines of an array and what it is filled from, which is as much."""
    return 2 * lines / (cache.sets * cache.ways)


def survival(fill: Number, costs: Costs) -> Number:
    """Share of a set's lines that are still there one iteration later."""
    low, high = costs.keep_below, costs.keep_above
    if high <= low:
        return choose(fill <= low, 1.0, 0.0)
    if type(fill) is not np.ndarray:
        return 1.0 if fill <= low else 0.0 if fill >= high else (high - fill) / (high - low)
    return clip((high - fill) / (high - low), 0.0, 1.0)


def _mean_trips(nest: Nest, p: int) -> Number:
    """Iterations of the mean block's loop.  (Of a serial loop that strides over the blocks of its axis, `Nest.trips`
    has those of a block that goes all the way, for which the busiest unit waits.)"""
    loop = nest.loops[p]
    leading, *others = nest.by_stride[loop.axis]
    grid = [nest.loops[q] for q in others if nest.loops[q].kind == GRID]
    if leading != p or loop.kind != SERIAL or not grid:
        return nest.trips[p]
    return ceil_div(nest.facts.extents[loop.axis], grid[0].stride) / grid[0].extent


def grown_spans(nest: Nest, levels: list[Level]) -> list[dict[str, Number]]:
    """Extent along each axis of what lies inside the levels, then of what each level in turn covers."""
    spans: dict[str, Number] = {}
    inner = {level.position for level in levels if level.axis is not None}
    for p, loop in enumerate(nest.loops):
        if loop.kind != GRID and p not in inner:
            spans[loop.axis] = times(spans.get(loop.axis, 1), loop.extent)
    every = [spans]
    for level in levels:
        if level.axis is not None and not is_one(level.grow):
            spans = {**spans, level.axis: times(spans.get(level.axis, 1), level.grow)}
        every.append(spans)
    return every


def levels_of(nest: Nest, waves: Waves) -> list[Level]:
    """Serial loops and the unrolled ones outside them, innermost first; the walks over a row; rounds of blocks."""
    own = nest.positions(SERIAL, UNROLL, LANE)
    outermost_of_region = max((p for p in own if nest.loops[p].kind == SERIAL), default=-1)
    levels = [
        Level(p, nest.loops[p].axis, _mean_trips(nest, p), nest.loops[p].extent)
        for p in reversed(own)
        if p <= outermost_of_region
    ]
    if nest.facts.rewalks:
        rows = [n for n, level in enumerate(levels) if nest.facts.roles[level.axis or ""] in ("row", "reduce")]
        at = max(rows) + 1 if rows else 0
        depth = levels[at - 1].position if at else len(nest.loops)
        levels.insert(at, Level(depth, None, 1, 1))
    for p in reversed(nest.positions(GRID)):
        rounds = waves.rounds[p]
        levels.append(Level(-1, nest.loops[p].axis, rounds, ceil_div(nest.loops[p].extent, waves.together[p])))
    return levels

