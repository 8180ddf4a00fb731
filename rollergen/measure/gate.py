"""The check that every candidate passes before it may win.

Inputs and outputs lie between guard zones, outputs and temporaries start as poison, and the result
is compared with the oracle at sampled points that include every edge class (`points.py`), within a
tolerance derived from the computation (`tolerance.py`).  Two trials: random inputs, and, where the
computation is exact on them, small whole numbers with tolerance 0 (else random inputs again).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Buffer
from rollergen.measure.arrays import Guarded, guarded, integer_array, poison, poisoned, random_array, same_bits
from rollergen.measure.points import sample_points
from rollergen.measure.tolerance import Accuracy, accuracies, differences, exact_magnitude
from rollergen.program.rprogram import RProgram

Points = tuple[np.ndarray, ...]
Oracle = Callable[[Mapping[str, np.ndarray], str, Points], np.ndarray]
"""``oracle(arrays by input name, output name, coordinates)``: float64 values of the output there."""

Run = Callable[[Mapping[str, np.ndarray]], object]
"""Runs a candidate on arrays by buffer name (inputs, temporaries, outputs), in place."""

_SUSPECTS = 256


@dataclass(frozen=True, slots=True)
class Verdict:
    """``problems`` in words, none if the candidate passed; ``compared``: elements held against the oracle."""

    problems: tuple[str, ...]
    compared: int

    @property
    def passed(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _Trial:
    """One set of inputs, shared by all candidates, and the first accepted outputs on it."""

    title: str
    number: int
    exact: bool
    inputs: dict[str, Guarded]
    pristine: dict[str, np.ndarray]
    accepted: dict[str, np.ndarray] = field(default_factory=dict)


class Gate:
    """Checks candidates that compute the same outputs from the same inputs.

    The first program given decides the inputs' names, shapes and dtypes.  Not thread-safe.
    """

    def __init__(self, program: RProgram, oracle: Oracle, seed: int = 0) -> None:
        self._oracle = oracle
        self._seed = seed
        self._trials = _make_trials(program, np.random.default_rng(seed))

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The random inputs of the first trial by name: what the profiler times on."""
        return {name: zone.array for name, zone in self._trials[0].inputs.items()}

    def check(self, program: RProgram, run: Run) -> Verdict:
        """Runs the candidate once for each trial; an exception of ``run`` is the caller's to handle."""
        points = sample_points(program, np.random.default_rng(self._seed + 1))
        problems: list[str] = []
        blank: dict[str, np.ndarray] = {}
        for trial in self._trials:
            made = guarded(program.temporaries + program.outputs)
            for buffer in program.temporaries + program.outputs:
                poison(made[buffer.name].array, buffer.dtype, trial.number)
            zones = {**trial.inputs, **made}
            run({name: zone.array for name, zone in zones.items()})
            problems += [f"{trial.title}: {text}" for text in _damages(zones, trial)]
            for buffer in program.outputs:
                array = made[buffer.name].array
                still = poisoned(array, buffer.dtype, trial.number)
                blank[buffer.name] = still & blank.get(buffer.name, True)
                text = self._compare(program, trial, buffer, array, points[buffer.name])
                problems += [f"{trial.title}: {text}"] if text else []
        problems += [self._unwritten(trial, b, made[b.name].array, blank[b.name]) for b in program.outputs]
        problems = [text for text in problems if text]
        compared = len(self._trials) * sum(len(p[0]) if p else 1 for p in points.values())
        return Verdict(tuple(problems), compared)

    def _compare(self, program: RProgram, trial: _Trial, buffer: Buffer, got: np.ndarray, points: Points) -> str | None:
        definitions = tuple(stage.definition for stage in program.stages)
        accuracy = accuracies(definitions, program.inputs)[buffer.name]
        suspects = self._suspects(trial, buffer, got, accuracy)
        where = tuple(np.concatenate(pair) for pair in zip(points, suspects, strict=True))
        want = np.asarray(self._oracle(trial.pristine, buffer.name, where), dtype=np.float64)
        wrong = differences(np.asarray(got[where]), want, accuracy.variance, buffer.dtype, trial.exact, accuracy.steps)
        if not np.any(wrong):
            trial.accepted.setdefault(buffer.name, got.copy())
            return None
        at = int(np.argmax(wrong)) if where else 0
        place = ", ".join(str(int(axis[at])) for axis in where)
        value, expected = np.atleast_1d(got[where])[at], np.atleast_1d(want)[at]
        return (
            f"{int(np.sum(wrong))} of {wrong.size} compared elements of {buffer.name} are wrong, "
            f"such as {buffer.name}[{place}] = {value}, expected {expected}"
        )

    def _unwritten(self, trial: _Trial, buffer: Buffer, got: np.ndarray, where: np.ndarray) -> str:
        """Which elements kept their poison; none if they are right (a narrow integer may equal it)."""
        if not where.any():
            return ""
        at = tuple(axis[:_SUSPECTS] for axis in np.nonzero(where)) if where.ndim else ()
        want = np.asarray(self._oracle(trial.pristine, buffer.name, at), dtype=np.float64)
        held = got[at].view(np.uint8) if buffer.dtype == "bool" else got[at]
        if not is_float(buffer.dtype) and np.array_equal(held, want):
            return ""
        first, name = ", ".join(str(int(axis[0])) for axis in at), buffer.name
        return f"{int(where.sum())} of {where.size} elements of {name} were never written, such as {name}[{first}]"

    def _suspects(self, trial: _Trial, buffer: Buffer, got: np.ndarray, accuracy: Accuracy) -> Points:
        """Elements where this output and an accepted one disagree: the oracle decides about them too."""
        known = trial.accepted.get(buffer.name)
        if known is None or not got.ndim:
            return (np.zeros(0, dtype=np.int64),) * got.ndim
        other, variance, steps = known.astype(np.float64), 4 * accuracy.variance, 2 * accuracy.steps
        wrong = differences(got, other, variance, buffer.dtype, trial.exact, steps)
        return tuple(axis[:_SUSPECTS] for axis in np.nonzero(wrong))


