"""Caches by set occupancy: how many lines of each operand cross each cache, from the loop nest and real strides.

From the innermost loops outward, an operand's line fetches multiply by a loop's iterations where it
brings new lines, and by the share that did not survive the iteration where it brings old ones.  What
survives follows from how full the sets are with the lines that one iteration of all operands touches.
Caches without sets in the spec count as one set of all their lines; the translation buffers are the
same thing with pages for lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, MemoryLayer, Tlb
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import Operand
from rollergen.program.model.numeric import Number, choose, clip, gcd, least, most
from rollergen.program.rprogram import Stage


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One operand as the caches see it: touched by the loops at ``depth`` and deeper as a tile, again at
    each trip to that depth; ``passes``: over the row; ``load``: its number, -1 the store, `FILL` what a thread
    writes into an array of its own.  ``fills``: moved while such an array is filled, and nothing is computed.
    ``array``: depth at which the array that this is is filled (-1: it is a tensor).  ``past``: bytes that a
    block copies past its unit's own caches, which keep nothing of them; 0: what is read goes through these."""

    operand: Operand
    load: int
    depth: int
    passes: int = 1
    fills: bool = False
    array: int = -1
    past: Number = 0


FILL = -2


class Footprint(NamedTuple):
    """Lines that a tile touches: ``rows`` segments of ``segment`` bytes; ``sets``: how many cache sets they reach
    (0 where not asked); ``stride``: bytes from row to row."""

    lines: Number
    rows: Number
    segment: Number
    stride: Number


def footprint(operand: Operand, spans: dict[str, Number], line: int) -> Footprint:
    """Lines covered by a tile with the given axis spans; rows that touch are merged."""
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
        stride = choose(single & (count > 1) & np.logical_not(joined), step, stride)
        rows, segment, elements = (
            choose(joined, rows, rows * count),
            choose(joined, (count - 1) * step + least(segment, step), segment),
            elements * count,
        )
    start = gcd(segment, operand.row_alignment(line))
    per_row = (segment + line - least(start, line)) / line
    return Footprint(least(rows * per_row, elements), rows, segment, stride)


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
    """A cache, or a translation buffer, as far as reuse depends on it."""

    line: int
    sets: int
    ways: Number
    shared: bool


def cache_of(layer: MemoryLayer, resident: Number, staged_bytes: Number = 0) -> Cache:
    """A layer's lines; blocks resident on one unit share its capacity, of which each of them takes ``staged_bytes``."""
    shared = layer.scope == "device"
    ways: Number = layer.ways if layer.ways else layer.capacity_bytes // layer.transaction_bytes // max(layer.sets, 1)
    if not shared:
        ways = most(ways / resident - staged_bytes / (layer.transaction_bytes * max(layer.sets, 1)), 1)
    return Cache(layer.transaction_bytes, max(layer.sets, 1), ways, shared)


def tlb_cache(tlb: Tlb) -> Cache:
    return Cache(tlb.page_bytes, 1, tlb.entries, False)


def fill_alone(lines: Number, cache: Cache) -> Number:
    """How full the sets are that hold so many lines of an array and what it is filled from, which is as much."""
    return 2 * lines / (cache.sets * cache.ways)


def survival(fill: Number, costs: Costs) -> Number:
    """Share of a set's lines that are still there one iteration later."""
    return surviving(fill, costs.keep_below, costs.keep_above)


def surviving(fill: Number, low: float, high: float) -> Number:
    """Share of the lines that survive: all up to a fill of ``low``, none from ``high`` on."""
    if high <= low:
        return choose(fill <= low, 1.0, 0.0)
    return clip((high - fill) / (high - low), 0.0, 1.0)


def writes_back_later(stage: Stage, device: Device) -> bool:
    """Whether the last cache may hold what a launch has stored when it ends: a temporary, where the spec says how lines
    survive there."""
    return bool(costs_of(device).warm_above) and stage.op.output.kind == "temporary" and not stage.store.streaming


def lies_beside(others: Iterable[Operand], operand: Operand, device: Device) -> bool:
    """Whether one of the others reads elements of the same lines, a constant away, at every point."""
    same = lambda one: (one.buffer.name, one.offset.terms) == (operand.buffer.name, operand.offset.terms)
    alike, line = filter(same, others), device.backing.transaction_bytes
    return any(abs(one.offset.const - operand.offset.const) * operand.itemsize < line for one in alike)
