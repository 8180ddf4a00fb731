"""The check that every candidate passes before it may win.

Inputs and outputs lie between guard zones, outputs and temporaries start as poison, and the result
is compared with the oracle at sampled points that include every edge class (`points.py`), within a
tolerance derived from the computation (`tolerance.py`; what lies outside is judged by `perturbed.py`).
The runs: on random inputs, twice, which must give the same bits although poison and alignment of the outputs differ and
temporaries hold what the first run left there; on other inputs of `inputs.py`; where launches are marked ``once``, on
other inputs again without these.  The first candidate that passes is compared with the oracle on whole tiles for as
long as that is cheap (`reference.py`), the others with it in all elements: where two disagree the oracle decides, and
the wrong one falls, the first included.  So whichever is chosen was compared in full; where no other one passes, on a
sample of whole tiles at least (`Gate.revoked`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Buffer
from rollergen.measure.adversarial import Ordeal, ordeals
from rollergen.measure.arrays import Guarded, guarded, poison, poisoned, same_bits, unequal_bits
from rollergen.measure.comparison import SUSPECTS, Comparison, Oracle, Points, disagreements, said
from rollergen.measure.facts import Facts
from rollergen.measure.points import sample_points
from rollergen.measure.reference import Reference
from rollergen.measure.tolerance import differences
from rollergen.measure.trials import LEADS, Trial, make_trials, mixed
from rollergen.program.rprogram import RProgram

Run = Callable[[Mapping[str, np.ndarray]], object]
"""Runs a candidate on arrays by buffer name (inputs, temporaries, outputs), in place."""

FEW_POINTS = 96
"""Compared on equal values, whose results are alike."""

SHARE = 10
"""More of the first candidate that passes is compared with the oracle for one part in so many of what the gate took."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``problems`` in words, none if the candidate passed; ``compared``: elements held against the oracle."""

    problems: tuple[str, ...]
    compared: int

    @property
    def passed(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One candidate, how it is run, the points at which it is compared, and what it writes to: outputs of two
    alignments, used again by later runs (fresh memory costs more than a run).

    ``kept``: copies of outputs that later candidates may be compared with; ``compared``: elements in each comparison.
    """

    number: int
    facts: Facts
    run: Run
    points: Mapping[str, Points]
    outputs: tuple[dict[str, Guarded], dict[str, Guarded]]
    temporaries: dict[str, Guarded]
    kept: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    compared: list[int] = field(default_factory=list)

    @property
    def program(self) -> RProgram:
        return self.facts.program


class Gate:
    """Checks candidates that compute the same outputs from the same inputs.

    The first program given decides names, shapes and dtypes of inputs and outputs.  Not thread-safe.
    """

    def __init__(self, program: RProgram, oracle: Oracle, seed: int = 0) -> None:
        began = time.perf_counter()
        self._comparison, self._seed, facts = Comparison(oracle), seed, Facts(program)
        self._trials = make_trials(facts, np.random.default_rng(seed))
        self._ordeals = ordeals(facts, seed + 1)
        flat = {name: array.reshape(-1) for name, array in self._trials[0].pristine.items()}
        self._ordinary = {
            ordeal.title: {name: flat[name][at] for name, (at, _) in ordeal.patches.items()} for ordeal in self._ordeals
        }
        self._outputs = guarded(program.outputs, LEADS[0]), guarded(program.outputs, LEADS[1], 1)
        self._reference: Reference | None = None
        self._revoked: dict[int, str] = {}
        self._seconds = time.perf_counter() - began

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The random inputs of the first trial by name: what the profiler times on."""
        return {name: zone.array for name, zone in self._trials[0].inputs.items()}

    def check(self, program: RProgram, run: Run, again: Run | None = None, number: int = 0) -> Verdict:
        """Runs the candidate on every trial; an exception of ``run`` is the caller's to handle.

        ``again``: runs it without the launches that are marked ``once``; None where there are none.  ``number``: by
        which `revoked` knows the candidate.  Hostile inputs are left out where ordinary ones show a fault already.
        """
        began = time.perf_counter()
        points = sample_points(program, self._seed + 1)
        attempt = _Attempt(number, Facts(program), run, points, self._outputs, guarded(program.temporaries))
        problems = self._ordinary_runs(attempt, again)
        if not problems:
            for trial in self._trials[2:]:
                self._run(replace(attempt, points=_some(points)), trial, 0, problems, poisoned_as=2)
            for ordeal in self._ordeals:
                self._suffer(attempt, ordeal, problems)
        self._seconds += time.perf_counter() - began
        if not problems:
            problems += self._admitted(attempt)
        return Verdict(tuple(problems), sum(attempt.compared))

    def revoked(self) -> dict[int, str]:
        """By number of candidates that had passed, why they are wrong after all: later ones showed it, or whole tiles,
        which are looked at now if no other candidate passed."""
        if self._reference is not None and not self._reference.seconded:
            self._revoke(self._reference.examine(0.0, sample=True))
        return self._revoked

    def _admitted(self, attempt: _Attempt) -> list[str]:
        """A candidate that passed all runs seconds the reference, or becomes it; then, what its tiles show."""
        if self._reference is not None:
            self._reference.seconded = True
            return []
        facts, second = attempt.facts, self._trials[1]
        reference = Reference(attempt.number, facts, attempt.kept, second, self._comparison, self._seed + 3)
        text = reference.examine(self._seconds / SHARE, sample=False)
        attempt.compared.append(reference.compared)
        self._reference = None if text else reference
        return [text] if text else []

    def _revoke(self, text: str) -> None:
        if text and self._reference is not None:
            self._revoked[self._reference.number] = text
            self._reference = None

    def _ordinary_runs(self, attempt: _Attempt, again: Run | None) -> list[str]:
        """What is wrong on random inputs, on those of the second kind, and after launches marked ``once``."""
        first, second = self._trials[:2]
        problems: list[str] = []
        results = self._run(attempt, first, 0, problems)
        problems += _unsteady(results, self._run(attempt, first, 1, problems, compared=False, fresh=False), attempt)
        others = self._run(attempt, second, 1, problems, poisoned_as=2, fresh=False)
        problems += self._never_written(attempt.program, results, second, others)
        if again is not None:
            later = mixed(attempt.program, first, second)
            self._run(replace(attempt, run=again), later, 0, problems, fresh=False)
        return problems

    def _run(
        self, attempt: _Attempt, trial: Trial, which: int, problems: list[str], *, poisoned_as: int | None = None,
        compared: bool = True, fresh: bool = True,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """The outputs of one run by name; what is wrong with them is added to `problems`.

        ``which``: of the outputs' arrays; ``fresh``: temporaries are poisoned as well, else as the last run left them.
        """
        program, variant = attempt.program, which if poisoned_as is None else poisoned_as
        zones = {**trial.inputs, **attempt.temporaries, **attempt.outputs[which]}
        for buffer in (*(program.temporaries if fresh else ()), *program.outputs):
            poison(zones[buffer.name].array, buffer.dtype, variant)
        attempt.run({name: zone.array for name, zone in zones.items()})
        found = _damages(zones, trial)
        results = {buffer.name: zones[buffer.name].array for buffer in program.outputs}
        if compared:
            texts = (self._compare(attempt, trial, buffer, results[buffer.name]) for buffer in program.outputs)
            found += [text for text in texts if text]
        problems += [f"{trial.title}: {text}" for text in found]
        return results

    def _suffer(self, attempt: _Attempt, ordeal: Ordeal, problems: list[str]) -> None:
        """One run on hostile inputs: those of the first trial, for the time being with the ordeal's elements."""
        base = self._trials[0]
        for name, (offsets, values) in ordeal.patches.items():
            for array in (base.inputs[name].array, base.pristine[name]):
                array.reshape(-1)[offsets] = values
        try:
            trial = Trial(ordeal.title, base.inputs, base.pristine, absolute=ordeal.absolute)
            self._run(attempt, trial, 0, problems)
        finally:
            for name, (offsets, _) in ordeal.patches.items():
                for array in (base.inputs[name].array, base.pristine[name]):
                    array.reshape(-1)[offsets] = self._ordinary[ordeal.title][name]

    def _compare(self, attempt: _Attempt, trial: Trial, buffer: Buffer, got: np.ndarray) -> str | None:
        """What is wrong at the sampled points, and where the output differs from the reference's."""
        where = attempt.points[buffer.name]
        other = self._reference
        known = None if other is None else other.known(trial, buffer)
        if other is not None and known is not None and got.ndim:
            suspects = disagreements(attempt.facts, other.facts, trial, buffer, got, known)
            where = tuple(np.concatenate(pair) for pair in zip(where, suspects, strict=True))
        want = self._comparison.wanted(trial.pristine, buffer, where)
        wrong = self._comparison.wrong(attempt.facts, trial, buffer, where, got, want)
        attempt.compared.append(wrong.size)
        if other is not None and known is not None:
            mistaken = self._comparison.wrong(other.facts, trial, buffer, where, known, want) & ~wrong
            if mistaken.any():
                text = said(buffer.name, where, known, want, mistaken)
                self._revoke(f"{trial.title}: {text}; a later candidate is right there")
        if wrong.any():
            return said(buffer.name, where, got, want, wrong)
        if trial.remembers and self._reference is None:
            attempt.kept[trial.title, buffer.name] = got.copy()
        return None

    def _never_written(
        self, program: RProgram, results: Mapping[str, np.ndarray], second: Trial, others: Mapping[str, np.ndarray]
    ) -> list[str]:
        """Of every output what kept its poison in both trials."""
        texts = []
        for buffer in program.outputs:
            blank = poisoned(results[buffer.name], buffer.dtype, 0)
            blank &= poisoned(others[buffer.name], buffer.dtype, 2)
            texts.append(self._unwritten(second, buffer, others[buffer.name], blank))
        return [text for text in texts if text]

    def _unwritten(self, trial: Trial, buffer: Buffer, got: np.ndarray, where: np.ndarray) -> str:
        """Which elements kept their poison; none if they are right (a narrow integer may equal it)."""
        if not where.any():
            return ""
        at = tuple(axis[:SUSPECTS] for axis in np.nonzero(where)) if where.ndim else ()
        want = self._comparison.wanted(trial.pristine, buffer, at)
        held = np.reshape(got[at].view(np.uint8) if buffer.dtype == "bool" else got[at], -1)
        if not is_float(buffer.dtype) and np.array_equal(held, want):
            return ""
        first, name = ", ".join(str(int(axis[0])) for axis in at), buffer.name
        return f"{int(where.sum())} of {where.size} elements of {name} were never written, such as {name}[{first}]"


def _some(points: Mapping[str, Points]) -> Mapping[str, Points]:
    """The first points, which are corners and edges."""
    return {name: tuple(axis[:FEW_POINTS] for axis in where) for name, where in points.items()}


def _unsteady(results: Mapping[str, np.ndarray], again: Mapping[str, np.ndarray], attempt: _Attempt) -> list[str]:
    """Outputs that two runs on the same inputs do not agree on to the last bit; where the program adds in any order,
    to twice the tolerance."""
    found = []
    in_any_order = any(stage.store.adds for stage in attempt.program.stages)
    for buffer in attempt.program.outputs:
        one, other = results[buffer.name], again[buffer.name]
        differ = unequal_bits(one, other)
        if in_any_order and is_float(buffer.dtype):
            accuracy = attempt.facts.accuracies[buffer.name]
            differ &= differences(one, other.astype(np.float64), 4 * accuracy.variance, buffer.dtype, False)
        differ &= ~poisoned(results[buffer.name], buffer.dtype, 0)  # never written: reported as such
        if differ.any():
            at = ", ".join(str(int(axis[0])) for axis in np.nonzero(np.atleast_1d(differ))[: differ.ndim])
            how, name = f"in {int(differ.sum())} of {differ.size} elements", buffer.name
            found.append(f"two runs on the same inputs differ {how} of {name}, such as {name}[{at}]")
    return found


def _damages(zones: dict[str, Guarded], trial: Trial) -> list[str]:
    """What was written where nothing may be written; made good again."""
    found = []
    for name, zone in zones.items():
        if damage := zone.damage():
            found.append(f"{name}: {damage}")
            zone.reset()
    for name, original in trial.pristine.items():
        if not same_bits(trial.inputs[name].array, original):
            found.append(f"input {name} was changed")
            trial.inputs[name].array[...] = original
    return found
