"""Whole sets of inputs, shared by all candidates (`inputs.py` says which)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rollergen.measure.arrays import CALLER_LEAD_BYTES, Guarded, guarded
from rollergen.measure.facts import Facts
from rollergen.measure.inputs import EQUAL, RANDOM, SECOND, Whole
from rollergen.program.rprogram import RProgram

LEADS = CALLER_LEAD_BYTES, 0
"""Alignment of the arrays of a call in the runs of the first and of the second kind: programs write both cases."""


@dataclass(frozen=True, slots=True)
class Trial:
    """``pristine``: what the inputs hold, for the oracle and to tell whether they were changed.

    ``exact``: results have no tolerance.  ``remembers``: all elements of outputs on it are compared between candidates.
    ``absolute``: errors lie on the scale of the definition on absolute inputs.
    """

    title: str
    inputs: Mapping[str, Guarded]
    pristine: Mapping[str, np.ndarray]
    exact: bool = False
    remembers: bool = False
    absolute: bool = False


def make_trials(facts: Facts, rng: np.random.Generator) -> tuple[Trial, ...]:
    """Random inputs, those of the second kind, and equal ones where these say something."""
    second = next(kind for kind in SECOND if kind.applies(facts))
    last = (EQUAL,) if EQUAL.applies(facts) else ()
    return tuple(_trial(kind, number, facts, rng) for number, kind in enumerate((RANDOM, second, *last)))


def _trial(kind: Whole, number: int, facts: Facts, rng: np.random.Generator) -> Trial:
    zones = guarded(facts.program.inputs, LEADS[number % 2], number)
    for position, buffer in enumerate(facts.program.inputs):
        kind.fill(zones[buffer.name].array, buffer, position, facts, rng)
    copied = _one_for_all if kind is EQUAL else np.copy
    pristine = {name: copied(zone.array) for name, zone in zones.items()}
    return Trial(kind.title, zones, pristine, exact=kind.exact, remembers=number < 2)


def _one_for_all(array: np.ndarray) -> np.ndarray:
    """An array of equal values that takes no memory."""
    return np.broadcast_to(array.reshape(-1)[:1].copy(), array.shape) if array.size and array.ndim else array.copy()


def mixed(program: RProgram, first: Trial, second: Trial) -> Trial:
    """The second trial's constant tensors, which launches marked ``once`` have seen, and the first one's others."""
    source = {buffer.name: second if buffer.constant else first for buffer in program.inputs}
    return Trial(
        "other inputs after the launches marked once",
        {name: trial.inputs[name] for name, trial in source.items()},
        {name: trial.pristine[name] for name, trial in source.items()},
    )
