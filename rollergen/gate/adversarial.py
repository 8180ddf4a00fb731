"""Where hostile values are put (`inputs.HOSTILE`): few elements of an ordinary set of inputs.

Only the elements replaced are kept, so that large operands are neither copied nor made again.  They are those that
sampled output elements depend on (`points.py`), each stage's loads evaluated at the sampled axes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.expr.index import linear
from rollergen.gate.facts import Facts
from rollergen.gate.inputs import HOSTILE, hostile_values
from rollergen.gate.points import each_once, sample_stages
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram

FEW = 6
"""Hostile elements of one load where most results shall remain ordinary."""

SHARE = 4
"""Else one in so many sampled elements is hostile."""

Patches = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By input name: row-major offsets, all different, and the values to put there."""


@dataclass(frozen=True, slots=True)
class HostileRun:
    """One kind of hostile inputs.  ``absolute``: errors lie on the scale of the definition on absolute inputs."""

    title: str
    patches: Patches
    absolute: bool = False


def hostile_runs(facts: Facts, seed: int) -> tuple[HostileRun, ...]:
    """The kinds of hostile inputs that say something about a program, at the points that `seed` samples."""
    kinds = [kind for kind in HOSTILE if kind.applies(facts)]
    if not kinds:
        return ()
    offsets, found = _offsets(facts.program, seed), []
    for kind in kinds:
        patches, sparse = {}, kind.sparse(facts)
        for number, buffer in enumerate(facts.program.inputs):
            values = hostile_values(kind, buffer, facts)
            if values.size and buffer.name in offsets:
                patches[buffer.name] = _patch(offsets[buffer.name], sparse, values, number)
        if patches:
            found.append(HostileRun(kind.title, patches, kind.absolute))
    return tuple(found)


def _offsets(program: RProgram, seed: int) -> dict[str, np.ndarray]:
    """Elements of every input that sampled points of the stages read, of all inputs in one order of the points."""
    found: dict[str, list[np.ndarray]] = {}
    sampled, rng = sample_stages(program, seed), np.random.default_rng(seed + 1)
    for stage, columns in zip(program.stages, sampled.values(), strict=True):
        length = len(next(iter(columns.values()))) if columns else 64
        order = rng.permutation(length)
        for axis in stage.op.axes:
            if axis.name not in columns:
                columns[axis.name] = rng.integers(0, axis.extent, length)
        for load in stage.op.loads():
            if load.buffer.kind == "input":
                at = np.broadcast_to(linear(load.indices, load.buffer.shape).evaluate(columns), (length,))[order]
                found.setdefault(load.buffer.name, []).append(np.clip(at, 0, load.buffer.elements - 1))
        for take in stage.op.takes():
            if take.row.buffer.kind == "input":
                at = np.broadcast_to(take.row.offset().evaluate(columns), (length,))[order]
                moved = (rng.integers(0, n, length) * s for n, s in zip(take.extents, take.strides, strict=True))
                at = sum(moved, start=at)
                found.setdefault(take.row.buffer.name, []).append(np.clip(at, 0, take.row.buffer.elements - 1))
    return {name: each_once(np.concatenate(several)) for name, several in found.items()}


def _patch(offsets: np.ndarray, sparse: bool, values: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the values stand in the input of this number.

    Of two inputs, half of the points that are hostile in the one are so in the other, with the values' neighbours.
    """
    count = min(len(offsets), FEW) if sparse else min(len(offsets), max(2 * len(values), len(offsets) // SHARE))
    at = (np.arange(count) + number * count // 2) % len(offsets)
    return offsets[at], np.resize(np.roll(values, -number * (count // 2 + 1)), count)
