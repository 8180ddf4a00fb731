"""The check that every candidate passes before it may win.

Inputs and outputs lie between guard zones, outputs and temporaries start as poison, and the result
is compared with the oracle at sampled points that include every edge class (`points.py`), within a
tolerance derived from the computation (`tolerance.py`; what lies outside is judged by `perturbed.py`).
The trials: random inputs, twice, which must give the same bits although poison and alignment of the outputs
differ; where the computation is exact on them, whole numbers with tolerance 0 (else random inputs again); then hostile
inputs (`adversarial.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Buffer
from rollergen.measure.adversarial import Ordeal, ordeals
from rollergen.measure.arrays import (
    CALLER_LEAD_BYTES,
    Guarded,
    guarded,
    integer_array,
    poison,
    poisoned,
    ramp_array,
    random_array,
    same_bits,
    unequal_bits,
)
from rollergen.measure.narrowing import computed, is_narrowed, program_accuracies
from rollergen.measure.points import sample_points
from rollergen.measure.tolerance import RAMPS, Accuracy, differences, exact_magnitude
from rollergen.program.rprogram import RProgram

Points = tuple[np.ndarray, ...]
Oracle = Callable[[Mapping[str, np.ndarray], str, Points], np.ndarray]
"""``oracle(arrays by input name, output name, coordinates)``: float64 values of the output there."""


@runtime_checkable
class Definition(Protocol):
    """An oracle that knows how its values come about."""

    def within_rounding(
        self, arrays: Mapping[str, np.ndarray], output: str, points: Points, got: np.ndarray, want: np.ndarray
    ) -> np.ndarray:
        """Which of the elements `got` are what rounding may make of `want` (bool); dear."""


Run = Callable[[Mapping[str, np.ndarray]], object]
"""Runs a candidate on arrays by buffer name (inputs, temporaries, outputs), in place."""

_SUSPECTS = 256
_FIRST = 16
"""Of the elements that the tolerance refuses: whose computation is looked into before that of the others."""

LEADS = CALLER_LEAD_BYTES, 0
"""Alignment of the arrays of a call in the runs of the first and of the second kind: programs write both cases."""


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
    """One set of inputs, shared by all candidates, and (``remembers``) the first accepted outputs on it."""

    title: str
    number: int
    exact: bool
    inputs: dict[str, Guarded]
    pristine: dict[str, np.ndarray]
    remembers: bool = True
    accepted: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One candidate, how it is run, the points at which it is compared, and what it writes to: one set of arrays for
    each variant of poison, used again by later runs (fresh memory costs more than a run)."""

    program: RProgram
    run: Run
    points: Mapping[str, Points]
    made: tuple[dict[str, Guarded], dict[str, Guarded]]

    @property
    def accuracies(self) -> dict[str, Accuracy]:
        return program_accuracies(self.program)


