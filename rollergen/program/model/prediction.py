"""Reader 1 of the rProgram: its predicted time, from named limiters in closed form.

One model for all devices: which terms apply follows from what the spec has (banks, sets and ways, ports, a
reorder window, translation buffers, ...); every constant is a field of the spec (`costs.meanings`).

A limiter is the time that one resource of the busiest unit would need alone.  Limiters of resources that
work side by side combine as a p-norm (a maximum would leave thousands of ties); what no overlap hides is
added, and a launch on top.  Sources: ROLLER (OSDI 2022) section 3.4 for the idea; terms and
constants were chosen on measured programs of GPUs and of a CPU, see `benches/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.model.compute import (
    arithmetic_clocks,
    instructions_of,
    issue_rate,
    issued_multiply_adds,
    latency_clocks,
    path_clocks,
    tile_clocks,
)
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import Facts, facts_of
from rollergen.program.model.kept import Kept
from rollergen.program.model.launching import MOST_WAKES, Limit, Way, calling_thread, launch_us, merged
from rollergen.program.model.nest import Nest, Waves, is_batch, nest_of, waves_of
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, least, most
from rollergen.program.model.occupancy import granted_registers, resident_blocks
from rollergen.program.model.supply import ADDS, OVERLAPS, TAKES_TURNS, exposed_misses, supply
from rollergen.program.model.walks import walked_anew, walks_of
from rollergen.program.model.work import Work, read_ahead, work_of
from rollergen.program.rprogram import RProgram, Stage, StageLaunch


@dataclass(frozen=True, slots=True, eq=False)
class Limiter:
    """The time that one resource needs: ``seconds``, and ``clocks`` of the busiest unit.

    ``how``: overlaps with the others (p-norm), takes turns with others that do (their sum is one of the p-norm's
    terms), or adds to them all.
    """

    name: str
    seconds: Number
    clocks: Number
    how: str


@dataclass(frozen=True, slots=True, eq=False)
class StagePrediction:
    """Predicted time of one launch, with what it follows from.  Numbers are arrays for a batch.

    ``seconds`` is infinite where a block does not fit a unit.  ``occupancy``: resident threads over the
    unit's most.  ``registers`` of a thread, ``spilled`` of them beyond what it can have.  ``traffic_bytes``: bytes
    that leave each layer towards the units, whole launch.  ``alone``: the blocks run one after another on the calling
    thread (`launching`).
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

    seconds: Number
    stages: tuple[StagePrediction, ...]

    def __repr__(self) -> str:
        if np.ndim(self.seconds):
            return f"<predictions of {np.size(self.seconds)} programs>"
        stages = ", ".join(f"{one.name} {one.seconds * 1e6:.4g} us ({one.binding})" for one in self.stages)
        return f"<prediction: {self.seconds * 1e6:.4g} us; {stages}>"


def predict(program: RProgram, device: Device) -> Prediction:
    """Predicted time of `program` on `device`; stages that run once at build are reported, not counted."""
    if program.tile_mappings:
        from rollergen.bsp.model.prediction import predict_bulk

        return predict_bulk(program, device)
    stages = tuple([_launched(program, number, device) for number in range(len(program.stages))])
    total: Number = 0.0
    for stage in stages:
        if not stage.once:
            total = total + stage.seconds
    return Prediction(total, stages)


def _launched(program: RProgram, number: int, device: Device) -> StagePrediction:
    """The prediction of a stage as the program says that it is launched; the better way where it says nothing."""
    stage = program.stages[number]
    price = price_stage(stage, device)
    if not program.launches or program.launches[number].alone == bool(price.alone):
        return price.prediction
    return StagePrice(stage, device, alone=program.launches[number].alone).prediction


def with_launches(program: RProgram, device: Device) -> RProgram:
    """`program` with how each stage is launched: alone where that takes less, and as many blocks on a unit as fit."""
    prices = [price_stage(stage, device) for stage in program.stages]
    launches = [
        StageLaunch(
            alone=bool(device.wake_us) and bool(price.alone),
            resident_blocks=int(price.resident_blocks) if device.kind.bounds_registers else 0,
        )
        for price in prices
    ]
    return replace(program, launches=tuple(launches))


