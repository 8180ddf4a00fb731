"""Whole sets of inputs, shared by all candidates (`inputs.py` says which)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.facts import Facts
from rollergen.gate.inputs import EQUAL, RANDOM, SECOND, Whole, fill_different, fill_ids
from rollergen.gate.memory import Memory, Zone
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True, slots=True)
class Trial:
    """``pristine``: what the inputs hold, for the oracle and to tell whether they were changed.

    ``exact``: results have no tolerance.  ``remembers``: all elements of outputs on it are compared between candidates.
    ``absolute``: errors lie on the scale of the definition on absolute inputs.
    """

    title: str
    inputs: Mapping[str, Zone]
    pristine: Mapping[str, np.ndarray]
    exact: bool = False
    remembers: bool = False
    absolute: bool = False


def kinds_of(facts: Facts) -> tuple[Whole, ...]:
    """Random inputs, those of the second kind, and equal ones where these say something."""
    second = next(kind for kind in SECOND if kind.applies(facts))
    return (RANDOM, second, EQUAL) if EQUAL.applies(facts) else (RANDOM, second)


def make_trials(facts: Facts, rng: np.random.Generator, memory: Memory) -> tuple[Trial, ...]:
    """One for each of `kinds_of`, its inputs in `memory`."""
    return tuple(_trial(kind, number, facts, rng, memory) for number, kind in enumerate(kinds_of(facts)))


def _trial(kind: Whole, number: int, facts: Facts, rng: np.random.Generator, memory: Memory) -> Trial:
    zones, pristine = memory.guarded(facts.program.inputs, memory.leads[number % 2], number), {}
    for position, buffer in enumerate(facts.program.inputs):
        alike = kind is EQUAL and buffer.name not in facts.different
        shape = (1,) * len(buffer.shape) if alike else buffer.shape
        values = np.empty(shape, numpy_dtype(buffer.dtype))
        if buffer.name in facts.different:
            fill_different(values, facts.different[buffer.name], rng)
        elif buffer.name in facts.ids:
            fill_ids(values, facts.ids[buffer.name], number, rng)
        else:
            kind.fill(values, buffer, position, facts, rng)
        pristine[buffer.name] = np.broadcast_to(values, buffer.shape) if alike else values
        memory.write(zones[buffer.name].array, pristine[buffer.name])
    return Trial(kind.title, zones, pristine, exact=kind.exact, remembers=number < 2)


def mixed(program: RProgram, first: Trial, second: Trial) -> Trial:
    """The second trial's constant tensors, which launches marked ``once`` have seen, and the first one's others."""
    source = {buffer.name: second if buffer.constant else first for buffer in program.inputs}
    return Trial(
        "other inputs after the launches marked once",
        {name: trial.inputs[name] for name, trial in source.items()},
        {name: trial.pristine[name] for name, trial in source.items()},
    )