class Gate:
    """Checks candidates that compute the same outputs from the same inputs.

    The first program given decides the inputs' names, shapes and dtypes.  Not thread-safe.
    """

    def __init__(self, program: RProgram, oracle: Oracle, seed: int = 0) -> None:
        self._oracle = oracle
        self._seed = seed
        self._trials = _make_trials(program, np.random.default_rng(seed))
        self._ordeals = ordeals(program, np.random.default_rng(seed + 2))
        flat = {name: array.reshape(-1) for name, array in self._trials[0].pristine.items()}
        self._ordinary = {
            ordeal.title: {name: flat[name][at] for name, (at, _) in ordeal.patches.items()} for ordeal in self._ordeals
        }

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The random inputs of the first trial by name: what the profiler times on."""
        return {name: zone.array for name, zone in self._trials[0].inputs.items()}

    def check(self, program: RProgram, run: Run) -> Verdict:
        """Runs the candidate on every trial; an exception of ``run`` is the caller's to handle.

        Hostile inputs are left out where ordinary ones show a fault already.
        """
        points = sample_points(program, np.random.default_rng(self._seed + 1))
        made = program.temporaries + program.outputs
        attempt = _Attempt(program, run, points, (guarded(made, LEADS[0]), guarded(made, LEADS[1])))
        first, second = self._trials
        problems: list[str] = []
        results = self._run(attempt, first, 0, problems)
        problems += _unsteady(results, self._run(attempt, first, 1, problems, compared=False), attempt)
        others = self._run(attempt, second, 1, problems)
        problems += self._never_written(program, first, results, second, others)
        ran = 2
        if not problems:
            for ordeal in self._ordeals:
                self._suffer(attempt, ordeal, problems)
            ran += len(self._ordeals)
        compared = ran * sum(len(p[0]) if p else 1 for p in attempt.points.values())
        return Verdict(tuple(problems), compared)

    def _run(
        self, attempt: _Attempt, trial: _Trial, variant: int, problems: list[str], *, compared: bool = True,
        absolute: bool = False,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """The outputs of one run by name; what is wrong with them is added to `problems`."""
        program, made = attempt.program, attempt.made[variant]
        for buffer in program.temporaries + program.outputs:
            made[buffer.name].reset()
            poison(made[buffer.name].array, buffer.dtype, variant)
        zones = {**trial.inputs, **made}
        attempt.run({name: zone.array for name, zone in zones.items()})
        found = _damages(zones, trial)
        if compared:
            for buffer in program.outputs:
                text = self._compare(attempt, trial, buffer, made[buffer.name].array, absolute)
                found += [text] if text else []
        problems += [f"{trial.title}: {text}" for text in found]
        return {buffer.name: made[buffer.name].array for buffer in program.outputs}

    def _suffer(self, attempt: _Attempt, ordeal: Ordeal, problems: list[str]) -> None:
        """One run on hostile inputs: those of the first trial, for the time being with the ordeal's elements."""
        base = self._trials[0]
        for name, (offsets, values) in ordeal.patches.items():
            for array in (base.inputs[name].array, base.pristine[name]):
                array.reshape(-1)[offsets] = values
        trial = _Trial(ordeal.title, 0, False, base.inputs, base.pristine, remembers=False)
        try:
            self._run(attempt, trial, 0, problems, absolute=ordeal.absolute)
        finally:
            for name, (offsets, _) in ordeal.patches.items():
                for array in (base.inputs[name].array, base.pristine[name]):
                    array.reshape(-1)[offsets] = self._ordinary[ordeal.title][name]

    def _compare(
        self, attempt: _Attempt, trial: _Trial, buffer: Buffer, got: np.ndarray, absolute: bool
    ) -> str | None:
        accuracy = attempt.accuracies[buffer.name]
        suspects = self._suspects(trial, buffer, got, accuracy, _is_exact(trial, attempt))
        where = tuple(np.concatenate(pair) for pair in zip(attempt.points[buffer.name], suspects, strict=True))
        want = np.asarray(self._oracle(trial.pristine, buffer.name, where), dtype=np.float64)
        scale = None
        if absolute:
            sizes = {name: np.abs(array) for name, array in trial.pristine.items()}
            scale = np.asarray(self._oracle(sizes, buffer.name, where), dtype=np.float64)
        wrong = differences(
            np.asarray(got[where]), want, accuracy.variance, buffer.dtype, _is_exact(trial, attempt), accuracy.steps,
            scale,
        )
        if np.any(wrong) and accuracy.variance and not trial.exact:
            wrong = self._refused(attempt, trial, buffer.name, (where, np.asarray(got[where]), want), wrong)
        if not np.any(wrong):
            if trial.remembers and buffer.name not in trial.accepted:
                trial.accepted[buffer.name] = got.copy()
            return None
        at = int(np.argmax(wrong)) if where else 0
        place = ", ".join(str(int(axis[at])) for axis in where)
        value, expected = np.atleast_1d(got[where])[at], np.atleast_1d(want)[at]
        return (
            f"{int(np.sum(wrong))} of {wrong.size} compared elements of {buffer.name} are wrong, "
            f"such as {buffer.name}[{place}] = {value}, expected {expected}"
        )

    def _refused(
        self, attempt: _Attempt, trial: _Trial, output: str, found: tuple[Points, np.ndarray, np.ndarray],
        wrong: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Of the elements that seem wrong those that are, in view of how their values come about (`perturbed.py`).

        Few are tried first: a candidate that is wrong is mostly wrong in all of them.
        """
        if not isinstance(self._oracle, Definition) or is_narrowed(attempt.program):
            return wrong
        (where, got, want), refused = found, np.atleast_1d(wrong).copy()
        accused = np.flatnonzero(refused)
        for some in (accused[:_FIRST], accused[_FIRST:]):
            if some.size:
                at = tuple(axis[some] for axis in where)
                values = np.atleast_1d(got)[some], np.atleast_1d(want)[some]
                refused[some] = ~self._oracle.within_rounding(trial.pristine, output, at, *values)
            if refused[some].any():
                break
        return refused.reshape(np.shape(wrong))

    def _never_written(
        self, program: RProgram, first: _Trial, results: Mapping[str, np.ndarray], second: _Trial,
        others: Mapping[str, np.ndarray],
    ) -> list[str]:  # fmt: skip
        """Of every output what kept its poison in both trials."""
        texts = []
        for buffer in program.outputs:
            blank = poisoned(results[buffer.name], buffer.dtype, first.number)
            blank &= poisoned(others[buffer.name], buffer.dtype, second.number)
            texts.append(self._unwritten(second, buffer, others[buffer.name], blank))
        return [text for text in texts if text]

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

    def _suspects(
        self, trial: _Trial, buffer: Buffer, got: np.ndarray, accuracy: Accuracy, exact: bool
    ) -> Points:
        """Elements where this output and an accepted one disagree: the oracle decides about them too."""
        known = trial.accepted.get(buffer.name)
        if known is None or not got.ndim:
            return (np.zeros(0, dtype=np.int64),) * got.ndim
        unequal = np.flatnonzero(got != known)
        mine, other = got.reshape(-1)[unequal], known.reshape(-1)[unequal].astype(np.float64)
        wrong = differences(mine, other, 4 * accuracy.variance, buffer.dtype, exact, 2 * accuracy.steps)
        return np.unravel_index(unequal[wrong][:_SUSPECTS], got.shape)


FEW = 64
"""Below so many elements an output says little of the scale on which its rounding errors lie: sums that happen to
cancel would be compared with themselves.  Then the random inputs are not negative."""


def _is_exact(trial: _Trial, attempt: _Attempt) -> bool:
    """Whether results on the trial's whole numbers have no tolerance: not of a candidate that cuts its factors."""
    return trial.exact and not is_narrowed(attempt.program)


def _make_trials(program: RProgram, rng: np.random.Generator) -> tuple[_Trial, _Trial]:
    definitions = computed(program)
    ramp = exact_magnitude(definitions, program.inputs, RAMPS)
    magnitude = exact_magnitude(definitions, program.inputs)

    def trial(title: str, number: int, make: Callable[[Buffer], np.ndarray], exact: bool) -> _Trial:
        zones = guarded(program.inputs, LEADS[number])
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
    if ramp is not None:
        return first, trial("whole-number ramps", 1, lambda b: ramp_array(b.shape, b.dtype, ramp), True)
    return first, trial("whole-number inputs", 1, lambda b: integer_array(b.shape, b.dtype, whole, rng), True)


def _unsteady(results: Mapping[str, np.ndarray], again: Mapping[str, np.ndarray], attempt: _Attempt) -> list[str]:
    """Outputs that two runs on the same inputs do not agree on to the last bit; where the program adds in any order,
    to twice the tolerance."""
    found = []
    in_any_order = any(stage.store.adds for stage in attempt.program.stages)
    for buffer in attempt.program.outputs:
        one, other = results[buffer.name], again[buffer.name]
        differ = unequal_bits(one, other)
        if in_any_order and is_float(buffer.dtype):
            accuracy = attempt.accuracies[buffer.name]
            differ &= differences(one, other.astype(np.float64), 4 * accuracy.variance, buffer.dtype, False)
        differ &= ~poisoned(results[buffer.name], buffer.dtype, 0)  # never written: reported as such
        if differ.any():
            at = ", ".join(str(int(axis[0])) for axis in np.nonzero(np.atleast_1d(differ))[: differ.ndim])
            how, name = f"in {int(differ.sum())} of {differ.size} elements", buffer.name
            found.append(f"two runs on the same inputs differ {how} of {name}, such as {name}[{at}]")
    return found


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