class StagePrice:
    """What one launch takes; what that follows from is found when it is asked for (`prediction`), for a search asks
    for the times of many and for the reasons of few.

    ``seconds``, ``resident_blocks``, ``threads``, ``spilled``, ``shared_bytes`` and ``alone`` are those of
    `StagePrediction`.  ``limit``: seconds from which on nobody asks how long it takes: what it takes in the calling
    thread alone is not looked at where it is that much.  ``alone``: whether it runs there; None: where it takes less.
    """

    def __init__(self, stage: Stage, device: Device, limit: float = np.inf, alone: bool | None = None) -> None:
        costs = costs_of(device)
        nest, work = _worked(stage, device)
        room = resident_blocks(nest, device, work.registers, work.shared_bytes)
        way = _way(_inside(nest, device, costs, work, room))
        self.alone: Number = False
        if alone:
            way = _way(_inside(walked_anew(nest), calling_thread(device), costs, work, room))
            self.alone = True
        elif alone is None and device.wake_us and device.units > 1:
            most = MOST_WAKES * device.wake_us * 1e-6
            if np.any(way.seconds < most):
                worse = least(way.seconds, most)
                inside = _inside(walked_anew(nest), calling_thread(device), costs, work, room)
                if np.any(_at_least(inside) < least(worse, limit)):
                    one = _way(inside)
                    self.alone = one.seconds < worse
                    way = merged(self.alone, one, way)
        self.seconds: Number = way.seconds
        self.resident_blocks, self.threads = way.waves.resident, nest.threads
        self.spilled: Number = work.spilled + work.parked.registers
        self.shared_bytes = work.shared_bytes
        self._found = nest, device, costs, work, way

    @cached_property
    def prediction(self) -> StagePrediction:
        """The time with its limiters, registers and traffic."""
        nest, device, costs, work, way = self._found
        clock_hz, stage, waves = device.clock_mhz * 1e6, nest.stage, way.waves
        launch = Limiter("launch", way.launch_us * 1e-6, way.launch_us * device.clock_mhz, ADDS)
        named = (*[Limiter(n, c / clock_hz, c, how) for n, c, how in way.limiters], launch)
        occupancy = least(waves.resident * nest.threads / device.limits.threads_per_unit, 1.0)
        traffic = tuple([(name, (read + written) * nest.blocks) for name, read, written in way.layers])
        return StagePrediction(
            stage.name, self.seconds, named, nest.blocks, waves.waves, waves.resident, occupancy, nest.threads,
            _registers(nest, device, costs, work, waves.resident), self.spilled, work.shared_bytes, traffic,
            flops_of(stage), stage.once, self.alone,
        )  # fmt: skip


class PriceTogether(StagePrice):
    """The price of a program (or of a batch) that was found among others: the reasons are found for it alone, as is how
    a program is launched, which a last digit may decide."""

    def __init__(
        self, stage: Stage, device: Device, seconds: Number, resident_blocks: Number, threads: Number,
        spilled: Number, shared_bytes: Number,
    ) -> None:  # fmt: skip
        self.seconds, self.resident_blocks, self.threads = seconds, resident_blocks, threads
        self.spilled, self.shared_bytes = spilled, shared_bytes
        self._of = stage, device

    @cached_property
    def alone(self) -> bool:  # type: ignore[override]
        """As `StagePrice.alone`: never of a device whose threads need not be woken."""
        return bool(self._of[1].wake_us) and bool(self.prediction.alone)

    @cached_property
    def prediction(self) -> StagePrediction:
        """As `StagePrice.prediction`."""
        return StagePrice(*self._of).prediction


class _Inside(NamedTuple):
    """A launch on `device`'s units as far as each of them works by itself: the limiters but for the memory, the
    instructions of a thread, and the clocks that two limiters count."""

    nest: Nest
    device: Device
    costs: Costs
    work: Work
    fits: Number
    waves: Waves
    limiters: tuple[Limit, ...]
    entering: tuple[Limit, ...]
    instructions: Number
    twice: Number


