"""Interpreter: buffers that copies fill and computations read, through computed addresses.

Filling and reading compute their addresses apart, as two sides of a kernel would: a tile is read
back right only if both sides agree.  A cell that was never filled may not be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from operator import floordiv

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.index import Index
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.interpreter.memory import poison
from rollergen.program.interpreter.points import Array, Box, Points, everywhere, grid_loops, reached
from rollergen.program.layers import is_shared, tile_elements
from rollergen.program.rprogram import GRID, PARALLEL, Copy, Stage

Digits = tuple[tuple[int, int], ...]
"""(position in the nest, extent) of the loops that number a buffer's cells along one axis."""


@dataclass(frozen=True)
class Layout:
    """The addresses of one copy's buffer, found once for a stage.

    ``digits`` are those of each axis in the copy's order. ``filling_loops`` are the loops of the load's axes that give
    each filling (and, in registers, each thread) a buffer of its own.
    """

    stage: Stage
    number: int
    shared: bool
    digits: tuple[Digits, ...]
    filling_loops: tuple[int, ...]

    @property
    def copy(self) -> Copy:
        return self.stage.copies[self.number]

    @cached_property
    def load(self) -> Load:
        return self.stage.load(self.copy)

    @cached_property
    def load_axes(self) -> tuple[str, ...]:
        return tuple(sorted(self.load.axes()))

    @cached_property
    def name(self) -> str:
        return f"stage {self.stage.name}: copy {self.number} of {self.load.buffer.name} into {self.copy.to_layer}"

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.copy.elements(tuple(prod(extent for _, extent in own) for own in self.digits))

    @cached_property
    def elements(self) -> int:
        return tile_elements(self.stage, self.copy, block=self.shared)

    @cached_property
    def cells(self) -> tuple[Array, ...]:
        """Position along each axis of the order of every cell, in the order in which they are filled."""
        along = self.copy.order.index(self.copy.along)
        if not self.copy.runs:
            return filling_order(self.shape, along, self.copy.vector)
        runs = filling_order(tuple(map(floordiv, self.shape, self.copy.runs)), along, 1)
        inside = filling_order(self.copy.runs, along, self.copy.vector)
        pairs = zip(runs, self.copy.runs, inside, strict=True)
        return tuple((run[:, None] * extent + cell).reshape(-1) for run, extent, cell in pairs)

    @cached_property
    def cell_variables(self) -> dict[int, Array]:
        """The inner loops' variables at every cell; of a cell that neighbours share, at the first of them."""
        found: dict[int, Array] = {}
        for own, axis, position in zip(self.digits, self.copy.order, self.cells, strict=True):
            found |= decode(own, position * self.copy.every_of(axis))
        return found

    @cached_property
    def cell_addresses(self) -> Array:
        """Where each cell is stored; raises ProgramError where two share an address or one lies outside."""
        addresses = store_address(self.copy, self.shape, self.cells)
        if addresses.min() < 0 or addresses.max() >= self.elements:
            raise ProgramError(
                f"{self.name}: addresses run from {addresses.min()} to {addresses.max()}; "
                f"expected 0 to {self.elements - 1}"
            )
        if len(np.unique(addresses)) != addresses.size:
            raise ProgramError(f"{self.name}: two elements share an address; expected one each")
        return addresses


def layout_of(stage: Stage, number: int, device: Device) -> Layout:
    copy = stage.copies[number]
    shared = is_shared(copy.to_layer, device)
    within = lambda p, loop: shared if loop.kind in PARALLEL else p >= copy.at_loop
    inner = [
        [(p, loop) for p, loop in stage.of_axis(axis) if loop.kind != GRID and within(p, loop)] for axis in copy.order
    ]
    used = {p for own in inner for p, _ in own}
    axes = stage.load(copy).axes()
    grid = grid_loops(stage)
    filling_loops = tuple(p for p, loop in enumerate(stage.loops) if p >= grid and p not in used and loop.axis in axes)
    digits = tuple(tuple((p, loop.extent) for p, loop in own) for own in inner)
    return (WindowLayout if copy.window else Layout)(stage, number, shared, digits, filling_loops)


