"""Places in a stage's nest: axis values, sources of loads, tests, trip counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import cached_property

from rollergen.expr.digits import follows
from rollergen.expr.guards import within_extent
from rollergen.expr.index import Bounds, Index, weighted_sum
from rollergen.expr.values import Load, Partial, Within
from rollergen.hal.dataclass import dataclass
from rollergen.lower.expressions import Element, Expr, Inside, Number, Operation, position
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.writer import Writer
from rollergen.program.loops import OVERLAP
from rollergen.program.rprogram import PARALLEL, SERIAL


class Source:
    """A source of a load's values: `Registers`, or a staged buffer (`copies.Staged`)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Registers(Source):
    """A load's values in a register array: the element for loop variables is ``indices`` of these.

    Each index is a sum of (loop position, weight) pairs.
    """

    name: str
    indices: tuple[tuple[tuple[int, int], ...], ...]
    dtype: str
    lanes: int


@dataclass(frozen=True)
class Place:
    """A point of the nest.

    ``point``: the index that each loop's variable has here.  ``whole``: guarded axes that are known to
    be within their extent here.  ``loose``: axes that may overhang though no guard names them (a copy
    also fills what a serial loop will not reach).  ``sources``: where loads, by number, are to be
    had other than in global memory.  ``origin``: the place that this one was made of, with which it shares what they
    have in common.  ``held``: bounds of loads that are known to hold here.  ``back``: how many points earlier the
    tiles of axes whose tiles overlap begin here.  ``full``: axes whose serial loops from here on run to their ends.
    """

    nest: Nest
    point: tuple[Index, ...]
    whole: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    sources: Mapping[int, Source] = field(default_factory=dict)
    origin: Place | None = field(default=None, compare=False, repr=False)
    held: frozenset[Within] = frozenset()
    back: Mapping[str, Index] = field(default_factory=dict)
    full: frozenset[str] = frozenset()

    @staticmethod
    def outermost(nest: Nest) -> Place:
        inside = frozenset(axis for axis, kind in nest.stage.guards if kind == OVERLAP)
        return Place(nest, tuple([Index.axis(name) for name in nest.variables]), inside)

    @cached_property
    def axes(self) -> dict[str, Index]:
        """Every axis as a sum over its loops' variables."""
        nest, origin = self.nest, self.origin
        if origin is None:
            return {axis: self._axis(axis) for axis in nest.extents}
        if origin.point is self.point:
            return origin.axes
        while origin.origin is not None and "axes" not in vars(origin):  # nobody has asked for these
            origin = origin.origin
        pairs = zip(nest.loops, self.point, origin.point, strict=True)
        changed = {loop.axis for loop, at, before in pairs if at is not before}
        return {**origin.axes, **{axis: self._axis(axis) for axis in changed}}

    def _axis(self, axis: str) -> Index:
        nest = self.nest
        total = self.number(nest.digits_of.get(axis, ()))
        if axis in self.back:
            return total - self.back[axis]
        return total + nest.start(axis) if nest.lead is not None and axis == nest.lane_axis else total

    def bind(self, changes: Mapping[int, Index], loose: frozenset[str] = frozenset()) -> Place:
        """This place with some loops' variables replaced, and more axes that may overhang."""
        point = list(self.point)
        for p, at in changes.items():
            point[p] = at
        loosely = self.loose | loose
        return Place(self.nest, tuple(point), self.whole, loosely, self.sources, self, self.held, self.back, self.full)

    def knowing(self, axes: Iterable[str]) -> Place:
        whole = self.whole.union(axes)
        return Place(self.nest, self.point, whole, self.loose, self.sources, self, self.held, self.back, self.full)

    def running_full(self, axis: str) -> Place:
        """This place where the axis' serial loops inside run to their ends."""
        full = self.full | {axis}
        return Place(self.nest, self.point, self.whole, self.loose, self.sources, self, self.held, self.back, full)

    def holding(self, bounds: Iterable[Within]) -> Place:
        held = self.held.union(bounds)
        return Place(self.nest, self.point, self.whole, self.loose, self.sources, self, held, self.back, self.full)

    def beginning_earlier(self, axis: str, back: Index) -> Place:
        """This place in a tile that begins `back` points earlier along the axis."""
        every = {**self.back, axis: back}
        return Place(self.nest, self.point, self.whole, self.loose, self.sources, None, self.held, every, self.full)

    def with_source(self, load: Load, source: Source) -> Place:
        sources = {**self.sources, self.nest.number(load): source}
        return Place(self.nest, self.point, self.whole, self.loose, sources, self, self.held, self.back, self.full)

    def source(self, load: Load) -> Source | None:
        """The source of the load's values, if they are elsewhere than in global memory."""
        return self.sources.get(self.nest.number(load))

    def element(self, registers: Registers) -> Element:
        """The register that holds a value for this point."""
        indices = tuple([self.number(digits) for digits in registers.indices])
        return Element(registers.name, indices, registers.dtype, registers.lanes)

    def number(self, digits: Sequence[tuple[int, int]]) -> Index:
        """The sum of loop variables by (position, weight)."""
        if len(digits) == 1:
            p, weight = digits[0]
            return self.point[p] * weight
        point = self.point
        return weighted_sum([(point[p], weight) for p, weight in digits])

    # Guards

    def unsure(self, axis: str) -> bool:
        """Whether the axis may lie beyond its extent here."""
        return axis in self.loose or (axis in self.nest.guards and axis not in self.whole)

    @cached_property
    def axis_ranges(self) -> dict[str, Bounds]:
        """Bounds of every axis here, overhang included."""
        nest = self.nest
        if not self.loose and self.whole.issuperset(nest.guards):
            return nest.exact
        ranges = nest.exact.copy()
        for axis in self.loose.union(nest.guards).difference(self.whole - self.loose):
            lead = nest.lane.width - 1 if nest.lead and nest.lane and axis == nest.lane_axis else 0
            ranges[axis] = (-lead, nest.spans[axis] - 1)
        return ranges

    def axis_test(self, axis: str) -> Within:
        """The axis is within its extent."""
        extent = self.nest.extents[axis]
        if self.nest.is_open(axis):
            return Within(Index.axis(axis) - self.nest.size(axis), -extent, 0)
        return Within(Index.axis(axis), 0, extent)

    def inside(self, bound: Within, ranges: Mapping[str, Bounds]) -> Inside | None:
        """The bound over variables, or None where it always holds.  `ranges`: of the variables."""
        low, high = bound.index.bounds(self.axis_ranges)
        index = bound.index.substitute(self.axes)
        known_low, known_high = index.bounds(ranges)
        need_low = max(low, known_low) < bound.low
        need_high = min(high, known_high) >= bound.high
        if not need_low and not need_high:
            return None
        return Inside(index.simplify(ranges), bound.low if need_low else None, bound.high if need_high else None)

    def tests(self, bounds: Iterable[Within], ranges: Mapping[str, Bounds]) -> tuple[Inside, ...]:
        """The bounds that do not always hold, each once."""
        found = [self.inside(bound, ranges) for bound in bounds]
        return tuple(dict.fromkeys([test for test in found if test is not None])) if found else ()


