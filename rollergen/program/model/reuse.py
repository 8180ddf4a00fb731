"""Reuse in caches: from the innermost loops to the grid, what each operand of a batch fetches past each cache.

A batch has few numbers at each level, so that calls would cost more than arithmetic: all levels of an operand are in
one array.  Rows are levels, columns are programs (one column where a number is the same for all).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from rollergen.program.model.costs import Costs
from rollergen.program.model.memory import Cache, Footprint, Stream, fill_alone, footprint, sets_reached, survival
from rollergen.program.model.nest import Nest, Waves
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, is_one, least
from rollergen.program.rprogram import GRID, LANE, SERIAL, UNROLL


class Level(NamedTuple):
    """One loop, innermost first: ``axis`` None for the passes over a kept row; ``grow`` what the span of the
    axis multiplies by."""

    position: int
    axis: str | None
    trips: Number
    grow: Number


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
            spans[loop.axis] = spans.get(loop.axis, 1) * loop.extent
    every = [spans]
    for level in levels:
        if level.axis is not None and not is_one(level.grow):
            spans = {**spans, level.axis: spans.get(level.axis, 1) * level.grow}
        every.append(spans)
    return every


def levels_of(nest: Nest, waves: Waves) -> list[Level]:
    """Serial loops and the unrolled ones outside them, innermost first; the passes over a row; rounds of blocks."""
    own = nest.positions(SERIAL, UNROLL, LANE)
    outermost_of_region = max((p for p in own if nest.loops[p].kind == SERIAL), default=-1)
    levels = [
        Level(p, nest.loops[p].axis, _mean_trips(nest, p), nest.loops[p].extent)
        for p in reversed(own)
        if p <= outermost_of_region
    ]
    if nest.facts.several_passes:
        rows = [n for n, level in enumerate(levels) if nest.facts.roles[level.axis or ""] in ("row", "reduce")]
        at = max(rows) + 1 if rows else 0
        depth = levels[at - 1].position if at else len(nest.loops)
        levels.insert(at, Level(depth, None, 1, 1))
    for p in reversed(nest.positions(GRID)):
        rounds = waves.rounds[p]
        levels.append(Level(-1, nest.loops[p].axis, rounds, ceil_div(nest.loops[p].extent, waves.together[p])))
    return levels


def concurrent_share(nest: Nest, waves: Waves, stream: Stream, cache: Cache | None) -> Number:
    """Tiles of a stream in one cache: one that all units share sees those of all blocks of a wave."""
    return waves.concurrent(nest, stream.operand.axes) if cache is not None and cache.shared else 1


def rounds_of_blocks(waves: Waves, cache: Cache | None) -> Number:
    """Blocks whose work a cache sees."""
    rounds = waves.all_rounds
    return rounds * waves.wave_blocks if cache is not None and cache.shared else rounds


class SpansByLevel(NamedTuple):
    """What lines of every size share: the levels, and each stream's spans as far as they differ.

    ``rows[i][n]``: row of stream i's spans that holds inside level n (and, last, outside all).  ``uneven``: of which
    programs an axis ends within a tile of the serial loops."""

    levels: list[Level]
    spans: list[dict[str, Number]]
    rows: list[list[int]]
    uneven: Number


def spans_by_level(nest: Nest, waves: Waves, streams: tuple[Stream, ...]) -> SpansByLevel:
    levels = levels_of(nest, waves)
    every = grown_spans(nest, levels)
    spans, rows = [], []
    for stream in streams:
        axes = stream.operand.axes
        kept, row = [every[0]], [0]
        for number, level in enumerate(levels):
            if level.axis in axes and every[number + 1] is not every[number]:
                kept.append(every[number + 1])
            row.append(len(kept) - 1)
        spans.append({axis: stacked([one.get(axis, 1) for one in kept]) for axis in axes if axis in every[-1]})
        rows.append(row)
    serial = [one for one in levels if one.axis is not None and one.position >= 0]
    uneven = reduce(np.logical_or, [one.trips < one.grow for one in serial], False)
    return SpansByLevel(levels, spans, rows, uneven)


def stacked(values: Sequence[Number]) -> Number:
    """Numbers of a batch as rows, [levels, programs] or [levels, 1]."""
    width = max([value.size if isinstance(value, np.ndarray) else 1 for value in values])
    found = np.empty((len(values), width), dtype=np.result_type(*values))
    for row, value in zip(found, values, strict=True):
        row[:] = value
    return found


def _take(values: Number, rows: list[int]) -> Number:
    """The named rows of stacked values; what is the same in all stays as it is."""
    return values[rows] if np.ndim(values) == 2 and len(values) > 1 else values


class _Moved(NamedTuple):
    """One stream at the levels that repeat: lines of its tile there, new ones of all that it visits, and the rest;
    ``between``: those that it touches before it comes back to one."""

    once: Number
    new: Number
    again: Number
    between: Number


class ReuseAnalysis:
    """The nest seen from the inside out, with the footprints of every stream at every level, for one size of lines."""

    def __init__(self, nest: Nest, waves: Waves, streams: tuple[Stream, ...], line: int, spanned: SpansByLevel) -> None:
        self.nest, self.waves, self.streams, self.line, self.spanned = nest, waves, streams, line, spanned
        pairs = zip(streams, spanned.spans, strict=True)
        self.tiles = [footprint(stream.operand, spans, line) for stream, spans in pairs]
        levels = self.spanned.levels
        self.starts = [sum(1 for level in levels if level.position >= stream.depth) for stream in streams]
        self.repeating = [n for n, level in enumerate(levels) if level.axis is None or not is_one(level.trips)]
        self._moved: list[_Moved] | None = None

    def columns(self, i: int, blocks: bool = False) -> list[Footprint]:
        """Footprints of stream `i` after each loop over one of its axes, as one footprint of as many rows.  Where these
        loops have one iteration each, nothing is walked: the footprint has one row.  ``blocks``: after each loop of the
        grid, too."""
        axes, rows, levels = self.streams[i].operand.axes, self.spanned.rows[i], self.spanned.levels
        numbers = [
            n
            for n in range(self.starts[i], len(levels))
            if levels[n].axis in axes and (blocks or levels[n].position >= 0) and not is_one(levels[n].grow)
        ]
        if not numbers:
            return []
        tile = Footprint(*(_take(field, [rows[n + 1] for n in numbers]) for field in self.tiles[i]))
        walked = np.logical_or.accumulate(stacked([levels[n].grow > 1 for n in numbers]))
        return [tile._replace(rows=choose(walked, tile.rows, 1))]

    def fetched(self, cache: Cache | None, costs: Costs) -> list[Number]:
        """Lines of each stream that one unit's share of one block's work fetches from beyond the cache (None: no
        cache at all), counted over all rounds of blocks: the mean of one block."""
        shares = [concurrent_share(self.nest, self.waves, s, cache) for s in self.streams]
        blocks = rounds_of_blocks(self.waves, cache)
        moved = self.moved()
        owns = [one.between * share for one, share in zip(moved, shares, strict=True)]
        for i, stream in enumerate(self.streams):
            if stream.operand.scattered:  # tiles of blocks at work together lie among each other's
                owns[i] = least(owns[i], ceil_div(stream.operand.bytes, self.line))
        active = [[n for n, number in enumerate(self.repeating) if number >= start] for start in self.starts]
        every = self._all_lines(owns, active) if cache is not None else 0
        totals = []
        for i, (lines, fresh, again, _) in enumerate(moved):
            kept = survival(self._fill(i, owns[i], every, cache), costs) if cache is not None else 0.0
            if cache is not None and not cache.shared:
                kept = choose(self.streams[i].past > 0, 0.0, kept)
            if cache is not None and self.streams[i].array >= 0:
                kept = self._kept_alone(i, lines, kept, cache, costs)
            grows = (fresh + again * (1 - kept)) / lines
            total = _take(self.tiles[i].lines, [self.spanned.rows[i][self.starts[i]]]) * shares[i]
            for n in active[i]:
                total = total * (grows[n] if len(grows) > 1 else grows[0])
            total = (total[0] if np.ndim(total) == 2 else total) / blocks
            if cache is not None and not cache.shared:  # a gathered tile spans more lines than it copies
                past = self.streams[i].past
                total = choose(past > 0, least(total, past / self.line), total)
            totals.append(total)
        return totals

    def moved(self) -> list[_Moved]:
        """Lines that each stream touches at the levels that repeat; they are the same for all caches of this line."""
        if self._moved is None:
            trips = [self.spanned.levels[n].trips for n in self.repeating]
            self._moved = [self._moved_by(i, trips) for i in range(len(self.streams))]
        return self._moved

    def _moved_by(self, i: int, trips: list[Number]) -> _Moved:
        rows, passes = self.spanned.rows[i], self.streams[i].passes
        own = [
            passes if self.spanned.levels[n].axis is None else count
            for n, count in zip(self.repeating, trips, strict=True)
        ]
        if not own:
            return _Moved(*(np.ones((1, 1)),) * 4)
        lines = self.tiles[i].lines
        once = _take(lines, [rows[n] for n in self.repeating])
        after = _take(lines, [rows[n + 1] for n in self.repeating])
        uneven = self.spanned.uneven
        if not is_nothing(uneven):
            mean = self._mean_tiles(i)
            once, after = (choose(uneven, one, other) for one, other in zip(mean, (once, after), strict=True))
        visited = stacked(own) * once
        fresh = least(after, visited)
        return _Moved(once, fresh, visited - fresh, fresh if self.streams[i].operand.scattered else once)

    def _mean_tiles(self, i: int) -> tuple[Number, Number]:
        """Lines inside and outside each level that repeats, of tiles that are as large as the mean one: a last one that
        the axis' end cuts has fewer."""
        lines, rows, inner, outer = self.tiles[i].lines, self.spanned.rows[i], [], []
        each = [lines[row] for row in rows] if np.ndim(lines) == 2 and len(lines) > 1 else [np.ravel(lines)] * len(rows)
        mean: Number = 0
        for n, level in enumerate(self.spanned.levels):
            full, grown = each[n], each[n + 1]
            mean = least(mean, full) if n > self.starts[i] else full
            inner.append(mean)
            mean = least(grown, (self.streams[i].passes if level.axis is None else level.trips) * mean)
            outer.append(mean)
        return stacked([inner[n] for n in self.repeating]), stacked([outer[n] for n in self.repeating])

    def _kept_alone(self, i: int, lines: Number, kept: Number, cache: Cache, costs: Costs) -> Number:
        """What survives of an array of a thread's own, level by level: from one filling to the next it is alone."""
        levels, filled = self.spanned.levels, self.streams[i].array
        outside = np.array([[levels[number].position < filled] for number in self.repeating])
        return np.where(outside, survival(fill_alone(lines, cache), costs), kept) if len(outside) else kept

    def _all_lines(self, owns: list[Number], active: list[list[int]]) -> Number:
        """Lines that one iteration at each repeating level touches, of all streams that are touched there."""
        total: Number = 0
        for own, levels in zip(owns, active, strict=True):
            if len(levels) < len(self.repeating):
                there = np.zeros((max(len(self.repeating), 1), 1), dtype=bool)
                there[levels] = True
                own = np.where(there, own, 0)
            total = total + own
        return total

    def _fill(self, i: int, own: Number, every: Number, cache: Cache) -> Number:
        """How full the sets are that hold stream `i`: lines over ways."""
        if cache.sets == 1:
            return every / cache.ways
        reached = sets_reached(self.tiles[i], cache.sets, cache.line)
        in_its_sets = own / _take(reached, [self.spanned.rows[i][n] for n in self.repeating])
        return (in_its_sets + (every - own) / cache.sets) / cache.ways


class ReuseBySize:
    """The analysis for each size of lines, made once."""

    def __init__(self, nest: Nest, waves: Waves, streams: tuple[Stream, ...]) -> None:
        self._arguments = nest, waves, streams
        self._spanned = spans_by_level(nest, waves, streams)
        self._found: dict[int, ReuseAnalysis] = {}

    def of_line(self, line: int) -> ReuseAnalysis:
        if line not in self._found:
            self._found[line] = ReuseAnalysis(*self._arguments, line, self._spanned)
        return self._found[line]
