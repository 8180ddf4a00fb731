"""Windows: each element of a tensor that a tile reads, once; a thread's into registers, a block's into its layer.

Which bounds a position has to be tested against is known from its place in the window: rows and columns are taken
in runs of positions with the same tests, and those that are always within the tensor have none.  The tests of the
outer dimensions become the limit of the innermost one, so that each element takes one comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod

from rollergen.expr.index import Bounds, Index, linear, weighted_sum
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.lower.access import fetch, put
from rollergen.lower.copies import Staged, buffer_access
from rollergen.lower.elements import Access
from rollergen.lower.expressions import (
    Convert,
    Element,
    Expr,
    Inside,
    Number,
    Operation,
    Pointer,
    Position,
    register_dtype,
)
from rollergen.lower.fills import as_bits
from rollergen.lower.place import Place, Registers
from rollergen.lower.vectors import needed as left_open
from rollergen.lower.writer import Nested, Writer
from rollergen.program.rprogram import Copy
from rollergen.program.windows import inner_loops, needed, thread_digits, threads_along, window_digits, window_shape


@dataclass(frozen=True, slots=True)
class _Run:
    """Positions ``start`` to ``stop`` - 1 of one dimension, all with the same open bounds."""

    start: int
    stop: int
    low: bool
    high: bool


@dataclass(frozen=True, slots=True)
class _Dimension:
    """``first``: the index of position 0; ``bounds``: of the indices that are read, high excluded."""

    first: Index
    extent: int
    bounds: Bounds

    def test(self, run: _Run, at: Index) -> Inside:
        low, high = self.bounds
        return Inside(self.first + at, low if run.low else None, high if run.high else None)

    def runs(self, ranges: Mapping[str, Bounds]) -> list[_Run]:
        """Positions below ``low - least`` have the lower bound open, those from ``high - most`` on the upper one."""
        low, high = self.bounds
        least, most = self.first.bounds(ranges)
        inside = [at for at in (low - least, high - most) if 0 < at < self.extent]
        cuts = sorted({0, self.extent, *inside})
        return [_Run(a, b, least + a < low, most + a >= high) for a, b in pairwise(cuts)]


def fill_window(out: Writer, place: Place, copy: Copy, load: Load) -> Registers:
    """The window of this thread's tile, in an array of its dimensions (those of one element left out)."""
    nest, stage = place.nest, place.nest.stage
    shape = window_shape(stage, copy)
    kept = [d for d, extent in enumerate(shape) if extent > 1]
    every = window_digits(stage, copy)
    digits = tuple(every[d] for d in kept)
    dimensions = _dimensions(out, place, copy, load)
    dtype = register_dtype(load.dtype)
    name = out.register(load.buffer.name.lower(), dtype, tuple(shape[d] for d in kept))
    registers = Registers(name, digits, dtype, 1)
    pointer = nest.parameters[load.buffer.name]
    shape = load.buffer.shape
    strides = tuple([prod(shape[d + 1 :]) for d in range(len(shape))])
    first = linear(tuple([dimension.first for dimension in dimensions]), shape)
    _fill(out, _Window(registers, pointer, load.fill, first, strides, tuple(dimensions)), (), None)
    return registers


def _dimensions(out: Writer, place: Place, copy: Copy, load: Load) -> list[_Dimension]:
    nest = place.nest
    first = place.bind({p: Index() for p in inner_loops(nest.stage, copy)})
    return [
        _Dimension(index.substitute(first.axes).simplify(out.ranges), extent, needed(load, d, nest.exact))
        for d, (index, extent) in enumerate(zip(load.indices, window_shape(nest.stage, copy), strict=True))
    ]


