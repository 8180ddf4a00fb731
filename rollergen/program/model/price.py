"""The price of programs: what each of a batch takes on a device, from named limiters in closed form.

A batch is a `Stage` whose sizes may be arrays, with an entry for each program; a program is a batch of one.  One model
serves all devices: which terms apply follows from what the spec has (banks, sets and ways, ports, a reorder window,
translation buffers, ...); every constant is a field of the spec (`hal.costs`).

A limiter is the time that one resource of the busiest unit would need alone.  Limiters of resources that
work side by side combine as a p-norm (a maximum would leave thousands of ties), the memory beyond a unit as one of
them: how far it overlaps with what the unit does follows from how tiles are staged (`norms_of`).  What no overlap
hides is added, and a launch on top.  Sources: ROLLER (OSDI 2022) section 3.4 for the idea; terms and
constants were chosen on measured programs of GPUs and of a CPU, see `benches/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import Facts, facts_of
from rollergen.program.model.fragments import instruction_of
from rollergen.program.model.launching import MOST_WAKES, Way, calling_thread, launch_us, merged
from rollergen.program.model.limiters.arithmetic import arithmetic_clocks, issued_multiply_adds
from rollergen.program.model.limiters.bandwidth import NOT_SAID, supply
from rollergen.program.model.limiters.entering import entering
from rollergen.program.model.limiters.gathering import gathering_clocks
from rollergen.program.model.limiters.issue import instructions_of, issue_rate
from rollergen.program.model.limiters.latency import late_tiles, latency_clocks
from rollergen.program.model.limiters.limit import ADDS, IN_SERIES, OVERLAPS, TAKES_TURNS, Limit
from rollergen.program.model.limiters.misses import exposed_misses
from rollergen.program.model.limiters.paths import path_clocks
from rollergen.program.model.nest import Nest, Waves, fills_past_registers, nest_of, waves_of
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, least, most
from rollergen.program.model.occupancy import resident_blocks
from rollergen.program.model.reuse import ReuseBySize
from rollergen.program.model.work import Work, work_of
from rollergen.program.rprogram import Stage


class Price(NamedTuple):
    """Predicted times of a batch of programs, and what search compares besides: columns with an entry for each program.

    ``seconds`` of the launch, infinite where a block does not fit a unit; ``resident_blocks`` on a unit at once;
    ``threads`` of a block; ``spilled`` registers of a thread; ``shared_bytes`` of the block's layer; ``alone``: whether
    the blocks run one after another on the calling thread (`launching`).
    """

    seconds: np.ndarray
    resident_blocks: np.ndarray
    threads: np.ndarray
    spilled: np.ndarray
    shared_bytes: np.ndarray
    alone: np.ndarray

    def of(self, which: slice | list[int]) -> Price:
        """The price of the named programs."""
        return Price(*[column[which] for column in self])

    @staticmethod
    def joined(prices: Sequence[Price]) -> Price:
        """The prices of all programs, one batch after the other."""
        if not prices:
            return Price(*[np.zeros(0)] * len(Price._fields))
        return Price(*map(np.concatenate, zip(*prices, strict=True)))


class Launched(NamedTuple):
    """A batch with its way of launching, and what that follows from."""

    nest: Nest
    work: Work
    way: Way
    alone: Number

    @property
    def spilled(self) -> Number:
        return self.work.spilled + self.work.window_spills.registers


@dataclass(frozen=True, slots=True, eq=False)
class Limiter:
    """The time that one resource needs: ``seconds``, and ``clocks`` of the busiest unit.

    ``how`` it joins the others.  *overlaps*: a term of the p-norm; *takes turns*: the sum of all such limiters is one
    term; *in series*: the slowest of them joins the norm of the rest; *adds*: is added to all of it.
    """

    name: str
    seconds: Number
    clocks: Number
    how: str


@dataclass(frozen=True, slots=True, eq=False)
class StagePrediction:
    """Predicted time of one launch and its breakdown. Numbers are arrays for a batch.

    ``seconds`` is infinite where a block does not fit a unit. ``occupancy``: resident threads over the unit's most.
    ``registers`` of a thread, ``spilled`` of them beyond what it can have. ``traffic_bytes``: bytes that leave each
    layer towards the units, whole launch. ``alone``: the blocks run one after another on the calling thread
    (`launching`).
    """

    name: str
    seconds: Number
    limiters: tuple[Limiter, ...]
    blocks: Number
    waves: Number
    resident_blocks: Number
    occupancy: Number
    threads: Number
    registers: Number
    spilled: Number
    shared_bytes: Number
    traffic_bytes: tuple[tuple[str, Number], ...]
    flops: Number
    once: bool
    alone: Number = False

    @property
    def binding(self) -> Any:
        """Name of the largest limiter; for a batch an array of names."""
        names = [limiter.name for limiter in self.limiters]
        if np.ndim(self.seconds):
            rows = np.stack([np.broadcast_to(x.seconds, np.shape(self.seconds)) for x in self.limiters])
            return np.array(names)[rows.argmax(axis=0)]
        return max(self.limiters, key=lambda limiter: limiter.seconds).name


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted time of one call: the stages that run at each call, in order."""

    seconds: float
    stages: tuple[StagePrediction, ...]

    def __repr__(self) -> str:
        stages = ", ".join(f"{one.name} {one.seconds * 1e6:.4g} us ({one.binding})" for one in self.stages)
        return f"<prediction: {self.seconds * 1e6:.4g} us; {stages}>"