def _inside(nest: Nest, device: Device, costs: Costs, work: Work, room: tuple[Number, Number]) -> _Inside:
    """Each unit has ``room`` (whether a block fits, and how many)."""
    fits, resident = room
    waves = waves_of(nest, device, resident)
    limiters, instructions = _within_a_unit(nest, device, costs, work, waves)
    entering = _entering(nest, device, costs, work, waves)
    twice = waves.per_unit * issued_multiply_adds(nest, device, costs, work)
    return _Inside(nest, device, costs, work, fits, waves, tuple(limiters), tuple(entering), instructions, twice)


def _way(inside: _Inside) -> Way:
    """The whole launch."""
    nest, device, costs, work, _, waves, *_ = inside
    walks = walks_of(nest, waves, work.streams)
    layers, moved, misses = supply(nest, device, costs, work, waves, walks)
    exposed = exposed_misses(nest, device, costs, work, waves, walks, inside.instructions, misses)
    every = (*inside.limiters, *layers, *exposed, *inside.entering)
    limiters = [(n, c, how) for n, c, how in every if type(c) is np.ndarray or c > 0]
    launching_us = launch_us(device)
    return Way(_seconds(inside, limiters) + launching_us * 1e-6, launching_us, waves, tuple(limiters), tuple(moved))


def _at_least(inside: _Inside) -> Number:
    """Seconds of `_way` without the memory."""
    return _seconds(inside, (*inside.limiters, *inside.entering)) + launch_us(inside.device) * 1e-6


def _seconds(inside: _Inside, limiters: Sequence[Limit]) -> Number:
    clocks = combine(limiters, inside.costs, inside.twice)
    return choose(inside.fits, clocks / (inside.device.clock_mhz * 1e6), np.inf)


def price_stage(stage: Stage, device: Device, limit: float = np.inf) -> StagePrice:
    """`predict_stage` for who asks for the time alone, at four fifths of its price.

    ``limit``: seconds beyond which the programs of a batch may be said to take longer than they do."""
    return StagePrice(stage, device, limit) if is_batch(stage.loops) else price_program(stage, device)


def price_program(stage: Stage, device: Device) -> StagePrice:
    """`price_stage` of what is known to be one program."""
    known = kept.get((stage, device))
    if known is None:
        known = StagePrice(stage, device)
        kept.put((stage, device), known)
    return known


def predict_stage(stage: Stage, device: Device) -> StagePrediction:
    """Predicted time of one launch.

    ``Loop.extent`` and ``Loop.stride`` may be int64 arrays of one length (a batch of programs with one loop
    structure and one tensor op); every number of the answer is then an array.
    """
    return price_stage(stage, device).prediction


def _predicted(stage: Stage, device: Device) -> StagePrediction:
    return StagePrice(stage, device).prediction


kept: Kept[tuple[Stage, Device], StagePrice] = Kept(256)
"""Prices of a draft: what priced a program is what explains it, and what a verifier learns from."""


def least_seconds(stage: Stage, device: Device) -> Number:
    """What `predict_stage` says at least, at a sixth of its price: the limiters inside a unit, without the memory."""
    costs = costs_of(device)
    nest, work = _worked(stage, device)
    room = resident_blocks(nest, device, work.registers, work.shared_bytes)
    woken = _at_least(_inside(nest, device, costs, work, room))
    if not device.wake_us or device.units == 1:
        return woken
    return least(woken, _at_least(_inside(nest, calling_thread(device), costs, work, room)))


def _worked(stage: Stage, device: Device) -> tuple[Nest, Work]:
    nest = nest_of(stage, facts_of(stage.op, stage.kept_rows), device)
    return nest, work_of(nest, device, costs_of(device))


def multiply_add_share(stage: Stage, device: Device) -> Number:
    """Share of the multiply-add slots among all instructions that one thread issues, by the issue limiter's count."""
    nest, work = _worked(stage, device)
    costs = costs_of(device)
    return work.slots / instructions_of(nest, device, costs, work)


