"""Prices of many stages at once: those that differ only in the sizes of their loops are a batch of the model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.model import price_stage
from rollergen.program.rprogram import Loop, Stage

_WORTH_A_BATCH = 4
"""Stages from which on a batch is cheaper than one after the other."""


def prices(stages: Sequence[Stage], device: Device) -> list[float]:
    """Predicted seconds of each stage, as `predict_stage` says."""
    found = [0.0] * len(stages)
    alike: dict[Hashable, list[int]] = {}
    for number, stage in enumerate(stages):
        alike.setdefault(_structure(stage), []).append(number)
    for numbers in alike.values():
        if len(numbers) < _WORTH_A_BATCH:
            values = [float(price_stage(stages[n], device).seconds) for n in numbers]
        else:
            seconds = price_stage(_batch([stages[n] for n in numbers]), device).seconds
            values = np.broadcast_to(np.asarray(seconds, dtype=float), (len(numbers),)).tolist()
        for number, value in zip(numbers, values, strict=True):
            found[number] = value
    return found


def _structure(stage: Stage) -> Hashable:
    """All but the sizes of the loops; of these, the order of each axis' strides."""
    walked = sorted(range(len(stage.loops)), key=lambda p: (stage.loops[p].axis, -stage.loops[p].stride))
    return (
        id(stage.definition), tuple((loop.axis, loop.kind) for loop in stage.loops), tuple(walked), stage.compute,
        stage.accumulator, stage.copies, id(stage.residents) if stage.residents else 0, stage.store, stage.guards,
        stage.block_order, stage.once,
    )  # fmt: skip


def _batch(stages: Sequence[Stage]) -> Stage:
    """Stages of one structure as one whose loops have arrays for sizes."""
    loops = tuple(
        Loop(loop.axis, _column(stages, p, "extent"), _column(stages, p, "stride"), loop.kind)
        for p, loop in enumerate(stages[0].loops)
    )
    return replace(stages[0], loops=loops)


def _column(stages: Sequence[Stage], p: int, size: str) -> Any:
    """One size of all stages' loops at position `p`: a number where they agree, else an array."""
    values = [getattr(stage.loops[p], size) for stage in stages]
    return values[0] if len(set(values)) == 1 else np.array(values, dtype=np.int64)
