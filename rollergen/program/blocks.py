"""Blocks of a grid: numbers decoded into positions."""

from __future__ import annotations

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
