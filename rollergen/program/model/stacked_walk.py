"""The walk outward of `memory.Walk` for a batch: the same terms, all levels of an operand in one array.

A batch of programs has few numbers at each level, so that calls would cost more than arithmetic; rows of the
arrays are levels, columns are programs (one column where a number is the same for all).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rollergen.program.model.costs import Costs
from rollergen.program.model.memory import (
    Cache,
    Footprint,
    Level,
    Stream,
    concurrent_share,
    fill_alone,
    footprint,
    grown_spans,
    is_one,
    levels_of,
    rounds_of_blocks,
    sets_reached,
    survival,
)
from rollergen.program.model.nest import Nest, Waves
from rollergen.program.model.numeric import Number, least, times


class Outward(NamedTuple):
    """What lines of every size share: the levels, and each stream's spans as far as they differ.

    ``rows[i][n]``: row of stream i's spans that holds inside level n (and, last, outside all)."""

    levels: list[Level]
    spans: list[dict[str, Number]]
    rows: list[list[int]]


def outward_of(nest: Nest, waves: Waves, streams: tuple[Stream, ...]) -> Outward:
    levels = levels_of(nest, waves)
    every = grown_spans(nest, levels)
    spans, rows = [], []
    for stream in streams:
        axes = stream.operand.axes
        kept, row = [every[0]], [0]
        for number, level in enumerate(levels):
            if level.axis in axes and not is_one(level.grow):
                kept.append(every[number + 1])
            row.append(len(kept) - 1)
        spans.append({axis: stacked([one.get(axis, 1) for one in kept]) for axis in axes if axis in every[-1]})
        rows.append(row)
    return Outward(levels, spans, rows)


def stacked(values: Sequence[Number]) -> Number:
    """Numbers of a batch as rows; one number where all are the same."""
    if not any(type(value) is np.ndarray for value in values):
        return values[0] if len(set(values)) == 1 else np.array(values)[:, None]
    shape = next(value.shape for value in values if type(value) is np.ndarray)
    return np.array([value if type(value) is np.ndarray else np.full(shape, value) for value in values])


def _take(values: Number, rows: list[int]) -> Number:
    """The named rows of stacked values; what is the same in all stays as it is."""
    return values[rows] if type(values) is np.ndarray and len(values) > 1 else values


def _row(values: Number) -> Number:
    """The one row of `values`; a number where it is the same for all."""
    values = values[0] if np.ndim(values) == 2 else values
    return values.item() if np.shape(values) == (1,) else values


class _Moved(NamedTuple):
    """One stream at the levels that repeat: lines of its tile there, new ones of all that it visits, and the rest."""

    once: Number
    new: Number
    again: Number


class StackedWalk:
    """`memory.Walk` of a batch."""

    def __init__(
        self, nest: Nest, waves: Waves, streams: tuple[Stream, ...], line: int, outward: Outward | None = None
    ) -> None:
        self.nest, self.waves, self.streams, self.line = nest, waves, streams, line
        self.outward = outward_of(nest, waves, streams) if outward is None else outward
        pairs = zip(streams, self.outward.spans, strict=True)
        self.tiles = [footprint(stream.operand, spans, line) for stream, spans in pairs]
        levels = self.outward.levels
        self.starts = [sum(1 for level in levels if level.position >= stream.depth) for stream in streams]
        self.repeating = [n for n, level in enumerate(levels) if level.axis is None or not is_one(level.trips)]
        self._moved: list[_Moved] | None = None

    def columns(self, i: int) -> list[Footprint]:
        """What stream `i` covers after each loop over one of its axes, in one footprint of as many rows."""
        axes, rows = self.streams[i].operand.axes, self.outward.rows[i]
        levels = self.outward.levels
        numbers = range(self.starts[i], len(levels))
        kept = sorted({rows[n + 1] for n in numbers if levels[n].axis in axes and levels[n].position >= 0})
        return [Footprint(*(_take(field, kept) for field in self.tiles[i]))] if kept else []

    def fetched(self, cache: Cache | None, costs: Costs) -> list[Number]:
        """As `memory.Walk.fetched`."""
        shares = [concurrent_share(self.nest, self.waves, s, cache) for s in self.streams]
        blocks = rounds_of_blocks(self.waves, cache)
        moved = self.moved()
        owns = [times(one.once, share) for one, share in zip(moved, shares, strict=True)]
        active = [[n for n, number in enumerate(self.repeating) if number >= start] for start in self.starts]
        every = self._all_lines(owns, active) if cache is not None else 0
        totals = []
        for i, (lines, fresh, again) in enumerate(moved):
            kept = survival(self._fill(i, owns[i], every, cache), costs) if cache is not None else 0.0
            if cache is not None and self.streams[i].array >= 0:
                kept = self._kept_alone(i, lines, kept, cache, costs)
            grows = (fresh + again * (1 - kept)) / lines
            total = times(_take(self.tiles[i].lines, [self.outward.rows[i][self.starts[i]]]), shares[i])
            for n in active[i]:
                total = total * (grows[n] if len(grows) > 1 else grows[0])
            totals.append(_row(total) / blocks)
        return totals

    def moved(self) -> list[_Moved]:
        """Lines that each stream touches at the levels that repeat; they are the same for all caches of this line."""
        if self._moved is None:
            trips = [self.outward.levels[n].trips for n in self.repeating]
            self._moved = [self._moved_by(i, trips) for i in range(len(self.streams))]
        return self._moved

    def _moved_by(self, i: int, trips: list[Number]) -> _Moved:
        rows, passes = self.outward.rows[i], self.streams[i].passes
        own = [
            passes if self.outward.levels[n].axis is None else count
            for n, count in zip(self.repeating, trips, strict=True)
        ]
        if not own:
            return _Moved(*(np.ones((1, 1)),) * 3)
        times = stacked(own)
        times = times if type(times) is np.ndarray and times.ndim == 2 else np.full((len(own), 1), times)
        lines = self.tiles[i].lines
        once = _take(lines, [rows[n] for n in self.repeating]) * np.ones((len(own), 1), dtype=np.int64)
        after = _take(lines, [rows[n + 1] for n in self.repeating])
        visited = times * once
        fresh = least(after, visited)
        return _Moved(once, fresh, visited - fresh)

    def _kept_alone(self, i: int, lines: Number, kept: Number, cache: Cache, costs: Costs) -> Number:
        """What survives of an array of a thread's own, level by level: from one filling to the next it is alone."""
        levels, filled = self.outward.levels, self.streams[i].array
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
            total = own if type(total) is int else total + own
        return total

    def _fill(self, i: int, own: Number, every: Number, cache: Cache) -> Number:
        """How full the sets are that hold stream `i`: lines over ways."""
        if cache.sets == 1:
            return every / cache.ways
        reached = sets_reached(self.tiles[i], cache.sets, cache.line)
        in_its_sets = own / _take(reached, [self.outward.rows[i][n] for n in self.repeating])
        return (in_its_sets + (every - own) / cache.sets) / cache.ways
