"""Supersteps' exchanges: copies gathered from the owners of elements.

This is the only place where one tile sees another's data.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.interpreter.supersteps import Points
from rollergen.bsp.interpreter.tile_tensors import TileTensor, strided
from rollergen.bsp.program import (
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
from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import Stage

Array = Any


class Counts:
    """Bytes received and sent and fragments received, for each [tile, superstep] of a stage."""

    def __init__(self, tiles: int, steps: int) -> None:
        self.received, self.sent, self.fragments = (np.zeros((tiles, steps), dtype=np.int64) for _ in range(3))

    def send(self, tensor: TileTensor, elements: Array, step: int) -> None:
        """Elements (numbers, or one truth each) that leave their tile, each once however many listen."""
        item = ITEMSIZE[tensor.buffer.dtype]
        self.sent[:, step] += item * np.bincount(tensor.tile[elements], minlength=len(self.sent))


@dataclass(frozen=True, eq=False)
class Local:
    """A load's data on some tiles: ``values`` [tile, position along each dimension], position 0 at ``low``."""

    load: Load
    low: tuple[Array, ...]
    values: Array

    def window(self, points: Points) -> Array | None:
        """The elements at all points, [tile, axis by axis], as a view of the copies; None where places do not follow
        from the axes' positions alone, alike on every tile, or some lie outside the copy."""
        names = [axis.name for axis in points.op.axes]
        shape, strides, begin = [1] * len(names), [0] * len(names), 0
        parts = zip(self.low, self.load.indices, self.values.shape[1:], self.values.strides[1:], strict=True)
        for low, index, size, stride in parts:
            if not index.is_affine:
                return None
            place, reach = -low, [0, 0]
            for atom, coefficient in index.terms:
                name = str(atom)
                d, step = names.index(name), coefficient // spacing(index)
                shape[d] = points.shape[d]
                strides[d] += step * stride
                place = place + step * points.values[name].reshape(len(points.values[name]), -1)[:, 0]
                reach[step > 0] += step * (points.shape[d] - 1)
            if place.min() != place.max() or place[0] + reach[0] < 0 or place[0] + reach[1] >= size:
                return None
            begin += int(place[0]) * stride
        flat = self.values.reshape(-1)[begin // self.values.itemsize :]
        return strided(flat, (len(self.values), *shape), (self.values.strides[0], *strides), writeable=False)

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


@dataclass(frozen=True, slots=True)
class _Box:
    """Elements of a tensor, and their places in a tile's copy; ``whole``: every place of the copy has one."""

    tensor: tuple[slice, ...]
    copy: tuple[slice, ...]
    whole: bool


def _box(load: Load, shape: Sequence[int], low: list[int], first: list[int], last: list[int]) -> _Box:
    """Positions `first` to `last` of a copy that begins at `low`; an empty box where one lies behind the other."""
    tensor, copy, whole = [], [], True
    for index, size, begin, one, other in zip(load.indices, shape, low, first, last, strict=True):
        end, step = max(one, other + 1), spacing(index)
        begins = index.const + step * one
        tensor.append(slice(begins, begins + step * (end - one), step))
        copy.append(slice(one - begin, end - begin))
        whole = whole and end - one == size
    return _Box(tuple(tensor), tuple(copy), whole)


class Gather:
    """One load of a stage under execution: which elements each tile's copy holds, superstep by superstep."""

    def __init__(self, stage: Stage, number: int, tensor: TileTensor, ranges: Ranges, device: Device) -> None:
        self.stage, self.number, self.tensor = stage, number, tensor
        self.load = stage.op.loads()[number]
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
        boxes = self._boxes(tiles, at)
        addresses = self._addresses(boxes)
        real = True if all(box.whole for box in boxes) else addresses >= 0
        sender = addresses // self.tensor.width
        if not self.copied:
            self._require_own(tiles, sender, real)
        elif step == 0 or self.stepped:
            self._count(tiles, boxes, addresses, sender, step, counts)
        return Local(self.load, tuple(low[tiles, at] for low in self.low), self._values(addresses, real, where))

    def finish(self, counts: Counts) -> None:
        """Counts what was sent: once for each superstep in which anybody listened."""
        for step, sent in self.sending.items():
            counts.send(self.tensor, sent.reshape(-1), step)

    def _boxes(self, tiles: Array, at: int) -> list[_Box]:
        """What of the tensor each tile's copy has, and where in the copy."""
        if not self.low:
            return [_Box((), (), True)] * len(tiles)
        lows, highs = (np.stack([ends[tiles, at] for ends in both], 1) for both in (self.low, self.high))
        spans = tensor_intervals(self.load)
        first = np.maximum(lows, [span[0] for span in spans])
        last = np.minimum(np.minimum(highs, [span[1] for span in spans]), lows + np.array(self.shape) - 1)
        return [
            _box(self.load, self.shape, *ends)
            for ends in zip(lows.tolist(), first.tolist(), last.tolist(), strict=True)
        ]

    def _addresses(self, boxes: list[_Box]) -> Array:
        """[tile, positions...]: where each element of the copies lives; -1 where a copy holds none."""
        addresses = self.tensor.address.reshape(self.load.buffer.shape)
        found: Array = np.full((len(boxes), *self.shape), -1, dtype=np.int64)
        for row, box in enumerate(boxes):
            found[(row, *box.copy)] = addresses[box.tensor]
        return found

    def _values(self, addresses: Array, real: Array, where: str) -> Array:
        if real is True:
            return self.tensor.read(addresses, where)
        values = np.zeros(addresses.shape, numpy_dtype(self.load.dtype))
        if self.load.dtype.startswith(("float", "bfloat")):
            values[...] = np.nan
        values[real] = self.tensor.read(addresses[real], where)
        return values

    def _require_own(self, tiles: Array, sender: Array, real: Array) -> None:
        if np.any(real & (sender != tiles.reshape(-1, *[1] * len(self.shape)))):
            raise ProgramError(
                f"stage {self.stage.name}: reads {self.load.buffer.name} of another tile; "
                "expected the load among copied"
            )

    def _count(
        self, tiles: Array, boxes: list[_Box], addresses: Array, sender: Array, step: int, counts: Counts
    ) -> None:
        remote = (addresses >= 0) & (sender != tiles.reshape(-1, *[1] * len(self.shape)))
        sending = self.sending.setdefault(step, np.zeros(self.load.buffer.shape, dtype=bool))
        for row, box in enumerate(boxes):
            sending[box.tensor] |= remote[(row, *box.copy)]
        ordered, sender, remote = map(self._in_order, (addresses, sender, remote))
        received = np.count_nonzero(remote, axis=1)
        next_place = (ordered[:, 1:] == ordered[:, :-1] + 1) & (sender[:, 1:] == sender[:, :-1])
        goes_on = remote[:, 1:] & remote[:, :-1] & next_place
        counts.received[tiles, step] += ITEMSIZE[self.load.dtype] * received
        counts.fragments[tiles, step] += received - np.count_nonzero(goes_on, axis=1)

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
        transposed = elements.reshape(len(elements), *split)
        order = [where[digit.dim, digit.block] for digit in self.digits]
        return transposed.transpose(0, *order).reshape(len(elements), -1)