def price_batch(batch: Stage, device: Device, limit: float = np.inf, facts: Facts | None = None) -> Price:
    """The price of each program of a batch.

    ``limit``: a program that takes more seconds than this may be said to take longer than it does: search has no use
    for it.  ``facts``: of the tensor op, where programs differ in these too.
    """
    found = launched(batch, device, limit, facts=facts)
    nest, work, way, alone = found
    figures = way.seconds, way.waves.resident, nest.threads, found.spilled, work.shared_bytes, alone
    count = programs(batch)
    return Price(*[of_each(figure, count) for figure in figures])


def launched(
    batch: Stage, device: Device, limit: float = np.inf, alone: bool | None = None, facts: Facts | None = None,
    starts_in: Mapping[str, str] = NOT_SAID,
) -> Launched:  # fmt: skip
    """The batch launched in one way, with its times.

    ``alone``: whether the programs run in the calling thread alone; None: each where it takes less.  ``starts_in``:
    as of `predict`.
    """
    costs = costs_of(device)
    nest, work = worked(batch, device, facts)
    room = resident_blocks(nest, device, work.registers, work.shared_bytes)
    if alone:
        return Launched(nest, work, _way(_inside(nest, calling_thread(device), costs, work, room), starts_in), True)
    woken = _inside(nest, device, costs, work, room)
    way = _way(woken, starts_in)
    shorter = _may_run_alone(woken)
    if alone is None and np.any(shorter):
        worse = choose(shorter, least(way.seconds, _longest_alone(device)), 0)
        inside = _inside(nest, calling_thread(device), costs, work, room)
        if np.any(_at_least(inside) < least(worse, limit)):
            one = _way(inside, starts_in)
            return Launched(nest, work, merged(one.seconds < worse, one, way), one.seconds < worse)
    return Launched(nest, work, way, False)


def _may_run_alone(woken: _Inside) -> Number:
    """Whether the calling thread alone may take less than all units that are woken."""
    device = woken.device
    if not device.wake_us or device.units == 1:
        return False
    # Inside a unit, all that others do not save is the wake; of memory, one unit finds more in its own caches.
    return _at_least(woken) < _longest_alone(device) + device.wake_us * 1e-6


def _longest_alone(device: Device) -> float:
    """Seconds that the calling thread may take alone."""
    return MOST_WAKES * device.wake_us * 1e-6


