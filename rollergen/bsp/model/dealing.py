"""Who owns what a block needs: the owners of one load's elements, from intervals alone.

Along each dimension, the ends of all intervals cut the tensor into segments; a box of segments is wanted by the
tiles whose intervals hold all of them, and dealt to exactly these (`rprogram.TileMapping`).  No element is enumerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.program import (
    GRANULE_BYTES,
    Ranges,
    copy_digits,
    held_intervals,
    padded_units,
    ranges_of,
    round_up,
    steps_of_load,
    tensor_intervals,
)
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import Stage

Array = Any


@dataclass(frozen=True, eq=False)
class Operand:
    """One load of a stage: bytes for each [tile, superstep].

    ``wanted``: real elements that a tile uses; ``own``: of these, what lies on the tile; ``sent``: of
    the tile's own, what others want; ``fragments``: at most so many runs arrive; ``owned``: memory of the tile's
    shares [tile].  ``copy``: bytes of a copy, padding included, of one superstep.
    """

    wanted: Array
    own: Array
    sent: Array
    fragments: Array
    owned: Array
    copy: int


@dataclass(frozen=True, eq=False)
class _Members:
    """Pairs of a [tile, step] row and a box of segments that it wants."""

    row: Array
    box: Array
    size: Array
    counts: tuple[Array, ...]


def operand(stage: Stage, number: int, device: Device) -> Operand:
    """Shares and transfers of load `number` under its tile mapping, whatever else is copied."""
    step = stage.superstep
    assert step is not None
    return _operand(replace(stage, superstep=replace(step, copied=())), number, device)


@lru_cache(maxsize=64)
def _operand(stage: Stage, number: int, device: Device) -> Operand:
    load = stage.op.loads()[number]
    ranges = ranges_of(stage, whole=not steps_of_load(stage, load))
    shape = (ranges.tiles, ranges.steps)
    held = [(_rows(low, shape), _rows(high, shape)) for low, high in held_intervals(load, ranges)]
    sizes = _copy_sizes(stage, number, held, device)
    item = ITEMSIZE[load.dtype]
    real = [
        (np.maximum(low, first), np.minimum(high, last))
        for (low, high), (first, last) in zip(held, tensor_intervals(load), strict=True)
    ]
    members = _members(real, shape[0] * shape[1])
    tile = members.row // shape[1]
    count, rank = _ranks(members.box, tile)
    granules = -(-members.size * item // GRANULE_BYTES)
    share = granules // count + (rank < granules % count)
    start = rank * (granules // count) + np.minimum(rank, granules % count)
    own = np.minimum(share * GRANULE_BYTES, np.maximum(members.size * item - start * GRANULE_BYTES, 0))
    runs = _runs(stage, number, members.counts, sizes, device)
    total = lambda values: np.bincount(members.row, values, shape[0] * shape[1]).astype(np.int64).reshape(shape)
    owned = np.bincount(tile, share * GRANULE_BYTES, shape[0]).astype(np.int64)
    return Operand(
        total(members.size * item), total(own), total(np.where(count > 1, own, 0)),
        total(np.where(count > 1, runs + count - 1, 0)), owned, int(round_up(prod(sizes) * item)),
    )  # fmt: skip


def _rows(array: Array, shape: tuple[int, int]) -> Array:
    return np.broadcast_to(array, shape).reshape(-1)


def _copy_sizes(stage: Stage, number: int, held: Sequence[tuple[Array, Array]], device: Device) -> list[int]:
    units = padded_units(stage, number, device)
    return [round_up(max(1, int((high - low).max()) + 1), units.get(d, 1)) for d, (low, high) in enumerate(held)]


def _members(real: Sequence[tuple[Array, Array]], rows: int) -> _Members:
    """Which boxes of segments each row wants: per dimension the run of segments that its interval covers."""
    begins, counts, lengths = [], [], []
    some = np.ones(rows, dtype=bool)
    for low, high in real:
        some &= high >= low
    for low, high in real:
        low, high = np.where(some, low, 0), np.where(some, high, 0)
        cuts = np.unique(np.concatenate([low, high + 1]))
        begins.append(np.searchsorted(cuts, low))
        counts.append(np.searchsorted(cuts, high + 1) - begins[-1])
        lengths.append(np.diff(cuts))
    row = np.flatnonzero(some)
    box = np.zeros(len(row), dtype=np.int64)
    parts: list[Array] = []
    for begin, count, length in zip(begins, counts, lengths, strict=True):
        repeats = count[row]
        at = np.repeat(begin[row] - np.concatenate([[0], np.cumsum(repeats)[:-1]]), repeats) + np.arange(repeats.sum())
        row, box = np.repeat(row, repeats), np.repeat(box, repeats) * max(1, len(length)) + at
        parts = [*(np.repeat(part, repeats) for part in parts), length[at]]
    size = np.ones(len(row), dtype=np.int64)
    for part in parts:
        size = size * part
    return _Members(row, box, size, tuple(parts))


def _ranks(box: Array, tile: Array) -> tuple[Array, Array]:
    """(how many tiles want the box, this tile's number among them) for each member."""
    order = np.lexsort((tile, box))
    ordered = box[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, bool)
    begin = np.flatnonzero(first)
    number = np.cumsum(first) - 1
    count, rank = np.empty(len(box), dtype=np.int64), np.empty(len(box), dtype=np.int64)
    rank[order] = np.arange(len(box)) - begin[number]
    count[order] = np.diff(np.append(begin, len(box)))[number]
    return count, rank


def _runs(stage: Stage, number: int, counts: Sequence[Array], sizes: Sequence[int], device: Device) -> Array:
    """At most so many runs of adjacent places a box of segments fills in a copy."""
    units = padded_units(stage, number, device)
    runs: Array = np.ones(1, dtype=np.int64)
    whole = True
    for digit in reversed(copy_digits(stage, number, device)):
        count, size, unit = counts[digit.dim], sizes[digit.dim], units.get(digit.dim, 1)
        if unit > 1 and not digit.block:
            runs = np.where(whole, runs, runs * np.minimum(count, unit))
            whole = whole & (count % unit == 0)
            continue
        places = -(-count // unit) + (1 if unit > 1 else 0)
        runs = np.where(whole, runs, runs * places)
        whole = whole & (count == size)
    return runs


__all__ = ["Operand", "Ranges", "operand"]
