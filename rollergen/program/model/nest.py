"""The loop nest of a stage in numbers: trips, spans, threads, and how blocks spread over units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.costs import Costs
from rollergen.program.model.facts import Facts
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, least, product, size_key
from rollergen.program.rprogram import GRID, GROUP, PARALLEL, SERIAL, THREAD, Loop, Stage

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """Trip counts of one stage on one device.

    ``trips[p]``: mean iterations of ``loops[p]`` (a serial loop stops where its axis ends). ``overhangs[axis]``:
    whether elements beyond the axis' end are computed all the same. ``threads``, ``warps``: of one block, a warp being
    the threads that run in lockstep (``lockstep``).
    """

    stage: Stage
    loops: tuple[Loop, ...]
    facts: Facts
    trips: tuple[Number, ...]
    overhangs: dict[str, Number]
    blocks: Number
    threads: Number
    lockstep: int
    warps: Number
    by_stride: dict[str, tuple[int, ...]]
    of_kinds: dict[tuple[str, ...], tuple[int, ...]]
    """Positions that were asked for."""
    own: tuple[int, ...]
    """Positions of the loops that one thread runs itself."""
    unbuffered: dict[Any, Any]
    """What was found that does not depend on how many buffers staged tiles have (see `unbuffered`)."""

    @property
    def lanes(self) -> int:
        return self.stage.compute.lanes

    def positions(self, *kinds: str) -> tuple[int, ...]:
        found = self.of_kinds.get(kinds)
        if found is None:
            found = self.of_kinds[kinds] = tuple([p for p, loop in enumerate(self.loops) if loop.kind in kinds])
        return found

    def in_thread(self) -> tuple[int, ...]:
        """Positions of the loops that one thread runs itself."""
        return self.own

    def product(self, keep: Callable[[int, Loop], bool]) -> Number:
        """Product of the mean trips of the loops that are kept."""
        return product([self.trips[p] for p, loop in enumerate(self.loops) if keep(p, loop)])

    def passed(self, positions: tuple[int, ...]) -> Number:
        """Product of the mean trips of the loops at these positions."""
        return product([self.trips[p] for p in positions])

    def trip_count(self, depth: int) -> Number:
        """How often one thread of one block comes to `depth`."""
        return self.passed(tuple([p for p in self.in_thread() if p < depth]))

    def spatial(self, axis: str) -> bool:
        return self.facts.roles[axis] == "spatial"

    def inside(self, axis: str, depth: int, *, block: bool) -> tuple[int, ...]:
        """Positions of the loops of an axis that a buffer spans, by falling stride."""
        kept = []
        for p in self.by_stride.get(axis, ()):
            kind = self.loops[p].kind
            parallel = kind in (GROUP, THREAD)
            if kind != GRID and ((p >= depth and not parallel) or (block and parallel)):
                kept.append(p)
        return tuple(kept)

    def extent(self, positions: tuple[int, ...]) -> Number:
        return product([self.loops[p].extent for p in positions])


def fills_past_registers(nest: Nest) -> bool:
    """Whether copies fill tiles past the registers."""
    return any(copy.asynchronous for copy in nest.stage.copies)


def results_wait(nest: Nest) -> Number:
    """Whether partial results wait in the output: not where one block is the whole reduction."""
    accumulator = nest.stage.accumulator
    if not accumulator.carry:
        return False
    return nest.product(lambda p, loop: p < accumulator.at_loop and not nest.spatial(loop.axis)) > 1


def nest_of(stage: Stage, facts: Facts, device: Device) -> Nest:
    lockstep = device.kind.instruction_threads
    by_stride: dict[str, tuple[int, ...]] = {}
    for p, loop in enumerate(stage.loops):
        by_stride[loop.axis] = (*by_stride.get(loop.axis, ()), p)
    for axis, positions in by_stride.items():
        if len(positions) > 1:
            by_stride[axis] = tuple(sorted(positions, key=lambda p: -size_key(stage.loops[p].stride)))
    blocks = product([loop.extent for loop in stage.loops if loop.kind == GRID])
    threads = product([loop.extent for loop in stage.loops if loop.kind in PARALLEL])
    inside = [p for p, loop in enumerate(stage.loops) if loop.kind != GRID and loop.kind not in PARALLEL]
    trips, overhangs = _trips(stage, facts, by_stride)
    warps, own = ceil_div(threads, lockstep), tuple(inside)
    return Nest(
        stage, stage.loops, facts, trips, overhangs, blocks, threads, lockstep, warps, by_stride, {}, own, {}
    )


def unbuffered(function: Callable[..., Found]) -> Callable[..., Found]:
    """``function(nest, device, costs)``, which does not look at how many buffers staged tiles have: found once for
    nests that differ in nothing else."""

    def found(nest: Nest, device: Device, costs: Costs) -> Found:
        known = nest.unbuffered.get(function)
        if known is None:
            known = nest.unbuffered[function] = function(nest, device, costs)
        return known  # type: ignore[no-any-return]

    return found


def _trips(
    stage: Stage, facts: Facts, by_stride: dict[str, tuple[int, ...]]
) -> tuple[tuple[Number, ...], dict[str, Number]]:
    trips: list[Number] = [loop.extent for loop in stage.loops]
    overhangs: dict[str, Number] = {}
    for axis, positions in by_stride.items():
        passed: Number = 1
        for p in positions:
            loop = stage.loops[p]
            if loop.kind == SERIAL:
                reached = least(passed * loop.extent, ceil_div(facts.extents[axis], loop.stride))
                trips[p] = reached / passed
                passed = reached
            else:
                passed = passed * loop.extent
        overhangs[axis] = passed > facts.extents[axis]
    return tuple(trips), overhangs


@dataclass(frozen=True, slots=True, eq=False)
class Waves:
    """Waves of a stage's blocks.

    ``resident``: blocks on a unit at once. ``per_unit``: blocks that the busiest unit runs. ``starts``: blocks that it
    launches, fewer in a persistent grid. ``together[p]``, ``rounds[p]``: of grid loop p, blocks that run at once, and
    how often on average.
    """

    resident: Number
    per_unit: Number
    starts: Number
    together: dict[int, Number]
    rounds: dict[int, Number]
    waves: Number

    def concurrent(self, nest: Nest, axes: frozenset[str]) -> Number:
        """Distinct blocks of one wave as far as `axes` tell them apart."""
        return product([extent for p, extent in self.together.items() if nest.loops[p].axis in axes])

    @property
    def wave_blocks(self) -> Number:
        return product(self.together.values())

    @property
    def all_rounds(self) -> Number:
        return product(self.rounds.values())


def waves_of(nest: Nest, device: Device, resident: Number) -> Waves:
    """Wave quantisation: whole blocks on whole units."""
    per_unit = ceil_div(nest.blocks, device.units)
    starts, launched = per_unit, nest.stage.block_order.launched
    if not is_nothing(launched):
        starts = choose(launched > 0, ceil_div(launched, device.units), per_unit)
        each = ceil_div(nest.blocks, choose(launched > 0, launched, nest.blocks))
        per_unit, resident = starts * each, choose(launched > 0, least(resident, starts), resident)
    at_once = device.units * resident
    left = least(nest.blocks, at_once)
    together: dict[int, Number] = {}
    grid = nest.positions(GRID)
    group = nest.stage.block_order.group_rows
    for number, p in enumerate(reversed(grid)):
        extent = nest.loops[p].extent
        if number == 0 and len(grid) > 1:
            rows = least(nest.loops[grid[-2]].extent, group)
            share = choose(rows > 0, ceil_div(left, choose(rows > 0, rows, 1)), left)
            together[p] = least(extent, share)
        else:
            together[p] = least(extent, left)
        left = ceil_div(left, together[p])
    rounds = {p: nest.loops[p].extent / together[p] for p in together}
    resident_now = least(resident, per_unit)
    waves = ceil_div(nest.blocks, device.units * resident_now)
    return Waves(resident_now, per_unit, starts, together, rounds, waves)
