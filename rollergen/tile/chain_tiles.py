"""Tiles of chains of two contractions: which rows and which keys a block reads, where scores rule keys out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from rollergen.expr.index import Index
from rollergen.tile.axis_tiles import AxisTiles, StageLike, axis_tiles, block_digits
from rollergen.tile.segments import Progression

Digits = Mapping[int, int] | None


def chain_tiles(stage: StageLike, digits: Digits, storing: bool = False) -> Iterator[dict[str, AxisTiles]]:
    """The tiles of each axis, of blocks that run the same keys at a time; ``digits`` as `axis_tiles` has them.

    ``storing``: of what is stored, which is also by blocks that run no keys."""
    inner, bounds = stage.inner, (*stage.inner.first, *stage.inner.last)
    key = stage.loops[inner.at_loop - 1]
    rows = next(loop.axis for loop in stage.loops if loop.kind in ("lane", "thread"))
    for own in _apart(stage, digits, any(index.axes() - {rows} for index in bounds)):
        axes = axis_tiles(stage, 0, own)
        for axis in stage.op.of_role("inner"):
            axes[axis.name] = AxisTiles(axis.name, axis.extent, _ZERO, Progression(axis.extent, 1))
        for base in axes[rows].bases if bounds else [None]:
            if base is not None:
                axes[rows] = AxisTiles(rows, axes[rows].extent, np.array([base]), axes[rows].tile)
            begin, end = (0, 1) if storing else _keys(stage, axes, rows)
            axes[key.axis] = AxisTiles(key.axis, end, np.array([begin]), Progression(max(end - begin, 1), 1))
            yield axes


_ZERO = np.zeros(1, dtype=np.int64)


def _apart(stage: StageLike, digits: Digits, each: bool) -> Iterator[Digits]:
    """Every block by itself where bounds of keys differ along other axes than the rows'."""
    if digits is not None or not each:
        yield digits
        return
    for block in range(prod(loop.extent for loop in stage.loops if loop.kind == "grid")):
        yield block_digits(stage, block)


def _keys(stage: StageLike, axes: Mapping[str, AxisTiles], rows: str) -> tuple[int, int]:
    """The keys that a block runs: from the first to, without, the last one."""
    inner, key, step = stage.inner, stage.loops[stage.inner.at_loop - 1], _key_step(stage)
    extent = next(axis.extent for axis in stage.op.axes if axis.name == key.axis)
    begin, end = 0, extent
    at = {axis: int(tiles.bases[0]) for axis, tiles in axes.items()}
    own = axes[rows]
    for which, bounds in ((0, inner.first), (1, inner.last)):
        for index in bounds:
            here = index.substitute({axis: Index((), at[axis]) for axis in index.axes() - {rows}})
            low, high = here.bounds({rows: (at[rows], min(at[rows] + own.last_offset, own.extent - 1))})
            if which:
                end = min(end, (high // step + 1) * step)
            else:
                begin = max(begin, low // key.stride * key.stride)
    return min(max(begin, 0), extent), max(min(max(begin, 0), extent), min(end, extent))


def _key_step(stage: StageLike) -> int:
    """Keys are run up to a multiple of it: of those side by side in registers where rows lie in lanes, else of a
    block's."""
    key = stage.loops[stage.inner.at_loop - 1]
    beside = [loop.extent for loop in stage.inner.loops if loop.axis == key.axis and loop.kind == "unroll"]
    lanes = any(loop.kind == "lane" for loop in stage.loops)
    return int(beside[0]) if lanes and key.stride % beside[0] == 0 else int(key.stride)