def load_bounds(place: Place, load: Load) -> tuple[Within, ...]:
    """What must hold before the load's element may be read: else it has the load's fill.

    Its own guard; the extent of each reduce or row axis that overhangs here; that of a spatial one
    only where the address could leave the buffer; and whatever else could (the side of a select
    that is not chosen).
    """
    needed = _load_bounds(place, load)
    return tuple([bound for bound in needed if bound not in place.held]) if place.held else needed


def _load_bounds(place: Place, load: Load) -> tuple[Within, ...]:
    ranges = place.axis_ranges
    needed = [bound for bound in load.guard if not bound.always(ranges)]
    unsure = [axis for axis in sorted(load.axes()) if place.unsure(axis)]
    needed += [place.axis_test(axis) for axis in unsure if place.nest.roles[axis] != "spatial"]
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        low, high = index.bounds(ranges)
        if low >= 0 and high < extent:
            continue
        within = Within(index, 0, extent)
        if within_extent(index, extent, ranges, tuple(needed)):
            continue
        if follows(within, needed, ranges):
            continue
        tails = [axis for axis in unsure if axis in index.axes()]
        needed += [place.axis_test(axis) for axis in tails]
        if not tails or not (within.always(place.nest.exact) or follows(within, needed, ranges)):
            needed.append(within)
    return tuple(dict.fromkeys(needed))


def conjunction(tests: Iterable[Expr]) -> Expr | None:
    """All of `tests`; None if there are none.

    Where one cannot hold, plain false: compilers warn of comparisons of constants, and leave the branch out.
    """
    result: Expr | None = None
    every = tuple(tests)
    for test in every:
        if isinstance(test, Inside) and not test.index.terms and not test.holds(test.index.const):
            return Number(False, "bool")
    for test in every:
        result = test if result is None else Operation("and", (result, test), "bool")
    return result


