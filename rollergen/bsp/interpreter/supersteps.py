"""The points that some tiles execute in one superstep: values of every axis, each along a dimension of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.program import Ranges, block_extents, superstep
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.program.interpreter.points import both
from rollergen.program.rprogram import Stage

Array = Any
MOST_POINTS = 1 << 21
"""Points that are computed at once: intermediate arrays of 8 to 16 MB."""


@dataclass(frozen=True, eq=False)
class Points:
    """Values of every axis on some tiles: arrays [tile, axis by axis], each along its own dimension."""

    op: TensorOp
    values: Mapping[str, Array]
    shape: tuple[int, ...]

    def executed(self, *roles: str) -> Array:
        """Where all axes of the roles are within their extents."""
        found: Array = True
        for axis in self.op.of_role(*roles):
            inside = self.values[axis.name] < axis.extent
            found = both(found, True if inside.all() else inside)
        return found


def points_of(stage: Stage, ranges: Ranges, tiles: Array, step: int) -> Points:
    """All points of the blocks of `tiles` in one superstep; every block as long as the longest."""
    axes = stage.op.axes
    blocks = block_extents(stage)
    for position in superstep(stage).steps:
        loop = stage.loops[position]
        blocks[loop.axis] = min(blocks[loop.axis], loop.stride)
    values = {}
    for number, axis in enumerate(axes):
        first = np.broadcast_to(ranges.intervals[axis.name][0], (ranges.tiles, ranges.steps))[tiles, step]
        shape = [1] * len(axes)
        shape[number] = blocks[axis.name]
        values[axis.name] = first.reshape(-1, *[1] * len(axes)) + np.arange(blocks[axis.name]).reshape(1, *shape)
    return Points(stage.op, values, tuple(blocks[axis.name] for axis in axes))


def slabs(points: Points) -> Iterator[Points]:
    """The points in slabs of a bearable size, along the longest reduce axis."""
    reduced = points.op.of_role("reduce")
    tiles = len(next(iter(points.values.values()))) if points.values else 1
    volume = tiles * prod(points.shape)
    if volume <= MOST_POINTS or not reduced:
        yield points
        return
    names = [axis.name for axis in points.op.axes]
    at = max((names.index(axis.name) for axis in reduced), key=lambda n: points.shape[n])
    size = max(1, points.shape[at] * MOST_POINTS // volume)
    for begin in range(0, points.shape[at], size):
        values = dict(points.values)
        values[names[at]] = np.take(values[names[at]], range(begin, min(begin + size, points.shape[at])), axis=at + 1)
        shape = (*points.shape[:at], values[names[at]].shape[at + 1], *points.shape[at + 1 :])
        yield from slabs(Points(points.op, values, shape))
