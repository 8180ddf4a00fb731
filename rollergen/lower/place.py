"""Where in a stage's nest we are: loop variables, axis values, trip counts, what must be tested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rollergen.expr.definition import Definition
from rollergen.expr.index import Bounds, Index, Within, weighted_sum
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.lower.ir import Element, Expr, Inside, Number, Operation, Pointer, Position
from rollergen.lower.names import Names
from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL, Copy, Loop, Stage


@dataclass(frozen=True, slots=True)
class Lane:
    """A symbol for the position within a vector, and the vector's width."""

    variable: str
    width: int


@dataclass(frozen=True)
class Nest:
    """Facts about one stage that hold everywhere in it.

    ``digits`` and ``decoded`` are memos of `copies`: the digits of positions in a buffer, and the
    positions of the groups that a thread moves.
    """

    stage: Stage
    device: Device
    variables: tuple[str, ...]
    parameters: Mapping[str, Pointer]
    digits: dict[Any, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    decoded: dict[Copy, tuple[tuple[Index, ...], dict[int, Index]]] = field(default_factory=dict)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return self.stage.loops

    @property
    def definition(self) -> Definition:
        return self.stage.definition

    @cached_property
    def _loads(self) -> tuple[Load, ...]:
        return self.definition.loads()

    @cached_property
    def _numbers(self) -> dict[int, tuple[int, Load]]:
        return {id(load): (number, load) for number, load in enumerate(self._loads)}

    def load(self, copy: Copy) -> Load:
        """The load that the copy serves."""
        return self._loads[copy.load]

    @cached_property
    def threads(self) -> int:
        return self.stage.threads

    def number(self, load: Load) -> int:
        """The load's place among the definition's; equal loads have the same (found by identity first)."""
        known = self._numbers.get(id(load))
        if known is None or known[1] is not load:
            known = self._loads.index(load), load
            self._numbers[id(load)] = known
        return known[0]

    @cached_property
    def extents(self) -> dict[str, int]:
        return {axis.name: axis.extent for axis in self.definition.axes}

    @cached_property
    def roles(self) -> dict[str, str]:
        return {axis.name: axis.role for axis in self.definition.axes}

    @cached_property
    def spans(self) -> dict[str, int]:
        """Points that the loops of each axis visit, tail included."""
        spans = dict.fromkeys(self.extents, 1)
        for loop in self.loops:
            spans[loop.axis] *= loop.extent
        return {axis: max(span, self.extents[axis]) for axis, span in spans.items()}

    @cached_property
    def guards(self) -> dict[str, str]:
        return dict(self.stage.guards)

    @cached_property
    def first_inner(self) -> int:
        """Position of the first loop that is neither of the grid nor of threads."""
        return sum(loop.kind in (GRID, *PARALLEL) for loop in self.loops)

    @cached_property
    def tile_depth(self) -> int:
        """Depth at which accumulators are made (never outside the thread loops, nor inside the lanes)."""
        return min(max(self.stage.accumulator.at_loop, self.first_inner), self.innermost)

    @cached_property
    def innermost(self) -> int:
        """Depth inside all loops but the lane loop."""
        return len(self.loops) - (1 if self.loops and self.loops[-1].kind == LANE else 0)

    @cached_property
    def lane_position(self) -> int | None:
        lanes = [p for p, loop in enumerate(self.loops) if loop.kind == LANE]
        return lanes[0] if lanes else None

    @cached_property
    def lane(self) -> Lane | None:
        """The lane loop as a vector's lanes, if there is one."""
        p = self.lane_position
        return None if p is None else Lane(self.variables[p], self.loops[p].extent)

    @cached_property
    def lane_axis(self) -> str | None:
        return None if self.lane_position is None else self.loops[self.lane_position].axis

    def positions(self, *roles: str, after: int = 0) -> tuple[int, ...]:
        """Loops of axes of these roles from position `after` on, lane loops not counted."""
        return tuple(
            p
            for p, loop in enumerate(self.loops)
            if p >= after and loop.kind in (SERIAL, UNROLL) and self.roles[loop.axis] in roles
        )


def make_nest(stage: Stage, device: Device, parameters: Mapping[str, Pointer], names: Names) -> Nest:
    """`stage` with a variable for every loop: the axis' name and the loop's rank on it."""
    seen: dict[str, int] = {}
    variables = []
    for loop in stage.loops:
        rank = seen.get(loop.axis, 0)
        seen[loop.axis] = rank + 1
        variables.append(names.fresh("lane" if loop.kind == LANE else f"{loop.axis}{rank}"))
    return Nest(stage, device, tuple(variables), parameters)


class Source:
    """Where a load's values are to be had: `Registers`, or a staged buffer (`copies.Staged`)."""

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
    had other than in global memory.
    """

    nest: Nest
    point: tuple[Index, ...]
    whole: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    sources: Mapping[int, Source] = field(default_factory=dict)

    @staticmethod
    def outermost(nest: Nest) -> Place:
        return Place(nest, tuple(Index.axis(name) for name in nest.variables))

    @cached_property
    def axes(self) -> dict[str, Index]:
        """Every axis as a sum over its loops' variables."""
        terms: dict[str, list[tuple[Index, int]]] = {axis: [] for axis in self.nest.extents}
        for loop, at in zip(self.nest.loops, self.point, strict=True):
            terms[loop.axis].append((at, loop.stride))
        return {axis: weighted_sum(parts) for axis, parts in terms.items()}

    def bind(self, changes: Mapping[int, Index], loose: frozenset[str] = frozenset()) -> Place:
        """The same place with some loops' variables replaced, and more axes that may overhang."""
        point = tuple(changes.get(p, at) for p, at in enumerate(self.point))
        return Place(self.nest, point, self.whole, self.loose | loose, self.sources)

    def knowing(self, axes: Iterable[str]) -> Place:
        return replace(self, whole=self.whole | frozenset(axes))

    def with_source(self, load: Load, source: Source) -> Place:
        return replace(self, sources={**self.sources, self.nest.number(load): source})

    def source(self, load: Load) -> Source | None:
        """Where the load is to be had other than in global memory."""
        return self.sources.get(self.nest.number(load))

    def element(self, registers: Registers) -> Element:
        """The register that holds a value for this point."""
        indices = tuple(weighted_sum((self.point[p], weight) for p, weight in index) for index in registers.indices)
        return Element(registers.name, indices, registers.dtype, registers.lanes)

    # Guards

    def unsure(self, axis: str) -> bool:
        """Whether the axis may lie beyond its extent here."""
        return axis in self.loose or (axis in self.nest.guards and axis not in self.whole)

    def axis_ranges(self) -> dict[str, Bounds]:
        """Bounds of every axis here, overhang included."""
        nest = self.nest
        return {
            axis: (0, (nest.spans[axis] if self.unsure(axis) else extent) - 1) for axis, extent in nest.extents.items()
        }

    def axis_test(self, axis: str) -> Within:
        """The axis is within its extent."""
        return Within(Index.axis(axis), 0, self.nest.extents[axis])

    def inside(self, bound: Within, ranges: Mapping[str, Bounds]) -> Inside | None:
        """The bound over variables, or None where it always holds.  `ranges`: of the variables."""
        low, high = bound.index.bounds(self.axis_ranges())
        index = bound.index.substitute(self.axes)
        known_low, known_high = index.bounds(ranges)
        need_low = max(low, known_low) < bound.low
        need_high = min(high, known_high) >= bound.high
        if not need_low and not need_high:
            return None
        return Inside(index.simplify(ranges), bound.low if need_low else None, bound.high if need_high else None)

    def tests(self, bounds: Iterable[Within], ranges: Mapping[str, Bounds]) -> tuple[Inside, ...]:
        """The bounds that do not always hold, each once."""
        found = (self.inside(bound, ranges) for bound in bounds)
        return tuple(dict.fromkeys(test for test in found if test is not None))


def load_bounds(place: Place, load: Load) -> tuple[Within, ...]:
    """What must hold before the load's element may be read: else it has the load's fill.

    Its own guard; the extent of each reduce or row axis that overhangs here; that of a spatial one
    only where the address could leave the buffer; and whatever else could (the side of a select
    that is not chosen).
    """
    ranges = place.axis_ranges()
    needed = [bound for bound in load.guard if not bound.always(ranges)]
    unsure = [axis for axis in sorted(load.axes()) if place.unsure(axis)]
    needed += [place.axis_test(axis) for axis in unsure if place.nest.roles[axis] != "spatial"]
    exact = {**ranges, **{axis: (0, extent - 1) for axis, extent in place.nest.extents.items()}}
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        within = Within(index, 0, extent)
        if within.always(ranges) or any(b.index == index and b.low >= 0 and b.high <= extent for b in needed):
            continue
        tails = [axis for axis in unsure if axis in index.axes()]
        needed += [place.axis_test(axis) for axis in tails]
        if not tails or not within.always(exact):
            needed.append(within)
    return tuple(dict.fromkeys(needed))


def conjunction(tests: Iterable[Expr]) -> Expr | None:
    """All of `tests`; None if there are none."""
    result: Expr | None = None
    for test in tests:
        result = test if result is None else Operation("and", (result, test), "bool")
    return result


def is_uniform(nest: Nest, p: int) -> bool:
    """Whether there are barriers inside loop `p`, so that all threads must agree on its count."""
    if nest.threads == 1:
        return False
    registers = nest.device.layers[0].name
    shared = any(copy.to_layer != registers and copy.at_loop > p for copy in nest.stage.copies)
    return shared or (nest.stage.accumulator.combine != "none" and p < nest.tile_depth)


def trip_count(place: Place, p: int, uniform: bool, ranges: Mapping[str, Bounds]) -> int | Expr:
    """Iterations of loop `p`: a serial loop stops where its axis ends, given the loops around it.

    ``uniform``: the same for all threads of a block (there are barriers inside): the thread whose
    share of the axis starts first counts, the others' overhang is the guards'.
    """
    loop, nest = place.nest.loops[p], place.nest
    if loop.kind != SERIAL:
        return loop.extent
    base = Index()
    for q, outer in enumerate(nest.loops[:p]):
        if outer.axis == loop.axis and not (uniform and outer.kind in PARALLEL):
            base = base + place.point[q] * outer.stride
    extent = nest.extents[loop.axis]
    base = base.simplify(ranges)
    low, high = base.bounds(ranges)
    if -(-(extent - high) // loop.stride) >= loop.extent:
        return loop.extent
    if not base.terms:
        return min(loop.extent, -(-(extent - base.const) // loop.stride))
    left = (base * -1 + (extent + loop.stride - 1)) if loop.stride > 1 else base * -1 + extent
    rest: Expr = Position(left)
    if loop.stride > 1:
        rest = Operation("div", (rest, Number(loop.stride, "int32")), "int32")
    return clipped(rest, 0, -(-(extent - low) // loop.stride), loop.extent)


def clipped(value: Expr, low: int, high: int, limit: int) -> Expr:
    """`value`, known to be within [low, high], brought into [0, limit]."""
    if low < 0:
        value = _pick("gt", value, 0)
    return _pick("lt", value, limit) if high > limit else value


def _pick(order: str, value: Expr, limit: int) -> Expr:
    """The value or the limit, whichever the order puts first."""
    bound = Number(limit, "int32")
    return Operation("select", (Operation(order, (value, bound), "bool"), value, bound), "int32")