def programs(batch: Stage) -> int:
    """The number of programs."""
    sizes: list[Number] = [size for loop in batch.loops for size in (loop.extent, loop.stride)]
    sizes += [size for copy in batch.copies for size in (copy.vector, copy.padding, copy.depth)]
    order = batch.block_order
    sizes += [batch.store.vector, order.group_rows, order.launched, order.cluster]
    return max([size.size for size in sizes if isinstance(size, np.ndarray)], default=1)


def of_each(figure: Number, count: int) -> np.ndarray:
    """A column with an entry for each program."""
    return np.broadcast_to(figure, count)


class _Inside(NamedTuple):
    """A launch on `device`'s units as far as each of them works by itself: the limiters but for the memory, how far
    they overlap, the instructions of a thread, and the clocks that two limiters count."""

    nest: Nest
    device: Device
    costs: Costs
    work: Work
    fits: Number
    waves: Waves
    limiters: tuple[Limit, ...]
    entering: tuple[Limit, ...]
    norms: Norms
    instructions: Number
    twice: Number


def _inside(nest: Nest, device: Device, costs: Costs, work: Work, room: tuple[Number, Number]) -> _Inside:
    """Each unit has ``room`` (whether a block fits, and how many)."""
    fits, resident = room
    waves = waves_of(nest, device, resident)
    limiters, instructions = _within_a_unit(nest, device, costs, work, waves)
    added = entering(nest, device, costs, work, waves)
    norms = norms_of(nest, device, costs, work, resident)
    twice = waves.per_unit * issued_multiply_adds(nest, device, costs, work)
    return _Inside(nest, device, costs, work, fits, waves, tuple(limiters), tuple(added), norms, instructions, twice)


def _way(inside: _Inside, starts_in: Mapping[str, str] = NOT_SAID) -> Way:
    """The whole launch."""
    nest, device, costs, work, _, waves, *_ = inside
    reuse = ReuseBySize(nest, waves, work.streams)
    layers, moved, misses = supply(nest, device, costs, work, waves, reuse, starts_in)
    exposed = exposed_misses(nest, device, costs, work, waves, reuse, inside.instructions, misses)
    limiters = (*inside.limiters, *layers, *exposed, *inside.entering)
    launching_us = launch_us(device)
    return Way(_seconds(inside, limiters) + launching_us * 1e-6, launching_us, waves, limiters, tuple(moved))


def _at_least(inside: _Inside) -> Number:
    """Seconds of `_way` without the memory."""
    return _seconds(inside, (*inside.limiters, *inside.entering)) + launch_us(inside.device) * 1e-6


def _seconds(inside: _Inside, limiters: Sequence[Limit]) -> Number:
    clocks = combine(limiters, inside.norms, inside.twice)
    return choose(inside.fits, clocks / (inside.device.clock_mhz * 1e6), np.inf)


def least_seconds(batch: Stage, device: Device) -> np.ndarray:
    """Lower bounds of the programs' times, an entry for each program of the batch: they count the limiters inside a
    unit, at a sixth of the cost of a price."""
    costs = costs_of(device)
    nest, work = worked(batch, device)
    room = resident_blocks(nest, device, work.registers, work.shared_bytes)
    inside = _inside(nest, device, costs, work, room)
    found, shorter = _at_least(inside), _may_run_alone(inside)
    if np.any(shorter):
        alone = _inside(nest, calling_thread(device), costs, work, room)
        found = choose(shorter, least(found, _at_least(alone)), found)
    return of_each(found, programs(batch))


def worked(stage: Stage, device: Device, facts: Facts | None = None) -> tuple[Nest, Work]:
    nest = nest_of(stage, facts or facts_of(stage.op, stage.kept_rows), device)
    return nest, work_of(nest, device, costs_of(device))


class Norms(NamedTuple):
    """Exponents: of a unit's own limiters, and of these with the memory beyond it."""

    unit: float
    memory: Number


