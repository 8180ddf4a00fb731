"""What a stage's tiles store: each result stays at its tile, and all together are a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.interpreter.supersteps import Points
from rollergen.bsp.interpreter.tile_tensors import TileTensor, block_order, dense_bytes, strided, tile_tensor_of
from rollergen.bsp.program import matrix_instruction, partial_shape, round_up
from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.interpreter.points import both
from rollergen.program.rprogram import Stage

Array = Any


class Stored:
    """Results of a stage as they come, and at the end the tensor that they make on the tiles.

    ``tile``, ``place`` and ``values`` by element; -1 where nothing was stored.  ``place``: the place in the tile's
    block, of a padded one where tiles hold ``parts`` of sums.
    """

    def __init__(self, stage: Stage, device: Device, parts: bool) -> None:
        self.stage, self.device, self.parts = stage, device, parts
        self.op, self.output = stage.op, stage.op.output
        instruction = matrix_instruction(stage, device)
        self.unit = instruction.n if instruction is not None else 1
        block = {**partial_shape(stage, device)}
        block |= {axis.name: axis.extent for axis in self.op.of_role("row")}
        self.block = {axis.name: block[axis.name] for axis in self.op.axes if axis.name in block}
        self.order = tuple(block)
        self.tile = np.full(self.output.elements, -1, dtype=np.int32)
        self.place = np.full(self.output.elements, -1, dtype=np.int64)
        self.values = np.zeros(self.output.elements, numpy_dtype(self.output.dtype))
        self.count = 0
        self.strides = None if self.op.where else _strides(self.op)
        self._known: dict[tuple[int, ...], Array] = {}

    def take(self, tiles: Array, points: Points, results: Array) -> None:
        """The results at the points of some tiles; no tile comes twice."""
        sizes = {axis.name: size for axis, size in zip(self.op.axes, points.shape, strict=True)}
        shape = (len(tiles), *(size if name in self.block else 1 for name, size in sizes.items()))
        if self.strides is None:
            self._take_points(tiles, points, results, shape)
            return
        kept = (len(tiles), *(sizes[name] for name in self.block))
        self._take_blocks(tiles, points, np.broadcast_to(_ranked(results, len(shape)), shape).reshape(kept))

    def tensor(self) -> TileTensor:
        """Raises ProgramError where an element was stored twice, or never."""
        if self.count != np.count_nonzero(self.tile >= 0):
            raise ProgramError(f"stage {self.stage.name} stores an element of {self.output.name} twice")
        tiles = self.device.units
        if self.parts:
            held = np.bincount(self.tile[self.tile >= 0], minlength=tiles)
            padded = round_up(prod(self.block.values()) * ITEMSIZE[self.output.dtype])
            tensor = TileTensor(self.output, self.tile, self.place, np.where(held > 0, padded, 0))
        elif self.strides is None:
            tensor = tile_tensor_of(self.output, self.tile, self.place, tiles)
        else:
            tensor = TileTensor(self.output, self.tile, self.place, dense_bytes(self.output, self.tile, tiles))
        tensor.write(self.values)
        return tensor

    def _take_blocks(self, tiles: Array, points: Points, results: Array) -> None:
        """`results` [tile, axes of the block]: of each block what lies within the axes, elements at equal distances."""
        assert self.strides is not None
        begin, steps = self.strides
        extents = [self.op.axis(name).extent for name in self.block]
        first = np.zeros((len(tiles), len(extents)), dtype=np.int64)
        for column, name in enumerate(self.block):
            first[:, column] = points.values[name].reshape(len(points.values[name]), -1)[:, 0]
        sizes = np.minimum(np.array(results.shape[1:], dtype=np.int64), np.array(extents, dtype=np.int64) - first)
        begins = begin + first @ np.array(steps, dtype=np.int64)
        for row, (number, at, size) in enumerate(zip(tiles.tolist(), begins.tolist(), sizes.tolist(), strict=True)):
            if min(size, default=1) <= 0:
                continue
            inside = (row, *map(slice, size))
            self._store(at, tuple(size), number, results[inside])
            self.count += prod(size)

    def _store(self, begin: int, sizes: tuple[int, ...], tile: int, results: Array) -> None:
        assert self.strides is not None
        steps = self.strides[1]
        last = begin + sum(step * (size - 1) for step, size in zip(steps, sizes, strict=True))
        if not 0 <= begin <= last < self.output.elements:
            raise ProgramError(f"stage {self.stage.name} stores beyond {self.output.name}")
        for array, new in ((self.tile, tile), (self.place, self._places(sizes)), (self.values, results)):
            strided(array[begin:], sizes, [step * array.itemsize for step in steps])[...] = new

    def _places(self, sizes: tuple[int, ...]) -> Array:
        """Places of the first `sizes` results of a block: as in the whole block for parts, else one after the other."""
        if sizes not in self._known:
            grids = np.meshgrid(*map(np.arange, sizes), indexing="ij", sparse=True)
            local = dict(zip(self.block, grids, strict=True))
            block = {name: self.block[name] for name in self.order}
            places = np.broadcast_to(block_order(self.stage, local, block, self.unit), sizes)
            if not self.parts:
                ranks = np.empty(places.size, dtype=np.int64)
                ranks[np.argsort(places, axis=None, kind="stable")] = np.arange(places.size)
                places = ranks.reshape(sizes)
            self._known[sizes] = places
        return self._known[sizes]

    def _take_points(self, tiles: Array, points: Points, results: Array, shape: tuple[int, ...]) -> None:
        """Point by point, for those that are kept."""
        kept = points.executed("spatial", "row")
        for bound in self.op.where:
            kept = both(kept, bound.evaluate(points.values))
        full = lambda array: np.broadcast_to(_ranked(array, len(shape)), shape).reshape(-1)
        chosen = np.ones(prod(shape), dtype=bool) if kept is True else full(kept)
        flat = flat_of(self.op.target, self.output.shape, points.values, shape)[chosen]
        block = {name: self.block[name] for name in self.order}
        first = {name: points.values[name].reshape(len(points.values[name]), -1)[:, :1] for name in block}
        local = {name: points.values[name] - first[name].reshape(-1, *[1] * (len(shape) - 1)) for name in block}
        self.tile[flat] = full(tiles.reshape(-1, *[1] * (len(shape) - 1)))[chosen]
        self.place[flat] = full(block_order(self.stage, local, block, self.unit))[chosen]
        self.values[flat] = full(results)[chosen]
        self.count += len(flat)


def _strides(op: TensorOp) -> tuple[int, list[int]] | None:
    """(element of a stage's first point, distance of elements along each of its axes); None where that varies."""
    begin, stride = 0, 1
    steps = {axis.name: 0 for axis in op.of_role("spatial", "row")}
    for index, extent in reversed(list(zip(op.target, op.output.shape, strict=True))):
        begin += index.const * stride
        for atom, coefficient in index.terms:
            if atom not in steps or coefficient < 0:
                return None
            steps[str(atom)] += coefficient * stride
        stride *= extent
    return begin, [steps[axis.name] for axis in op.axes if axis.name in steps]


def flat_of(indices: Any, shape: tuple[int, ...], values: Mapping[str, Array], points: tuple[int, ...]) -> Array:
    """Flat element numbers at all points."""
    flat: Array = np.zeros((), dtype=np.int64)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index.evaluate(values)
    return np.broadcast_to(_ranked(flat, len(points)), points).reshape(-1)


def _ranked(array: Array, rank: int) -> Array:
    """With all leading dimensions; dimensions of reduce axes, which results do not have, are of size 1."""
    array = np.asarray(array)
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
