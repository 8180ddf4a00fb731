"""Facts about one stage that hold everywhere in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rollergen.expr.definition import Definition
from rollergen.expr.index import Index
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.lower.ir import Pointer
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

    ``lead``: the variable that says how many elements before 0 the loops of the lanes' axis start (see
    `Store.on_lines`), if they do.  ``exchanges``: the language lets threads of one execution width exchange
    registers.  ``digits``, ``shapes`` (by identity) and ``decoded`` are memos of `copies`: the digits
    of positions in a buffer, its extents, and the positions of the groups that a thread moves.
    """

    stage: Stage
    device: Device
    variables: tuple[str, ...]
    parameters: Mapping[str, Pointer]
    lead: str | None = None
    exchanges: bool = False
    digits: dict[Any, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    decoded: dict[Copy, tuple[tuple[Index, ...], dict[int, Index]]] = field(default_factory=dict)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        return self.stage.loops

    @cached_property
    def definition(self) -> Definition:
        return self.stage.definition

    @cached_property
    def _loads(self) -> tuple[Load, ...]:
        return self.definition.loads()

    @cached_property
    def _numbers(self) -> dict[int, tuple[int, Load]]:
        return {id(load): (number, load) for number, load in enumerate(self._loads)}

    @cached_property
    def copies(self) -> dict[int, list[Copy]]:
        """Those made at each depth; none lies outside the thread loops."""
        found: dict[int, list[Copy]] = {}
        for copy in self.stage.copies:
            found.setdefault(max(copy.at_loop, self.first_inner), []).append(copy)
        return found

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

    def start(self, axis: str) -> Index:
        """Where the loops of the axis start."""
        return Index.axis(self.lead) * -1 if self.lead is not None and axis == self.lane_axis else Index()

    def positions(self, *roles: str, after: int = 0) -> tuple[int, ...]:
        """Loops of axes of these roles from position `after` on, lane loops not counted."""
        kinds, own = (SERIAL, UNROLL), self.roles
        return tuple([
            p for p, loop in enumerate(self.loops) if p >= after and loop.kind in kinds and own[loop.axis] in roles
        ])


def make_nest(
    stage: Stage, device: Device, parameters: Mapping[str, Pointer], names: Names, exchanges: bool = False
) -> Nest:
    """`stage` with a variable for every loop: the axis' name and the loop's rank on it."""
    seen: dict[str, int] = {}
    variables = []
    for loop in stage.loops:
        rank = seen.get(loop.axis, 0)
        seen[loop.axis] = rank + 1
        variables.append(names.fresh("lane" if loop.kind == LANE else f"{loop.axis}{rank}"))
    lead = names.fresh("lead") if stage.store.on_lines else None
    return Nest(stage, device, tuple(variables), parameters, lead, exchanges)
