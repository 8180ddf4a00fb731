"""Whole tiles of an output that are compared with the oracle: those of every edge class first, then the others.

A box is a tile of the program's blocks, cut along its longest axes or put together with its neighbours along the last
ones until it has `LEAST` to `MOST` elements: the oracle shares what the elements of a box have in common.
"""

from __future__ import annotations

from itertools import product
from math import ceil, prod

import numpy as np

from rollergen.expr.tensor_op import Axis, TensorOp, summed_axes
from rollergen.gate.points import output_offsets
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import GRID, RProgram, Stage

LEAST, MOST = 1 << 10, 1 << 12
"""Elements of a box."""

CORNERS = 64
"""Up to so many combinations of first and last boxes are all edge classes."""

SHARE = 10
"""Of the boxes that are no edge classes, one in so many is compared whatever it costs."""

Points = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class Tiling:
    """The boxes of what one tensor op stores: ``order`` numbers them, the first ``needed`` must be compared."""

    op: TensorOp
    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    order: np.ndarray
    needed: int

    def points(self, number: int, shape: tuple[int, ...]) -> Points:
        """Coordinates of a box in an output of this shape: one integer array for each dimension, to be broadcast
        together, none larger than what it tells."""
        place = np.unravel_index(number, _counts(self.axes, self.sizes)) if self.axes else ()
        box = [
            np.arange(at * size, min(axis.extent, (at + 1) * size))
            for at, size, axis in zip(map(int, place), self.sizes, self.axes, strict=True)
        ]
        mesh = [column.reshape(-1) for column in np.meshgrid(*box, indexing="ij")]
        columns = {axis.name: column for axis, column in zip(self.axes, mesh, strict=True)}
        for axis in self.op.of_role("spatial", "row"):
            columns.setdefault(axis.name, np.zeros(prod(map(len, box)), np.int64))
        offsets = output_offsets(self.op, columns)
        if not self.op.where:
            offsets = offsets.reshape([len(part) for part in box])
        return tuple(map(_squeezed, np.unravel_index(offsets, shape))) if shape else ()


def tilings(program: RProgram, output: str, rng: np.random.Generator) -> list[Tiling]:
    """One for each stage that writes to the output."""
    found = []
    for stage in program.stages:
        if stage.op.output.name == output:
            axes = _stored_axes(stage.op)
            sizes = _sizes(stage, axes)
            counts = _counts(axes, sizes)
            edges = _edges(counts, rng)
            others = rng.permutation(np.setdiff1d(np.arange(prod(counts)), edges, assume_unique=True))
            needed = len(edges) + ceil(len(others) / SHARE)
            found.append(Tiling(stage.op, axes, sizes, np.concatenate([edges, others]), needed))
    return found


def _stored_axes(op: TensorOp) -> tuple[Axis, ...]:
    """Axes that tell the place: of those that a sum adds up in the output, one position stands for all."""
    added = {axis.name for axis in summed_axes(op)}
    return tuple(axis for axis in op.of_role("spatial", "row") if axis.name not in added)


def _sizes(stage: Stage, axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """Extents of a box along the axes."""
    extents = [axis.extent for axis in axes]
    sizes = [min(axis.extent, _tile(stage, axis)) for axis in axes]
    while prod(sizes) > MOST:
        longest = int(np.argmax(sizes))
        sizes[longest] = ceil(sizes[longest] / 2)
    for last in reversed(range(len(axes))):
        while prod(sizes) < LEAST and sizes[last] < extents[last]:
            sizes[last] = min(extents[last], 2 * sizes[last])
    return tuple(sizes)


def _tile(stage: Stage, axis: Axis) -> int:
    """Elements of the axis in one block."""
    grid = [loop.stride for _, loop in stage.of_axis(axis.name) if loop.kind == GRID]
    return min(grid, default=axis.extent)


def _counts(axes: tuple[Axis, ...], sizes: tuple[int, ...]) -> list[int]:
    return [ceil(axis.extent / size) for axis, size in zip(axes, sizes, strict=True)]


def _edges(counts: list[int], rng: np.random.Generator) -> np.ndarray:
    """Numbers of boxes: all combinations of the first and the last along each axis, and along each axis also the last
    but one (the last that is full) and one between, the others at random."""
    if not counts:
        return np.zeros(1, np.int64)
    ends = [sorted({0, count - 1}) for count in counts]
    if prod(map(len, ends)) > CORNERS:
        ends = [[0, count - 1] if axis in np.argsort(counts)[-5:] else [0] for axis, count in enumerate(counts)]
    found = [np.array(place) for place in product(*ends)]
    for axis, count in enumerate(counts):
        for position in {max(0, count - 2), count // 2}:
            place = rng.integers(0, counts)
            place[axis] = position
            found.append(place)
    return np.unique(np.ravel_multi_index(tuple(np.array(found).T), counts))


def _squeezed(coordinates: np.ndarray) -> np.ndarray:
    """With extent 1 along the axes that it does not change along."""
    for axis in range(coordinates.ndim):
        first = coordinates.take([0], axis)
        if np.array_equal(np.broadcast_to(first, coordinates.shape), coordinates):
            coordinates = first
    return coordinates