FEW = 64
"""Below so many elements an output says little of the scale on which its rounding errors lie: sums that happen to
cancel would be compared with themselves.  Then the random inputs are not negative."""


def _make_trials(program: RProgram, rng: np.random.Generator) -> tuple[_Trial, ...]:
    definitions = tuple(stage.definition for stage in program.stages)
    magnitude = exact_magnitude(definitions, program.inputs)

    def trial(title: str, number: int, make: Callable[[Buffer], np.ndarray], exact: bool) -> _Trial:
        zones = guarded(program.inputs)
        for buffer in program.inputs:
            zones[buffer.name].array[...] = make(buffer)
        return _Trial(title, number, exact, zones, {name: zone.array.copy() for name, zone in zones.items()})

    few = any(buffer.elements < FEW for buffer in program.outputs)

    def random(buffer: Buffer) -> np.ndarray:
        array = random_array(buffer.shape, buffer.dtype, rng)
        return np.abs(array) if few and is_float(buffer.dtype) else array

    first = trial("random inputs", 0, random, False)
    if magnitude is None:
        return first, trial("other random inputs", 1, random, False)
    whole = magnitude
    return first, trial("whole-number inputs", 1, lambda b: integer_array(b.shape, b.dtype, whole, rng), True)


def _damages(zones: Mapping[str, Guarded], trial: _Trial) -> list[str]:
    damaged = [(name, zone.damage()) for name, zone in zones.items()]
    found = [f"{name}: {damage}" for name, damage in damaged if damage]
    for name, original in trial.pristine.items():
        zone = trial.inputs[name]
        if not same_bits(zone.array, original):
            found.append(f"input {name} was changed")
        if found:
            zone.restore(original)
    return found
