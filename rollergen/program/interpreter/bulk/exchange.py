"""Supersteps' exchanges: copies gathered from the tiles' homes, the only place where one tile sees another's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.program.bulk import (
    Ranges,
    copy_digits,
    held_intervals,
    padded_units,
    round_up,
    spacing,
    steps_of_load,
    superstep,
    tensor_intervals,
)
from rollergen.program.interpreter.bulk.homes import TileTensor
from rollergen.program.rprogram import Stage

Array = Any


class Counts:
    """Bytes received and sent and fragments received, for each [tile, superstep] of a stage."""

    def __init__(self, tiles: int, steps: int) -> None:
        self.received, self.sent, self.fragments = (np.zeros((tiles, steps), dtype=np.int64) for _ in range(3))

    def send(self, tensor: TileTensor, elements: Array, step: int) -> None:
        """Elements that leave their tile, each once however many listen."""
        item = ITEMSIZE[tensor.buffer.dtype]
        self.sent[:, step] += item * np.bincount(tensor.tile[elements], minlength=len(self.sent))


@dataclass(frozen=True, eq=False)
class Local:
    """A load's data on some tiles: ``values`` [tile, position along each dimension], position 0 at ``low``."""

    load: Load
    low: tuple[Array, ...]
    values: Array

    def read(self, positions: Sequence[Array], wanted: Array, where: str) -> Array:
        """Elements at tensor positions (arrays [tile, ...]), each row's from its own row only.

        Raises ProgramError where a wanted element is outside the tile's copy.
        """
        at, inside = [], np.ones((), dtype=bool)
        for low, position, index, size in zip(
            self.low, positions, self.load.indices, self.values.shape[1:], strict=True
        ):
            position = (np.asarray(position) - index.const) // spacing(index)
            position = position - low.reshape(-1, *[1] * (np.ndim(position) - 1))
            inside = inside & (position >= 0) & (position < size)
            at.append(np.clip(position, 0, size - 1))
        if not np.all(inside | ~np.asarray(wanted)):
            raise ProgramError(f"{where}: a tile reads {self.load.buffer.name} beyond what it holds")
        rank = max((np.ndim(a) for a in at), default=1)
        if all(np.ndim(a) == rank and (len(a) == 1 or np.array_equal(a[:1].repeat(len(a), 0), a)) for a in at):
            # The same places in every row, as where no block is cut: one list of places for all of them.
            flat = np.ravel_multi_index(np.broadcast_arrays(*(a[0] for a in at)), self.values.shape[1:]) if at else 0
            return np.take(self.values.reshape(len(self.values), -1), flat, axis=1)
        rows = np.arange(len(self.values)).reshape(-1, *[1] * (rank - 1))
        return self.values[(rows, *at)]


