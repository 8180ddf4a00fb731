"""Where every element of a tensor lives: a tile and an address there, found from the elements that blocks touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rollergen.bsp.program import (
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
from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, is_float, numpy_dtype
from rollergen.expr.values import Buffer, Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import Stage

Array = Any


class TileTensor:
    """One tensor across the tiles' memories: for each element (flat number) its tile, and its address in all memories
    together, tile * width + slot.  What nobody wrote is NaN there, and False in ``written`` for dtypes without one.

    Raises ProgramError where an element has no owner, or two have the same place.
    """

    def __init__(self, buffer: Buffer, tile: Array, slot: Array, bytes_of_tile: Array) -> None:
        if np.any(tile < 0):
            raise ProgramError(f"{buffer.name}: {int(np.sum(tile < 0))} elements have no owner; expected one for each")
        self.buffer, self.tile, self.bytes = buffer, tile, bytes_of_tile
        self.width = int(slot.max()) + 1 if len(slot) else 1
        self.address = tile * np.int64(self.width) + slot
        places = len(bytes_of_tile) * self.width
        self.values = np.zeros(places, numpy_dtype(buffer.dtype))
        if is_float(buffer.dtype):
            self.values[...] = np.nan
        self.written = np.zeros(places, dtype=bool)
        self.written[self.address] = True
        if np.count_nonzero(self.written) != len(tile):
            raise ProgramError(f"{buffer.name}: two elements share a place in a tile")
        self.written[...] = False
        self._complete = False

    def write(self, values: Array) -> None:
        """All elements, in the order of the tensor, brought to their owners."""
        self.values[self.address] = values
        self.written[self.address] = True
        self._complete = True

    def read(self, addresses: Array, where: str) -> Array:
        """What stands at addresses of elements; ProgramError where nothing was written."""
        if not self._complete and not np.all(self.written[addresses]):
            raise ProgramError(f"{where}: reads elements of {self.buffer.name} that were never written")
        return self.values[addresses]

    def whole(self) -> tuple[Array, Array]:
        """(the tensor, which elements were written)."""
        shape = self.buffer.shape
        return self.values[self.address].reshape(shape), self.written[self.address].reshape(shape)


def tile_tensor_of(buffer: Buffer, tile: Array, order: Array, tiles: int) -> TileTensor:
    """A tensor each of whose elements stays at ``tile``, there in the order of ``order``."""
    by = np.lexsort((order, tile))
    slot = np.empty(len(tile), dtype=np.int64)
    begin = np.concatenate([[0], np.cumsum(np.bincount(tile, minlength=tiles))])
    slot[by] = np.arange(len(tile)) - begin[tile[by]]
    return TileTensor(buffer, tile, slot, dense_bytes(buffer, tile, tiles))


def dense_bytes(buffer: Buffer, tile: Array, tiles: int) -> Array:
    """Bytes that each tile owns where elements lie one after the other."""
    held = np.bincount(tile[tile >= 0], minlength=tiles)
    return -(-held * ITEMSIZE[buffer.dtype] // GRANULE_BYTES) * GRANULE_BYTES


@dataclass(frozen=True, eq=False)
class Boxes:
    """What tiles want of a tensor: distinct boxes (first, last position along each dimension), and for each the
    tiles that want it."""

    first: Array
    last: Array
    tiles: tuple[Array, ...]


def planned(stage: Stage, number: int, buffer: Buffer, device: Device) -> TileTensor:
    """The place of an input, dealt to the tiles that want its elements for load `number` of `stage`."""
    load = stage.op.loads()[number]
    boxes = _boxes(stage, load)
    elements, begins, counts = _grouped(_marks(load, boxes), _order_of_copies(stage, number, device))
    each = GRANULE_BYTES // ITEMSIZE[buffer.dtype]
    filled = np.zeros(device.units, dtype=np.int64)  # granules in use of each tile
    owners, lengths, slots = [], [], []
    for count, members in zip(counts, _wanting(load, boxes, elements[begins]), strict=True):
        # What nobody wants lies with all, in the order of the tensor.
        of = members if len(members) else np.arange(stage.blocks)
        short, longer = divmod(-(-int(count) // each), len(of))
        dealt = short + (np.arange(len(of)) < longer)
        ends = np.minimum(np.cumsum(dealt) * each, count)
        owners.append(of)
        lengths.append(np.diff(ends, prepend=0))
        slots.append(filled[of] * each)
        filled[of] += dealt
    size = np.concatenate(lengths)
    tile, slot = np.empty(len(elements), dtype=np.int32), np.empty(len(elements), dtype=np.int64)
    tile[elements] = np.repeat(np.concatenate(owners).astype(np.int32), size)
    slot[elements] = np.arange(len(elements)) + np.repeat(np.concatenate(slots) - (np.cumsum(size) - size), size)
    return TileTensor(buffer, tile, slot, filled * GRANULE_BYTES)


def _grouped(marks: Array, order: Array | None) -> tuple[Array, Array, Array]:
    """(elements by mark, then in `order`; where each group begins; its size): whole runs of a mark are moved."""
    ordered = marks if order is None else marks[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(starts, append=len(ordered))
    _, group = np.unique(ordered[starts], return_inverse=True)
    narrow = group.astype(np.uint16) if len(group) and group.max() < 1 << 16 else group  # sorted digit by digit
    by = np.argsort(narrow, kind="stable")
    moved = lengths[by]
    elements = np.arange(len(ordered)) + np.repeat(starts[by] - (np.cumsum(moved) - moved), moved)
    counts = np.bincount(group, weights=lengths).astype(np.int64)
    return elements if order is None else order[elements], np.cumsum(counts) - counts, counts


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
    split = np.split(tiles[by], np.cumsum(np.bincount(which, minlength=len(distinct))))[: len(distinct)]
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
    found = []
    for row in inside:
        wanted = np.flatnonzero(row)
        several = len(wanted) != 1
        every = [boxes.tiles[box] for box in wanted]
        found.append(np.unique(np.concatenate([np.zeros(0, int), *every])) if several else every[0])
    return found


def _order_of_copies(stage: Stage, number: int, device: Device) -> Array | None:
    """The elements of a load's tensor as they lie in copies, equal places in the order of the tensor; None where that
    is the order of the tensor."""
    load, digits = stage.op.loads()[number], copy_digits(stage, number, device)
    tables = [_coordinates(stage, load, d, digits) for d in range(len(load.indices))]
    plain = [digit.dim for digit in digits] == list(range(len(tables)))
    if plain and all(table.shape == (extent, 1) for table, extent in zip(tables, load.buffer.shape, strict=True)):
        return None
    flat: Array = np.zeros((), dtype=np.int64)
    real: Array = np.ones((), dtype=bool)
    stride = 1
    for d in reversed(range(len(tables))):
        axes = [n for n, digit in enumerate(digits) if digit.dim == d]
        shape = [1] * (len(digits) + len(tables))
        for axis, size in zip((*axes, len(digits) + d), tables[d].shape, strict=True):
            shape[axis] = size
        table = tables[d].reshape(shape)
        flat, real = flat + table * stride, real & (table >= 0)
        stride *= load.buffer.shape[d]
    return flat.reshape(-1) if real.all() else flat[np.broadcast_to(real, flat.shape)]


def _coordinates(stage: Stage, load: Load, dim: int, digits: Sequence[Digit]) -> Array:
    """Coordinates along a dimension by the values of its digits, then rising: -1 where there is none."""
    index, blocks = load.indices[dim], _chunks(stage)
    positions = (np.arange(load.buffer.shape[dim]) - index.const) // spacing(index)
    names = [str(atom) for atom, _ in index.terms] if index.is_affine else []
    values = []
    for digit in digits:
        if digit.dim == dim:
            within = positions % blocks[names[0]] if len(names) == 1 and digit.unit > 1 else positions
            value = within // digit.unit if digit.block else within % digit.unit
            values.append(value - value.min())
    sizes = [int(value.max()) + 1 for value in values]
    key = np.ravel_multi_index(values, sizes)
    by = np.argsort(key, kind="stable")
    first = np.searchsorted(key[by], key[by])
    rank = np.empty(len(key), dtype=np.int64)
    rank[by] = np.arange(len(key)) - first
    table = np.full((*sizes, int(rank.max()) + 1), -1)
    table[(*values, rank)] = np.arange(len(key))
    return table


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


def strided(array: np.ndarray, shape: Sequence[int], strides: Sequence[int], writeable: bool = True) -> np.ndarray:
    """A view with other extents and strides in bytes, of any dtype: NumPy's own knows no floats of 8 bits."""
    words = array.view(f"u{array.itemsize}")
    return as_strided(words, tuple(shape), tuple(strides), writeable=writeable).view(array.dtype)