def fill_block_window(out: Writer, place: Place, staged: Staged, load: Load) -> None:
    """The window of the block, staged by all its threads (without barriers): a loop over the positions of each
    dimension that this thread has, the tests of an element together at its read."""
    nest, copy = place.nest, staged.copy
    pointer = nest.parameters[load.buffer.name]
    with Nested() as nested:
        positions: list[Index] = []
        indices: list[Index] = []
        tests: list[Inside] = []
        dimensions = _dimensions(out, place, copy, load)
        for dimension, digits in zip(dimensions, thread_digits(nest.stage, copy), strict=True):
            threads = threads_along(nest.stage, digits)
            steps = -(-dimension.extent // threads)
            at = Index()
            if steps > 1:
                at = nested.loop(out.loop(out.names.fresh("step"), steps, (0, steps - 1)))
            position = at * threads + weighted_sum((place.point[p], weight) for p, weight in digits)
            if dimension.extent % threads:
                nested.branch(out.when(Inside(position, None, dimension.extent)))
            low, high = dimension.bounds
            tests += left_open((Inside(dimension.first + position, low, high),), out.ranges)
            positions.append(position)
            indices.append(dimension.first + position)
        offset = linear(tuple(indices), load.buffer.shape).simplify(out.ranges)
        source = as_bits(load, Access(pointer, offset, tuple(tests), load.fill, elements=load.buffer.elements))
        value = fetch(out, source, None, load.buffer.name.lower())
        target = buffer_access(out, staged, tuple(positions))
        put(out, replace(target, pointer=replace(target.pointer, dtype=source.pointer.dtype)), value, None)


@dataclass(frozen=True, slots=True)
class _Window:
    """``first``: offset of the element at position 0 of every dimension; ``strides``: from one position to the next."""

    registers: Registers
    pointer: Pointer
    fill: float | int
    first: Index
    strides: tuple[int, ...]
    dimensions: tuple[_Dimension, ...]

    def element(self, at: tuple[Index, ...]) -> Element:
        kept = tuple(i for i, dimension in zip(at, self.dimensions, strict=True) if dimension.extent > 1)
        return Element(self.registers.name, kept, self.registers.dtype)

    def value(self, out: Writer, at: tuple[Index, ...]) -> Expr:
        offset = weighted_sum([(self.first, 1), *zip(at, self.strides, strict=True)]).simplify(out.ranges)
        return fetch(out, Access(self.pointer, offset, fill=self.fill), None, "element")


def _fill(out: Writer, window: _Window, at: tuple[Index, ...], outside: Expr | None) -> None:
    """The part of the window at the given positions of its first dimensions; ``outside``: their tests."""
    dimension = window.dimensions[len(at)]
    last = len(at) == len(window.dimensions) - 1
    limit = None
    for run in dimension.runs(out.ranges):
        tested = run.low or run.high
        if last and tested and outside is not None and limit is None:
            limit = _limit(out, dimension, outside)
        with Nested() as nested:
            here = _position(out, nested, run)
            condition = outside
            if tested:
                condition = _joined(out, dimension, run, here, outside, limit)
            if not last:
                named = condition if condition is None or not tested else out.let("inside", condition)
                _fill(out, window, (*at, here), named)
                continue
            value = window.value(out, (*at, here))
            if condition is not None:
                value = Operation("select", (condition, value, Number(window.fill, value.dtype)), value.dtype)
            out.assign(window.element((*at, here)), value)


def _position(out: Writer, nested: Nested, run: _Run) -> Index:
    """The position in a run, counted by an unrolled loop where there are several."""
    if run.stop == run.start + 1:
        return Index.of(run.start)
    bounds = (run.start, run.stop - 1)
    return nested.loop(out.loop(out.names.fresh("at"), run.stop, bounds, unroll=True, start=run.start))


_MOST_COMPARED = 1 << 31


def _limit(out: Writer, dimension: _Dimension, outside: Expr) -> Expr | None:
    """How many indices from the lower bound on are read: none where the outer dimensions' tests fail."""
    low, high = dimension.bounds
    if high - low >= _MOST_COMPARED:
        return None
    count = (outside, Number(high - low, "uint32"), Number(0, "uint32"))
    return out.let("limit", Operation("select", count, "uint32"))


def _joined(
    out: Writer, dimension: _Dimension, run: _Run, at: Index, outside: Expr | None, limit: Expr | None
) -> Expr:
    """The test of one position with those of the outer dimensions."""
    if limit is not None:
        above = (dimension.first + at - dimension.bounds[0]).simplify(out.ranges)
        return Operation("lt", (Convert(Position(above), "uint32"), limit), "bool")
    test = dimension.test(run, at)
    test = Inside(test.index.simplify(out.ranges), test.low, test.high)
    return test if outside is None else Operation("and", (outside, test), "bool")