def filling_order(shape: tuple[int, ...], along: int, vector: int) -> tuple[Array, ...]:
    """Cells as threads move them: groups of `vector` adjacent along one axis, that axis fastest, the
    others behind it with the last fastest."""
    others = [d for d in range(len(shape)) if d != along]
    groups = -(-shape[along] // vector)
    counted = np.indices([*(shape[d] for d in others), groups, vector]).reshape(len(shape) + 1, -1)
    position: list[Array] = [None] * len(shape)
    for number, d in enumerate(others):
        position[d] = counted[number]
    position[along] = counted[-2] * vector + counted[-1]
    kept = position[along] < shape[along]
    return tuple(p[kept] for p in position)


def encode(digits: Digits, variables: Mapping[int, Array]) -> Array:
    """The mixed-radix number whose digits are the loops' variables."""
    number: Array = 0
    for position, extent in digits:
        number = number * extent + variables[position]
    return number


def decode(digits: Digits, number: Array) -> dict[int, Array]:
    """The loops' variables that are the digits of `number`."""
    found = {}
    for position, extent in reversed(digits):
        number, found[position] = np.divmod(number, extent)
    return found


def address(copy: Copy, shape: tuple[int, ...], cell: tuple[Array, ...]) -> Array:
    """Row-major address of a cell; see `Copy` for padding and swizzle."""
    row: Array = 0
    for extent, position in zip(shape[:-1], cell[:-1], strict=True):
        row = row * extent + position
    if copy.apart:
        group, within = np.divmod(row, copy.apart**2)
        row = group * copy.apart**2 + within % copy.apart * copy.apart + within // copy.apart
    if copy.panel:
        panel, column = np.divmod(cell[-1], copy.panel)
        return (panel * prod(shape[:-1]) + row) * copy.panel + swizzled(copy, row, column)
    return row * (shape[-1] + copy.padding) + swizzled(copy, row, cell[-1])


def swizzled(copy: Copy, row: Array, column: Array) -> Array:
    """The column that column `column` of row `row` is kept in."""
    if copy.swizzle <= 1:
        return column
    return np.bitwise_xor(column, (row % copy.swizzle) * copy.unit)


def store_address(copy: Copy, shape: tuple[int, ...], cell: tuple[Array, ...]) -> Array:
    """The address at which the filling side puts a cell."""
    return address(copy, shape, cell)


def fetch_address(copy: Copy, shape: tuple[int, ...], cell: tuple[Array, ...]) -> Array:
    """The address at which the reading side looks for a cell."""
    return address(copy, shape, cell)


@dataclass(frozen=True)
class WindowLayout(Layout):
    """The addresses of a window's buffer.

    Its cells are the distinct places of the tensor that a thread's inner loops reach (and, where a block stages it, its
    threads).
    """

    @cached_property
    def inner(self) -> tuple[int, ...]:
        return tuple(p for own in self.digits for p, _ in own)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        own = tuple((0, loop.extent if p in self.inner else 1) for p, loop in enumerate(self.stage.loops))
        every = Points.of_box(self.stage, Box(own))
        return tuple(int(np.max(self.reached(index, every))) + 1 for index in self.load.indices)

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Cells from one position to the next of each dimension but the last: those of a row of the next."""
        return (*self.shape[:-1], self.shape[-1] + self.copy.padding)

    def reached(self, index: Index, points: Points) -> Array:
        """How far each point's index lies behind that of the first point of its window."""
        first = Points(self.stage, {**points.variables, **dict.fromkeys(self.inner, 0)})
        return index.evaluate(points.axes()) - index.evaluate(first.axes())

    def filled_address(self, points: Points) -> Array:
        """The filling side: by the places of the tensor."""
        here: Array = 0
        for index, pitch in zip(self.load.indices, self.pitches, strict=True):
            here = here * pitch + self.reached(index, points)
        return here

    def read_address(self, points: Points) -> Array:
        """The reading side: by the loops' variables."""
        here: Array = 0
        for index, pitch in zip(self.load.indices, self.pitches, strict=True):
            here = here * pitch
            for p in self.inner:
                loop = self.stage.loops[p]
                here = here + points.variables[p] * (loop.stride * index.coefficient(loop.axis))
        return here


class Tile:
    """The buffers of one copy, filled for all fillings within a box: [fillings, elements]."""

    def __init__(self, layout: Layout, box: Box) -> None:
        self.layout = layout
        self.box = box
        count = box.volume(layout.filling_loops)
        self.data = np.full(count * layout.elements, poison(layout.load.dtype), numpy_dtype(layout.load.dtype))
        self.filled = np.zeros(count * layout.elements, dtype=bool)

    def filling(self, points: Points) -> Array:
        """The number of the filling that each point belongs to."""
        number: Array = 0
        for position in self.layout.filling_loops:
            if self.box.size(position) > 1:
                number = number * self.box.size(position) + (points.variables[position] - self.box.start(position))
        return number

    def put(self, points: Points, values: Array) -> None:
        """Fills every cell; `points` as by `cell_points`."""
        at = self.filling(points) * self.layout.elements + self.layout.cell_addresses
        self.data[at] = values
        self.filled[at] = True

    def put_window(self, layout: WindowLayout, points: Points, values: Array, chosen: Array) -> None:
        """Fills the cells of the chosen points; raises ProgramError where two of a cell bring different values."""
        at = self.filling(points) * layout.elements + layout.filled_address(points)
        at, values, chosen = np.broadcast_arrays(at, values, chosen)
        at, values = at[chosen], values[chosen]
        self.data[at] = values
        self.filled[at] = True
        if self.data[at].tobytes() != np.ascontiguousarray(values).tobytes():
            raise ProgramError(f"{layout.name}: two elements share a cell of the window; expected one each")

    def get(self, points: Points, wanted: Array) -> Array:
        """The cells of `points`; raises ProgramError where a wanted one was never filled."""
        layout = self.layout
        here = _read_from(layout, points)
        if np.max(here) >= layout.elements or np.min(here) < 0:
            raise ProgramError(f"{layout.name} is read at address {np.max(here)}; expected 0 to {layout.elements - 1}")
        at = self.filling(points) * layout.elements + here
        if not everywhere(np.logical_or(self.filled[at], np.logical_not(wanted))):
            raise ProgramError(f"{layout.name}: a cell is read that was never filled")
        return self.data[at]


def _read_from(layout: Layout, points: Points) -> Array:
    """Where the reading side looks for the points' cells."""
    if isinstance(layout, WindowLayout):
        return layout.read_address(points)
    axes = zip(layout.digits, layout.copy.order, strict=True)
    cell = tuple(encode(own, points.variables) // layout.copy.every_of(axis) for own, axis in axes)
    return fetch_address(layout.copy, layout.shape, cell)


def cell_points(layout: Layout, box: Box) -> Points:
    """Points of every filling in `box` (leading dimensions) and every cell (the last one)."""
    outer = Points.of_box(layout.stage, box, extra=1)
    return Points(layout.stage, {**outer.variables, **layout.cell_variables})


def executed_fillings(layout: Layout, box: Box, axis: str) -> int:
    """Combinations of one axis' loops outside the copy, within `box`, that some thread executes."""
    stage, depth, grid = layout.stage, layout.copy.at_loop, grid_loops(layout.stage)
    own = [p for p in range(grid, depth) if stage.loops[p].axis == axis and stage.loops[p].kind not in PARALLEL]
    reach = reached(Points.of_box(stage, box), axis, depth)
    if reach is True or reach is False:
        return box.volume(own) * reach
    by_any_thread = np.any(reach, axis=tuple(p - grid for p, _ in stage.of_kind(*PARALLEL)), keepdims=True)
    shape = [box.size(p) if p in own else 1 for p in range(grid, len(stage.loops))]
    return int(np.broadcast_to(by_any_thread, shape).sum())


def reaching_fillings(layout: Layout, box: Box, axis: str) -> int:
    """Combinations of one axis' loops outside the copy, within `box`, inside which the axis is anywhere
    within its extent: others move nothing."""
    stage, depth, grid = layout.stage, layout.copy.at_loop, grid_loops(layout.stage)
    own = [p for p in range(grid, depth) if stage.loops[p].axis == axis and stage.loops[p].kind not in PARALLEL]
    for position in range(grid, len(stage.loops)):
        box = box if position in own else box.fix(position, box.start(position))
    inside = Points.of_box(stage, box).inside(axis)
    return box.volume(own) if inside is True else int(np.sum(inside))


def filling_number(layout: Layout, box: Box, points: Points) -> Array:
    """Number, among those in `box`, of the filling that each point belongs to; threads fill together."""
    number: Array = 0
    for p in layout.filling_loops:
        if layout.stage.loops[p].kind not in PARALLEL and box.size(p) > 1:
            number = number * box.size(p) + (points.variables[p] - box.start(p))
    return number