def _registers(nest: Nest, device: Device, costs: Costs, work: Work, resident: Number) -> Number:
    """What is wanted and, as far as that costs no resident block, loads started early: a compiler that is told how
    many blocks share a unit takes what they leave, and reads fragments ahead where they leave all that a thread may
    have."""
    granted = granted_registers(nest, device, resident)
    spare = most(granted - work.registers, 0)
    free = (resident == 1) | (granted >= device.limits.registers_per_thread)
    ahead = choose(free, read_ahead(nest, device, costs), 0) if nest.lockstep > 1 else 0
    return work.registers + least(work.in_flight + ahead, spare)


def combine(limiters: Sequence[Limit], costs: Costs, twice: Number) -> Number:
    """Clocks of the whole: p-norm of what overlaps (less the clocks that two limiters count: ``twice``), plus what
    nothing hides."""
    exponent = costs.norm_exponent
    overlapping: Number = -twice * twice if exponent == 2 else -(twice**exponent)
    in_turn: Number = 0
    for _, clocks, how in limiters:
        if how == OVERLAPS:
            overlapping = overlapping + (clocks * clocks if exponent == 2 else clocks**exponent)
        elif how == TAKES_TURNS:
            in_turn = in_turn + clocks
    if not is_nothing(in_turn):
        overlapping = overlapping + in_turn**exponent
    total = overlapping ** (1 / exponent)
    for _, clocks, how in limiters:
        if how == ADDS:
            total = total + clocks
    return total


def flops_of(stage: Stage) -> int:
    """Arithmetic operations of the definition, a multiply-add counted as two."""
    facts = facts_of(stage.op, stage.kept_rows)
    found: int | None = facts.tables.get("flops")
    if found is None:
        found = facts.tables["flops"] = _flops_of(facts)
    return found


def _flops_of(facts: Facts) -> int:
    total = 0
    for phase in facts.phases:
        per_point = sum(count for _, count in phase.operations)
        if phase.reduces and any(name == "add" for name, _ in phase.operations):
            per_point += 1
        spatial_only = not phase.reduces and facts.op.reductions and not facts.by_row
        size = 1
        for axis, extent in facts.extents.items():
            size *= 1 if spatial_only and facts.roles[axis] != "spatial" else extent
        total += per_point * size
    return total


def _within_a_unit(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves
) -> tuple[list[Limit], Number]:
    """Clocks of each resource inside the busiest unit, and the instructions of one thread."""
    found: list[Limit] = []
    blocks = waves.per_unit
    found.append(("multiply-adds", blocks * arithmetic_clocks(nest, device, costs, work), OVERLAPS))
    instructions = instructions_of(nest, device, costs, work)
    rounds = ceil_div(blocks, waves.resident)
    alone = rounds * instructions * costs.thread_issue_clocks
    found.append(("issue", most(blocks * nest.warps * instructions / issue_rate(device, costs), alone), OVERLAPS))
    for name, clocks in path_clocks(nest, device, costs, work):
        found.append((name, blocks * clocks, OVERLAPS))
    busy: Number = 0
    for _, clocks, _ in found:
        busy = most(busy, clocks)
    latency = latency_clocks(nest, device, costs, work, instructions, busy / rounds)
    found.append(("latency", latency * rounds, OVERLAPS))
    return found, instructions


def _entering(nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves) -> list[Limit]:
    found = []
    if type(work.window_steps) is np.ndarray or work.window_steps:
        rounds = ceil_div(waves.per_unit, waves.resident)
        found.append(("staging", rounds * work.window_steps * costs.unhidden_step_clocks, ADDS))
    return [
        *found,
        ("tiles", waves.per_unit * tile_clocks(nest, device, costs, work), ADDS),
        ("blocks", waves.per_unit * costs.block_clocks, ADDS),
    ]


__all__ = [
    "ADDS", "OVERLAPS", "Limiter", "Prediction", "StagePrediction", "StagePrice", "least_seconds", "multiply_add_share",
    "predict", "predict_stage", "price_stage",
]  # fmt: skip
