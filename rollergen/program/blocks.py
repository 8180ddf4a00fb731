"""Blocks of a grid: numbers decoded into positions, and samples of every edge class."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from rollergen.program.rprogram import GRID, Stage


def grid_positions(stage: Stage, blocks: Any) -> dict[int, Any]:
    """Values of the grid loops (by position in the nest) for block number(s), int64; see `BlockOrder`."""
    loops = stage.of_kind(GRID)
    rest = np.asarray(blocks, dtype=np.int64)
    found: dict[int, Any] = {}
    if stage.block_order.group_rows:
        (p, outer), (q, inner) = loops[-2:]
        rest, number = np.divmod(rest, outer.extent * inner.extent)
        found[p], found[q] = swizzled(number, outer.extent, inner.extent, stage.block_order.group_rows)
        loops = loops[:-2]
    elif descending := stage.block_order.descending:
        position, rows = loops[-1][0], loops[-1][1].extent
        found[position] = rows - 1 - rest // descending % rows
        rest, loops = rest // (descending * rows) * descending + rest % descending, loops[:-1]
    for position, loop in reversed(loops):
        rest, found[position] = np.divmod(rest, loop.extent)
    return found


def swizzled(number: Any, rows: int, columns: int, width: int) -> tuple[Any, Any]:
    """The (row, column) of the `number`-th block in groups of `width` rows, taken column by column."""
    group, rest = np.divmod(number, width * columns)
    height = np.minimum(width, rows - group * width)
    return group * width + rest % height, rest // height


def edge_blocks(stage: Stage, per_class: int = 1, seed: int = 0) -> tuple[int, ...]:
    """Block numbers, rising, that cover every edge class of the grid.

    A class is one combination of (first, interior, last) over the axes that the grid cuts; each class
    that exists gets up to `per_class` blocks, chosen at random but always the same for a `seed`.
    """
    numbers = np.arange(stage.blocks)
    positions = grid_positions(stage, numbers)
    classes = np.zeros(stage.blocks, dtype=np.int64)
    for own in _grid_axes(stage):
        along = np.zeros(stage.blocks, dtype=np.int64)
        for position, extent in own:
            along = along * extent + positions[position]
        last = prod(extent for _, extent in own) - 1
        classes = classes * 3 + np.where(along == 0, 0, np.where(along == last, 2, 1))
    random = np.random.default_rng(seed)
    chosen = [_some(numbers[classes == kind], per_class, random) for kind in np.unique(classes)]
    return tuple(sorted(int(n) for n in np.concatenate(chosen)))


def _grid_axes(stage: Stage) -> Iterator[tuple[tuple[int, int], ...]]:
    """(position, extent) of the grid loops of each axis, by falling stride."""
    for axis in stage.op.axes:
        own = tuple((p, loop.extent) for p, loop in stage.of_axis(axis.name) if loop.kind == GRID)
        if own:
            yield own


def _some(members: Any, count: int, random: np.random.Generator) -> Any:
    return members if len(members) <= count else random.choice(members, size=count, replace=False)


def edge_classes(stage: Stage) -> int:
    """The number of classes that `edge_blocks` distinguishes for the stage."""
    sizes = [prod(extent for _, extent in own) for own in _grid_axes(stage)]
    return len(list(product(*(range(min(3, size)) for size in sizes))))
