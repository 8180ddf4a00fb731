"""Predicted time of a bulk-synchronous program, in the terms that all predictions have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rollergen.bsp.model.supersteps import BulkFacts, StepFacts, bulk_facts
from rollergen.bsp.program import superstep
from rollergen.hal.spec import Device
from rollergen.program.model.facts import flops_of
from rollergen.program.model.limiters.limit import ADDS
from rollergen.program.model.price import Limiter, Prediction, StagePrediction
from rollergen.program.rprogram import RProgram, Stage


def predict_bulk(program: RProgram, device: Device) -> Prediction:
    """Sum over the supersteps of sync, exchange, local copies and compute of the slowest tile.

    ``seconds`` is infinite where a tile's memory does not hold what lives there, and where the program is for more
    tiles than the device has (a program constructed for another one).  ``traffic_bytes``: received over the exchange
    by all tiles together.
    """
    tiles = max(stage.blocks for stage in program.stages)
    facts = bulk_facts(program, device if tiles <= device.units else replace(device, units=tiles))
    stages = tuple(_stage(program, number, facts, device) for number in range(len(program.stages)))
    return Prediction(sum(float(stage.seconds) for stage in stages if not stage.once), stages)


def _stage(program: RProgram, number: int, facts: BulkFacts, device: Device) -> StagePrediction:
    stage = program.stages[number]
    steps = [step for step in facts.steps if step.stage == stage.name]
    limiters = _limiters(steps, device)
    peak = int(facts.live[number].max())
    tiles = _tiles(program, stage)
    fits = peak <= facts.capacity and tiles <= device.units
    seconds = sum(limiter.seconds for limiter in limiters) if fits else np.inf
    received = float(sum(step.received.sum() for step in steps))
    return StagePrediction(
        stage.name, seconds, limiters, tiles, 1, 1, 1.0, device.limits.threads_per_unit,
        device.limits.registers_per_thread, 0, peak, ((device.backing.name, received),), flops_of(stage), stage.once,
    )  # fmt: skip


def _tiles(program: RProgram, stage: Stage) -> int:
    shared = superstep(stage).shares
    return next((s.blocks for s in program.stages if s.op.output.name == shared), stage.blocks)


def _limiters(steps: Sequence[StepFacts], device: Device) -> tuple[Limiter, ...]:
    parts = {
        steps[0].kind: sum(step.compute for step in steps),
        "exchange": sum(step.exchange for step in steps),
        "local copies": sum(step.local for step in steps),
        "sync": sum(step.sync for step in steps),
    }
    return tuple(Limiter(name, clocks / (device.clock_mhz * 1e6), clocks, ADDS) for name, clocks in parts.items())
