"""Where every element of a tensor lives: a tile and an address there, found from the elements that blocks touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.values import Buffer, Load
from rollergen.hal.spec import Device
from rollergen.program.bulk import (
    GRANULE_BYTES,
    Digit,
    block_extents,
    copy_digits,
    held_intervals,
    ranges_of,
    spacing,
    steps_of_load,
    superstep,
    tensor_intervals,
)
from rollergen.program.rprogram import Stage

Array = Any


class TileTensor:
    """One tensor across the tiles' memories: for each element its tile and slot (elements from the home's start).

    Rows of ``values`` are tiles; what nobody wrote is NaN there, and False in ``written`` for dtypes without one.
    """

    def __init__(self, buffer: Buffer, tile: Array, slot: Array, bytes_of_tile: Array) -> None:
        if np.any(tile < 0):
            raise ProgramError(f"{buffer.name}: {int(np.sum(tile < 0))} elements have no home; expected one for each")
        self.buffer, self.tile, self.slot, self.bytes = buffer, tile, slot, bytes_of_tile
        self._width = int(slot.max()) + 1 if len(slot) else 1
        self._tiles = len(bytes_of_tile)
        dtype = numpy_dtype(buffer.dtype)
        self.values = np.zeros((self._tiles, self._width), dtype)
        if dtype.kind == "f" or buffer.dtype == "bfloat16":
            self.values[...] = np.nan
        self.written = np.zeros((self._tiles, self._width), dtype=bool)

    def write(self, elements: Array, values: Array) -> None:
        """Elements (flat numbers) at their homes, each for the first time."""
        where = self.tile[elements], self.slot[elements]
        if np.any(self.written[where]):
            raise ProgramError(f"{self.buffer.name}: an element, or another at its place, is stored twice")
        self.values[where] = values
        self.written[where] = True
        if np.sum(self.written[where]) != len(elements):
            raise ProgramError(f"{self.buffer.name}: two elements share a place in a tile")

    def read(self, elements: Array, where: str) -> Array:
        """What the homes of `elements` hold; ProgramError where nothing was written."""
        at = self.tile[elements], self.slot[elements]
        if not np.all(self.written[at]):
            raise ProgramError(f"{where}: reads elements of {self.buffer.name} that were never written")
        return self.values[at]

    def whole(self) -> tuple[Array, Array]:
        """(the tensor, which elements were written)."""
        at = self.tile, self.slot
        return self.values[at].reshape(self.buffer.shape), self.written[at].reshape(self.buffer.shape)


def tile_tensor_of(buffer: Buffer, tile: Array, order: Array, tiles: int, padded_bytes: int = 0) -> TileTensor:
    """A tensor each of whose elements stays at ``tile``, there in the order of ``order``.

    ``padded_bytes``: memory that each tile of it takes, where ``order`` is a place in a padded array; 0: dense.
    """
    held = np.bincount(tile[tile >= 0], minlength=tiles)
    item = ITEMSIZE[buffer.dtype]
    if padded_bytes:
        return TileTensor(buffer, tile, order, np.where(held > 0, padded_bytes, 0))
    by = np.lexsort((order, tile))
    slot = np.empty(len(tile), dtype=np.int64)
    begin = np.concatenate([[0], np.cumsum(np.bincount(tile, minlength=tiles))])
    slot[by] = np.arange(len(tile)) - begin[tile[by]]
    return TileTensor(buffer, tile, slot, -(-held * item // GRANULE_BYTES) * GRANULE_BYTES)


@dataclass(frozen=True, eq=False)
class Boxes:
    """What tiles want of a tensor: distinct boxes (first, last position along each dimension), and for each the
    tiles that want it."""

    first: Array
    last: Array
    tiles: tuple[Array, ...]


def planned(stage: Stage, number: int, buffer: Buffer, device: Device) -> TileTensor:
    """The home of an input, dealt to the tiles that want its elements for load `number` of `stage`."""
    load = stage.definition.loads()[number]
    boxes = _boxes(stage, load)
    tile = np.full(load.buffer.elements, -1, dtype=np.int64)
    slot = np.zeros(load.buffer.elements, dtype=np.int64)
    marks = _marks(load, boxes)
    order = _order_keys(stage, number, device)
    filled = np.zeros(device.units, dtype=np.int64)  # granules of each tile's home in use
    elements = np.lexsort((order, marks))
    _, begins, counts = np.unique(marks[elements], return_index=True, return_counts=True)
    wanting = _wanting(load, boxes, elements[begins])
    each = GRANULE_BYTES // ITEMSIZE[buffer.dtype]
    for begin, count, members in zip(begins, counts, wanting, strict=True):
        # What nobody wants lies with all, in the order of the tensor.
        of = members if len(members) else np.arange(stage.blocks)
        mine = elements[begin : begin + count]
        granule = np.arange(count) // each
        total, r = -(-count // each), len(of)
        short, longer = total // r, total % r
        edge = longer * (short + 1)
        number_of = np.where(
            granule < edge, granule // (short + 1), longer + (granule - edge) // max(1, short)
        )
        start = np.where(number_of < longer, number_of * (short + 1), edge + (number_of - longer) * short)
        tile[mine] = of[number_of]
        slot[mine] = (filled[of[number_of]] - start) * each + np.arange(count)
        filled[of] += short + (np.arange(r) < longer)
    return TileTensor(buffer, tile, slot, filled * GRANULE_BYTES)


def _boxes(stage: Stage, load: Load) -> Boxes:
    """Distinct boxes over all tiles and supersteps; a superstep's boxes are another block's."""
    ranges = ranges_of(stage, whole=not steps_of_load(stage, load))
    shape = (ranges.tiles, ranges.steps)
    firsts, lasts = [], []
    for (low, high), (least, most) in zip(held_intervals(load, ranges), tensor_intervals(load), strict=True):
        firsts.append(np.broadcast_to(np.maximum(low, least), shape).reshape(-1))
        lasts.append(np.broadcast_to(np.minimum(high, most), shape).reshape(-1))
    rows = np.stack([*firsts, *lasts], axis=1) if firsts else np.zeros((shape[0] * shape[1], 0), dtype=np.int64)
    some = np.all(rows[:, : len(firsts)] <= rows[:, len(firsts) :], axis=1)
    tiles = np.repeat(np.arange(shape[0]), shape[1])[some]
    distinct, which = np.unique(rows[some], axis=0, return_inverse=True)
    which = which.reshape(-1)
    by = np.lexsort((tiles, which))
    split = np.split(tiles[by], np.cumsum(np.bincount(which, minlength=len(distinct)))[:-1])
    return Boxes(distinct[:, : len(firsts)], distinct[:, len(firsts) :], tuple(np.unique(one) for one in split))


def _slices(load: Load, boxes: Boxes, box: int) -> tuple[slice, ...]:
    found = []
    for d, index in enumerate(load.indices):
        step = spacing(index)
        low, high = (index.const + step * int(end[box, d]) for end in (boxes.first, boxes.last))
        found.append(slice(low, high + 1, step))
    return tuple(found)


def _marks(load: Load, boxes: Boxes) -> Array:
    """A number for each element that tells apart sets of boxes: the sum of random numbers of 64 bits of its boxes."""
    keys = np.random.default_rng(7).integers(1, 1 << 63, len(boxes.tiles), dtype=np.uint64)
    marks = np.zeros(load.buffer.shape, dtype=np.uint64)
    for box, key in enumerate(keys):
        marks[_slices(load, boxes, box)] += key
    return marks.reshape(-1)


def _wanting(load: Load, boxes: Boxes, elements: Array) -> list[Array]:
    """For each of `elements`, the tiles that want it, rising."""
    inside = np.ones((len(elements), len(boxes.tiles)), dtype=bool)
    coordinates = np.unravel_index(elements, load.buffer.shape) if load.buffer.shape else ()
    for d, (at, index) in enumerate(zip(coordinates, load.indices, strict=True)):
        whole, rest = np.divmod(np.asarray(at)[:, None] - index.const, spacing(index))
        inside &= (rest == 0) & (whole >= boxes.first[None, :, d]) & (whole <= boxes.last[None, :, d])
    return [
        np.unique(np.concatenate([boxes.tiles[box] for box in np.flatnonzero(row)])) if row.any() else np.zeros(0, int)
        for row in inside
    ]


def _order_keys(stage: Stage, number: int, device: Device) -> Array:
    """Numbers that order the elements of a load's tensor as they lie in copies."""
    load = stage.definition.loads()[number]
    blocks = _chunks(stage)
    keys = np.zeros(load.buffer.shape, dtype=np.int64)
    for digit in copy_digits(stage, number, device):
        index, extent = load.indices[digit.dim], load.buffer.shape[digit.dim]
        positions = (np.arange(extent) - index.const) // spacing(index)
        names = [str(atom) for atom, _ in index.terms] if index.is_affine else []
        if len(names) == 1 and digit.unit > 1:
            positions = positions % blocks[names[0]]
        value = positions // digit.unit if digit.block else positions % digit.unit
        value = value - value.min()
        shape = [1] * len(load.buffer.shape)
        shape[digit.dim] = extent
        keys = keys * (int(value.max()) + 1) + value.reshape(shape)
    return keys.reshape(-1)


def _chunks(stage: Stage) -> Mapping[str, int]:
    """Elements along each axis of one tile's block in one superstep."""
    blocks = block_extents(stage)
    for position in superstep(stage).steps:
        loop = stage.loops[position]
        blocks[loop.axis] = min(blocks[loop.axis], loop.stride)
    return blocks


def block_order(stage: Stage, local: Mapping[str, Array], shape: Mapping[str, int], unit: int) -> Array:
    """Places of a block's results: [outputs / unit][others][unit], others in the order of the axes."""
    split = superstep(stage).outputs if unit > 1 else ""
    names: Sequence[str] = list(shape)
    digits = [Digit(names.index(split), unit, True)] if split else []
    digits += [Digit(n, 1, True) for n, name in enumerate(names) if name != split]
    digits += [Digit(names.index(split), unit, False)] if split else []
    order: Array = np.zeros((), dtype=np.int64)
    for digit in digits:
        name = names[digit.dim]
        size = -(-shape[name] // digit.unit) if digit.block else digit.unit
        value = local[name] // digit.unit if digit.block else local[name] % digit.unit
        order = order * size + value
    return order
