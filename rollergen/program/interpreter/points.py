"""Interpreter: points of a nest, as an array of values for every loop's variable.

A `Box` is a rectangular part of the nest; `Points` are its points (or any others), one dimension of
the arrays for each loop that is not of the grid, so that arrays of different loads broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import GRID, PARALLEL, SERIAL, Stage

Array = Any
"""A NumPy array, or a Python number that broadcasts against arrays."""


@dataclass(frozen=True, slots=True)
class Box:
    """``(start, stop)`` of every loop's variable, by position in the nest."""

    ranges: tuple[tuple[int, int], ...]

    def fix(self, position: int, value: int) -> Box:
        """The part where one loop's variable has one value."""
        return Box((*self.ranges[:position], (value, value + 1), *self.ranges[position + 1 :]))

    def open(self, position: int, extent: int) -> Box:
        """The box with all `extent` values of one loop's variable."""
        return Box((*self.ranges[:position], (0, extent), *self.ranges[position + 1 :]))

    def start(self, position: int) -> int:
        return self.ranges[position][0]

    def size(self, position: int) -> int:
        start, stop = self.ranges[position]
        return stop - start

    def volume(self, positions: Iterable[int]) -> int:
        return prod(self.size(position) for position in positions)


def block_box(stage: Stage, grid: Mapping[int, Any]) -> Box:
    """One whole block: grid loops fixed at the given values, all others complete."""
    return Box(
        tuple(
            (int(grid[p]), int(grid[p]) + 1) if loop.kind == GRID else (0, loop.extent)
            for p, loop in enumerate(stage.loops)
        )
    )


def first_inner(stage: Stage) -> int:
    """Depth at which one thread's own loops begin."""
    return sum(loop.kind in (GRID, *PARALLEL) for loop in stage.loops)


def grid_loops(stage: Stage) -> int:
    """The number of grid loops; the loop at position p is dimension p - grid_loops."""
    return sum(loop.kind == GRID for loop in stage.loops)


@lru_cache(maxsize=256)
def variable_array(start: int, stop: int, dimension: int, rank: int) -> Array:
    """start .. stop - 1 along one of `rank` dimensions."""
    shape = [1] * rank
    shape[dimension] = stop - start
    return np.arange(start, stop, dtype=np.int64).reshape(shape)


class Points:
    """Points of a stage's nest: the value of each loop's variable at each of them.

    ``variables`` maps positions to int64 arrays (or ints) that broadcast together.
    """

    def __init__(self, stage: Stage, variables: Mapping[int, Array]) -> None:
        self.stage = stage
        self.variables = variables
        self._axes: dict[str, Array] = {}
        self._executed: dict[str, Array] = {}

    @staticmethod
    def of_box(stage: Stage, box: Box, extra: int = 0) -> Points:
        """All points of `box`; ``extra`` trailing dimensions of size 1 are left for other things."""
        grid = grid_loops(stage)
        rank = len(stage.loops) - grid + extra
        variables: dict[int, Array] = {}
        for position, (start, stop) in enumerate(box.ranges):
            fixed = position < grid or stop - start == 1
            variables[position] = start if fixed else variable_array(start, stop, position - grid, rank)
        return Points(stage, variables)

    def axis(self, name: str) -> Array:
        """The axis' value at each point."""
        if name not in self._axes:
            self._axes[name] = axis_value(self.stage, self.variables, name)
        return self._axes[name]

    def axes(self) -> Mapping[str, Array]:
        """Every axis of the tensor op, evaluated on first use."""
        return _Axes(self)

    def executed(self, name: str) -> Array:
        """Where the axis lets the program execute: no serial loop has stopped and no guard forbids it."""
        if name not in self._executed:
            self._executed[name] = executed(self, name)
        return self._executed[name]

    def inside(self, name: str) -> Array:
        """The mask of points where the axis is within its extent."""
        return within_extent(self.axis(name), self.stage.op.axis(name).extent)


class _Axes(dict[str, Array]):
    def __init__(self, points: Points) -> None:
        super().__init__()
        self._points = points

    def __missing__(self, name: str) -> Array:
        return self._points.axis(name)


def axis_value(stage: Stage, variables: Mapping[int, Array], name: str) -> Array:
    """The sum of (loop variable * loop stride) over the axis' loops."""
    value: Array = 0
    for position, loop in enumerate(stage.loops):
        if loop.axis == name:
            value = value + variables[position] * loop.stride
    return value


def within_extent(value: Array, extent: int) -> Array:
    """The mask ``value < extent``; True where that holds everywhere."""
    if isinstance(value, int):
        return value < extent
    inside = np.less(value, extent)
    return True if inside.all() else inside


def executed(points: Points, name: str) -> Array:
    """The mask of points where the axis lets the program execute: no serial loop has stopped and no guard forbids
    it."""
    inside = points.inside(name)
    if inside is True or points.stage.guard(name) != "none":
        return inside
    return reached(points, name)


def reached(points: Points, name: str, depth: int | None = None) -> Array:
    """Where no serial loop of the axis (outside `depth`) has stopped: ``base + variable * stride < extent``
    for each of them, base over the axis' loops around it."""
    extent = points.stage.op.axis(name).extent
    begun: Array = 0
    result: Array = True
    for position, loop in enumerate(points.stage.loops[:depth]):
        if loop.axis == name:
            begun = begun + points.variables[position] * loop.stride
            if loop.kind == SERIAL:
                result = both(result, within_extent(begun, extent))
    return result


def trip_count(stage: Stage, box: Box, position: int) -> int:
    """Iterations of a loop whose surrounding loops `box` has fixed: a serial loop stops where its axis
    ends; of several threads, the one whose share begins first decides."""
    loop = stage.loops[position]
    if loop.kind != SERIAL:
        return loop.extent
    outer = enumerate(stage.loops[:position])
    base = sum(box.start(p) * other.stride for p, other in outer if other.axis == loop.axis)
    left = stage.op.axis(loop.axis).extent - base
    return max(0, min(loop.extent, -(-left // loop.stride)))


def both(a: Array, b: Array) -> Array:
    """Conjunction of masks, where True stands for everywhere."""
    if a is True:
        return b
    return a if b is True else np.logical_and(a, b)


def everywhere(mask: Array) -> bool:
    return mask is True or bool(np.all(mask))
