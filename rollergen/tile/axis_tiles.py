"""Tiles: how the loops of a stage cut each axis into tiles, one for each filling of a copy or each block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.tile.segments import Offsets, Progression


class LoopLike(Protocol):
    """What this module reads of a `program.rprogram.Loop` (which `tile` must not import)."""

    @property
    def axis(self) -> str: ...
    @property
    def extent(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def kind(self) -> str: ...


class StageLike(Protocol):
    """What this module reads of a `program.rprogram.Stage`."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> TensorOp: ...
    @property
    def loops(self) -> Sequence[LoopLike]: ...
    @property
    def copies(self) -> Sequence[Any]: ...
    @property
    def block_order(self) -> Any: ...
    @property
    def inner(self) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class AxisTiles:
    """One axis: where each tile begins (int64 [tiles]) and what it holds, relative and sorted.

    Elements at or beyond ``extent`` are not there.
    """

    axis: str
    extent: int
    bases: np.ndarray
    tile: np.ndarray | Progression

    @property
    def offsets(self) -> np.ndarray:
        if isinstance(self.tile, Progression):
            return np.arange(self.tile.count, dtype=np.int64) * self.tile.step
        return self.tile

    @property
    def last_offset(self) -> int:
        return (self.tile.count - 1) * self.tile.step if isinstance(self.tile, Progression) else int(self.tile[-1])

    @property
    def nonempty(self) -> int:
        return int((self.bases < self.extent).sum())

    def held(self) -> np.ndarray:
        """Elements of the tile inside the axis, for each tile."""
        room = self.extent - self.bases
        if isinstance(self.tile, Progression):
            return np.clip(-(-room // self.tile.step), 0, self.tile.count)
        return np.searchsorted(self.tile, room, side="left")


def axis_tiles(stage: StageLike, depth: int, digits: Mapping[int, int] | None = None) -> dict[str, AxisTiles]:
    """The tiles of each axis that are made by the loops at `depth` and deeper and all parallel loops.

    ``digits``: the block's own grid loop variables by position; None: all blocks.
    """
    found = {}
    for axis in stage.op.axes:
        bases = np.zeros(1, dtype=np.int64)
        inner = []
        for p, loop in enumerate(stage.loops):
            if loop.axis != axis.name:
                continue
            if loop.kind in ("group", "thread") or (p >= depth and loop.kind != "grid"):
                inner.append(loop)
                continue
            steps = np.arange(loop.extent) if digits is None or loop.kind != "grid" else np.array([digits[p]])
            bases = (bases[:, None] + steps * loop.stride).ravel()
            if loop.kind == "serial":
                bases = bases[bases < axis.extent]
        found[axis.name] = AxisTiles(axis.name, axis.extent, bases, tile_of(inner))
    return found


def tile_of(loops: Sequence[LoopLike]) -> np.ndarray | Progression:
    """Offsets that the given loops of one axis reach."""
    step, count = 1, 1
    plain = True
    for loop in sorted(loops, key=lambda loop: loop.stride):
        if loop.extent == 1:
            continue
        if count == 1:
            step = loop.stride
        plain = plain and loop.stride == step * count
        count *= loop.extent
    if plain:
        return Progression(count, step)
    offsets = np.zeros(1, dtype=np.int64)
    for loop in loops:
        offsets = (offsets[:, None] + np.arange(loop.extent) * loop.stride).ravel()
    return np.unique(offsets)


def block_digits(stage: StageLike, block: int) -> dict[int, int]:
    """Grid loop variables of a linear block number, `BlockOrder` applied."""
    grid = [(p, loop.extent) for p, loop in enumerate(stage.loops) if loop.kind == "grid"]
    width = stage.block_order.group_rows
    digits: dict[int, int] = {}
    if width and len(grid) >= 2:
        (p, rows_all), (q, columns) = grid[-2], grid[-1]
        block, number = divmod(block, rows_all * columns)
        group, rest = divmod(number, width * columns)
        rows = min(width, rows_all - group * width)
        digits[p], digits[q] = group * width + rest % rows, rest // rows
        grid = grid[:-2]
    for p, extent in reversed(grid):
        block, digits[p] = divmod(block, extent)
    return digits


__all__ = ["AxisTiles", "LoopLike", "Offsets", "StageLike", "axis_tiles", "block_digits", "tile_of"]