def when_all(out: Writer, tests: Iterable[Inside]) -> AbstractContextManager[object]:
    """What is written only where all tests hold: where there are none, everywhere."""
    condition = conjunction(tests)
    return nullcontext() if condition is None else out.when(condition)


def guarded(tests: tuple[Inside, ...], value: Expr, fill: float | int) -> Expr:
    """`value` where all tests hold, else `fill`."""
    condition = conjunction(tests)
    if condition is None:
        return value
    return Operation("select", (condition, value, Number(fill, value.dtype, value.lanes)), value.dtype, value.lanes)


def is_uniform(nest: Nest, p: int) -> bool:
    """Whether there are barriers inside loop `p`, so that all threads must agree on its count."""
    if nest.threads == 1:
        return False
    return p < nest.barriers_within


def trip_count(place: Place, p: int, uniform: bool, ranges: Mapping[str, Bounds]) -> int | Expr:
    """Iterations of loop `p`: a serial loop stops where its axis ends, given the loops around it.

    ``uniform``: the same for all threads of a block (there are barriers inside): the thread whose
    share of the axis starts first counts, the others' overhang is the guards'.
    """
    loop, nest = place.nest.loops[p], place.nest
    if loop.kind != SERIAL or loop.axis in place.full:
        return loop.extent
    base = nest.start(loop.axis)
    for q, outer in enumerate(nest.loops[:p]):
        if outer.axis == loop.axis and not (uniform and outer.kind in PARALLEL):
            base = base + place.point[q] * outer.stride
    left = (nest.size(loop.axis) - base.simplify(ranges)) + (loop.stride - 1)
    low, high = left.bounds(ranges)
    if low // loop.stride >= loop.extent:
        return loop.extent
    if not left.terms:
        return min(loop.extent, left.const // loop.stride)
    rest: Expr = position(left, ranges)
    if loop.stride > 1:
        rest = Operation("div", (rest, Number(loop.stride, rest.dtype)), rest.dtype)
    return clipped(rest, 0, high // loop.stride, loop.extent)


def clipped(value: Expr, low: int, high: int, limit: int | Expr) -> Expr:
    """`value`, known to be within [low, high], brought into [0, limit]."""
    if low < 0:
        value = _pick("gt", value, 0)
    return value if isinstance(limit, int) and high <= limit else _pick("lt", value, limit)


def _pick(order: str, value: Expr, limit: int | Expr) -> Expr:
    """The value or the limit, whichever the order puts first."""
    bound = Number(limit, value.dtype) if isinstance(limit, int) else limit
    return Operation("select", (Operation(order, (value, bound), "bool"), value, bound), value.dtype)


def whole_iterations(place: Place, p: int, out: Writer) -> int | Expr | None:
    """How many iterations of serial loop `p` lie wholly within its axis; None where the loop stays one.

    The innermost serial loop of the lanes' axis is written twice where that axis is masked: first the
    iterations in which every vector is whole, without tests, then the tail.  So is the outermost of several in
    which blocks of terms are added up: first the iterations in which all inside run to their ends.
    """
    nest, loop = place.nest, place.nest.loops[p]
    if loop.kind != SERIAL or nest.lane_axis != loop.axis or loop.axis in place.full or nest.threads > 1:
        return None
    deeper = [inner for inner in nest.loops[p + 1 :] if inner.axis == loop.axis]
    in_tile = p >= nest.tile_depth or not nest.op.reductions
    if nest.lead is not None or not in_tile:
        return None
    if any(inner.kind == SERIAL for inner in deeper):
        if p != nest.first_block:
            return None
    elif not place.unsure(loop.axis):
        return None
    outer = ((place.point[q], nest.loops[q].stride) for q in range(p) if nest.loops[q].axis == loop.axis)
    reach = sum((inner.extent - 1) * inner.stride for inner in deeper)
    left = (nest.size(loop.axis) - weighted_sum(outer) + (loop.stride - 1 - reach)).simplify(out.ranges)
    low, high = left.bounds(out.ranges)
    if not left.terms:
        return max(0, min(loop.extent, left.const // loop.stride))
    at = position(left, out.ranges)
    whole = Operation("div", (at, Number(loop.stride, at.dtype)), at.dtype)
    return out.let(
        f"{nest.variables[p]}_whole", clipped(whole, low // loop.stride, high // loop.stride, loop.extent)
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """What the leaves of a value are here.

    ``load`` and ``partial`` give expressions; ``variables`` those of `Var` nodes; ``lane`` is set where
    the value is computed for all lanes at once.
    """

    place: Place
    lane: Lane | None
    load: Callable[[Load], Expr]
    partial: Callable[[Partial], Expr]
    variables: Mapping[str, Expr]