class Gather:
    """One load of a stage under execution: which elements each tile's copy holds, superstep by superstep."""

    def __init__(self, stage: Stage, number: int, tensor: TileTensor, ranges: Ranges, device: Device) -> None:
        self.stage, self.number, self.tensor = stage, number, tensor
        self.load = stage.definition.loads()[number]
        self.copied = number in superstep(stage).copied
        self.stepped = steps_of_load(stage, self.load)
        shape = (ranges.tiles, ranges.steps)
        self.low, self.high = [], []
        for low, high in held_intervals(self.load, ranges):
            self.low.append(np.broadcast_to(low, shape))
            self.high.append(np.broadcast_to(high, shape))
        sizes = [max(1, int((h - x).max()) + 1) for x, h in zip(self.low, self.high, strict=True)]
        units = padded_units(stage, number, device)
        self.shape = tuple(round_up(size, units.get(d, 1)) for d, size in enumerate(sizes))
        self.digits = copy_digits(stage, number, device)
        self.sending: dict[int, Array] = {}

    @property
    def bytes(self) -> int:
        """Memory of one tile's copy."""
        return int(round_up(prod(self.shape) * ITEMSIZE[self.load.dtype])) if self.copied else 0

    def fetch(self, tiles: Array, step: int, counts: Counts, where: str) -> Local:
        """The copies of some tiles for one superstep, and what they cost to bring."""
        at = step if self.stepped else 0
        elements = self._elements(tiles, at)
        if not self.copied:
            self._require_own(tiles, elements, where)
        elif step == 0 or self.stepped:
            self._count(tiles, elements, step, counts)
        values = np.zeros(elements.shape, numpy_dtype(self.load.dtype))
        if self.load.dtype.startswith(("float", "bfloat")):
            values[...] = np.nan
        real = elements >= 0
        values[real] = self.tensor.read(elements[real], where)
        return Local(self.load, tuple(low[tiles, at] for low in self.low), values)

    def finish(self, counts: Counts) -> None:
        """Counts what was sent: once for each superstep in which anybody listened."""
        for step, sent in self.sending.items():
            counts.send(self.tensor, np.flatnonzero(sent), step)

    def _elements(self, tiles: Array, at: int) -> Array:
        """[tile, positions...]: the element's flat number, -1 where the copy holds none."""
        flat: Array = np.zeros((len(tiles), *[1] * len(self.shape)), dtype=np.int64)
        real: Array = np.ones_like(flat, dtype=bool)
        stride = 1
        spans = list(zip(self.load.indices, self.load.buffer.shape, tensor_intervals(self.load), strict=True))
        for d in reversed(range(len(self.shape))):
            index, extent, (first, last) = spans[d]
            low, high = self.low[d][tiles, at], self.high[d][tiles, at]
            position = low[:, None] + np.arange(self.shape[d])
            good = (position >= first) & (position <= np.minimum(last, high[:, None]))
            axes = [len(tiles), *[1] * len(self.shape)]
            axes[d + 1] = self.shape[d]
            flat = flat + ((index.const + spacing(index) * position) * stride).reshape(axes)
            real = real & good.reshape(axes)
            stride *= extent
        return np.where(real, flat, -1)

    def _require_own(self, tiles: Array, elements: Array, where: str) -> None:
        real = elements >= 0
        owner = np.broadcast_to(tiles.reshape(-1, *[1] * len(self.shape)), elements.shape)[real]
        if np.any(self.tensor.tile[elements[real]] != owner):
            raise ProgramError(
                f"{where}: reads {self.load.buffer.name} of another tile; expected the load among copied"
            )

    def _count(self, tiles: Array, elements: Array, step: int, counts: Counts) -> None:
        ordered = self._in_order(elements)
        real = ordered >= 0
        known = np.where(real, ordered, 0)
        sender, slot = self.tensor.tile[known], self.tensor.slot[known]
        remote = real & (sender != tiles[:, None])
        counts.received[tiles, step] += ITEMSIZE[self.load.dtype] * remote.sum(axis=1)
        goes_on = remote[:, 1:] & remote[:, :-1] & (sender[:, 1:] == sender[:, :-1]) & (slot[:, 1:] == slot[:, :-1] + 1)
        counts.fragments[tiles, step] += remote.sum(axis=1) - goes_on.sum(axis=1)
        sending = self.sending.setdefault(step, np.zeros(self.load.buffer.elements, dtype=bool))
        sending[ordered[remote]] = True

    def _in_order(self, elements: Array) -> Array:
        """[tile, place]: the copy as it lies in memory."""
        split: list[int] = []
        where: dict[tuple[int, bool], int] = {}
        units = {digit.dim: digit.unit for digit in self.digits}
        for d, size in enumerate(self.shape):
            where[d, True] = len(split) + 1
            split.append(size // units[d])
            if units[d] > 1:
                where[d, False] = len(split) + 1
                split.append(units[d])
        turned = elements.reshape(len(elements), *split)
        order = [where[digit.dim, digit.block] for digit in self.digits]
        return turned.transpose(0, *order).reshape(len(elements), -1)