def norms_of(nest: Nest, device: Device, costs: Costs, work: Work, resident: Number) -> Norms:
    """How far limiters overlap.

    A matrix instruction keeps its unit busy for many clocks, in which others issue.  Memory overlaps with the unit
    where each tile is requested before the previous one is used up, or where everything is read once; else threads
    mostly wait for it.  It disturbs least where threads do not wait for products, either.  (Constants: two spaces of
    products in float32, published products in float16, products by wgmma on an H200.)

    A block that has staged its window computes without waiting.  So its unit's limiters overlap as with tiles that are
    staged ahead, and the memory overlaps the more, the more blocks are ``resident`` there.  (128 x 2 and 64 x 2 threads
    of an A100, 1.01 and .91 ms, differ in little else.  Powers of ``resident`` from a quarter to a half rank measured
    convolutions of an A100 and an MI50 alike.)
    """
    if costs.ahead_exponent and not is_nothing(work.window_steps):
        return Norms(costs.ahead_exponent, costs.memory_exponent * resident ** (1 / 3))
    one = instruction_of(nest, device)
    unit = (costs.matrix_exponent if one else 0) or costs.norm_exponent
    if not costs.ahead_exponent:
        return Norms(unit, costs.memory_exponent)
    depths = [copy.depth for copy in nest.stage.copies if copy.to_layer != device.layers[0].name]
    ahead = reduce(least, depths) > 1 if depths else not any(phase.direct for phase in work.phase_reads)
    beside = (costs.beside_exponent if one is not None and one.is_asynchronous else 0) or costs.ahead_exponent
    return Norms(unit, choose(ahead, beside, costs.memory_exponent))


def combine(limiters: Sequence[Limit], norms: Norms, twice: Number) -> Number:
    """Clocks of the whole launch.

    They are the p-norm of what overlaps, less the clocks that two limiters count (``twice``), joined by the slowest of
    what is in series, plus what nothing hides.
    """
    exponent = norms.unit
    overlapping: Number = -twice * twice if exponent == 2 else -(twice**exponent)
    in_turn: Number = 0
    slowest: Number = 0
    for _, clocks, how in limiters:
        if how == OVERLAPS:
            overlapping = overlapping + (clocks * clocks if exponent == 2 else clocks**exponent)
        elif how == TAKES_TURNS:
            in_turn = in_turn + clocks
        elif how == IN_SERIES:
            slowest = most(slowest, clocks)
    total = (overlapping + in_turn**exponent) ** (1 / exponent)
    if not is_nothing(slowest):
        total = (total**norms.memory + slowest**norms.memory) ** (1 / norms.memory)
    for _, clocks, how in limiters:
        if how == ADDS:
            total = total + clocks
    return total


def _within_a_unit(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves
) -> tuple[list[Limit], Number]:
    """Clocks of each resource inside the busiest unit, and the instructions of one thread.

    While a block that has its unit for itself waits for tiles that are late, nothing else runs there."""
    found: list[Limit] = []
    blocks = waves.per_unit
    found.append(("multiply-adds", blocks * arithmetic_clocks(nest, device, costs, work), OVERLAPS))
    instructions = instructions_of(nest, device, costs, work)
    gathered, gathering = gathering_clocks(nest, device, costs, work)
    rounds, others = ceil_div(blocks, waves.resident), instructions - gathered
    longest = rounds * others * costs.thread_issue_clocks
    found.append(("issue", most(blocks * nest.warps * others / issue_rate(device, costs), longest), OVERLAPS))
    for name, clocks in path_clocks(nest, device, costs, work):
        found.append((name, blocks * clocks, OVERLAPS))
    busy: Number = 0
    for _, clocks, _ in found:
        busy = most(busy, clocks)
    busy = busy + blocks * gathering
    late = late_tiles(device, costs, work, busy / rounds, waves.resident)
    alone = (waves.resident == 1) & fills_past_registers(nest)
    latency = latency_clocks(nest, device, costs, work, instructions) + choose(alone, 0, late)
    found.append(("latency", latency * rounds, OVERLAPS))
    found.append(("gathering", blocks * gathering, ADDS))
    found.append(("late tiles", choose(alone, late, 0) * rounds, ADDS))
    return found, instructions
