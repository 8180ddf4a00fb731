"""The check that every candidate passes before it may win.

Inputs and outputs lie between guard zones, outputs and temporaries start as poison, and the result
is compared with the oracle at sampled points that include every edge class (`points.py`), within a
tolerance derived from the computation (`tolerance.py`; what lies outside is judged by `perturbed.py`).
The runs: on random inputs, twice, which must give the same bits although poison and alignment of the outputs differ and
temporaries hold what the first run left there; on whole numbers; where launches are marked ``once``, on other inputs
again without these; then on equal and on hostile inputs (`inputs.py`).  A build leaves the second run and these last
ones, five of seven, to the candidate that it chooses (`Gate.confirm`).  The first that passes is compared with the
oracle on whole tiles for as long as that is cheap (`reference.py`), the others with it in all elements: where two
disagree the oracle decides, and the wrong one falls, the first included.  So whichever is chosen was compared in full;
where no other one passes, on a sample of whole tiles at least (`Gate.revoked`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace

import numpy as np

from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Buffer
from rollergen.gate.adversarial import HostileRun, Patches, hostile_runs
from rollergen.gate.blocks import blocks_of, puts_of, running_blocks
from rollergen.gate.comparison import Comparison, Oracle, disagreements, said
from rollergen.gate.facts import Facts
from rollergen.gate.footprint import checking, require, with_temporaries
from rollergen.gate.memory import HOST, Array, Memory, Places, Points, Tolerance, Zone
from rollergen.gate.points import sample_points
from rollergen.gate.reference import Reference
from rollergen.gate.trials import Trial, make_trials, mixed
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram

Run = Callable[[Mapping[str, Array]], object]
"""Runs a candidate on arrays by buffer name (inputs, temporaries, outputs), in place."""

FEW_POINTS = 96
"""Compared on equal values, whose results are alike."""

SHARE = 8
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
    outputs: tuple[Mapping[str, Zone], Mapping[str, Zone]]
    temporaries: Mapping[str, Zone]
    kept: dict[tuple[str, str], Array] = field(default_factory=dict)
    compared: list[int] = field(default_factory=list)

    @property
    def program(self) -> RProgram:
        return self.facts.program


class Gate:
    """Checks candidates that compute the same outputs from the same inputs.

    The first program given decides names, shapes and dtypes of inputs and outputs.  ``memory``: in which candidates
    use arrays in place.  Not thread-safe.
    """

    def __init__(self, program: RProgram, oracle: Oracle, seed: int = 0, memory: Memory = HOST) -> None:
        began, puts = time.perf_counter(), puts_of(program)
        program = blocks_of(_with_elements(program))
        self._comparison, self._seed, facts = Comparison(oracle), seed, Facts(program, puts)
        self.memory = memory
        names = ", ".join(buffer.name for buffer in program.outputs)
        require(checking(program, memory is HOST), memory, f"checking candidates of {names}")
        self._trials = make_trials(facts, np.random.default_rng(seed), memory)
        self._hostile_runs = hostile_runs(facts, seed + 1)
        flat = {name: array.reshape(-1) for name, array in self._trials[0].pristine.items()}
        self._ordinary = {
            hostile.title: {name: flat[name][at] for name, (at, _) in hostile.patches.items()}
            for hostile in self._hostile_runs
        }
        callers, others = memory.leads
        self._outputs = memory.guarded(program.outputs, callers), memory.guarded(program.outputs, others, 1)
        self._reference: Reference | None = None
        self._revoked: dict[int, str] = {}
        self._seconds = time.perf_counter() - began

    @property
    def inputs(self) -> dict[str, Array]:
        """The random inputs of the first trial by name: what the profiler times on."""
        return {name: zone.array for name, zone in self._trials[0].inputs.items()}

    def check(
        self, program: RProgram, run: Run, again: Run | None = None, number: int = 0, *, sparing: bool = False
    ) -> Verdict:
        """Runs the candidate on every trial; an exception of ``run`` is the caller's to handle.

        ``again``: runs it without the launches that are marked ``once``; None where there are none.  ``number``: by
        which `revoked` knows the candidate.  ``sparing``: without the runs of `confirm`, which are left out as well
        where ordinary ones show a fault already.
        """
        began = time.perf_counter()
        whole = _with_elements(program)
        attempt = self._attempt(whole, run, number)
        problems = self._ordinary_runs(attempt, again and running_blocks(whole, again, self.memory), sparing)
        if not problems and not sparing:
            self._other_runs(attempt, problems)
        self._seconds += time.perf_counter() - began
        if not problems:
            problems += self._admitted(attempt)
        return Verdict(tuple(problems), sum(attempt.compared))

    def confirm(self, program: RProgram, run: Run) -> Verdict:
        """Runs a candidate that passed a sparing `check` twice on random inputs, on equal and on hostile ones."""
        problems: list[str] = []
        attempt = self._attempt(_with_elements(program), run, 0)
        self._run_again(attempt, self._run(attempt, self._trials[0], 0, problems, compared=False), problems)
        self._other_runs(attempt, problems)
        return Verdict(tuple(problems), sum(attempt.compared))

    def revoked(self) -> dict[int, str]:
        """By number of candidates that had passed, why they are wrong after all: later ones showed it, or whole tiles,
        which are looked at now if no other candidate passed."""
        if self._reference is not None and not self._reference.confirmed:
            self._revoke(self._reference.examine(0.0, sample=True))
        return self._revoked

    def _admitted(self, attempt: _Attempt) -> list[str]:
        """A candidate that passed all runs confirms the reference, or becomes it; then, what its tiles show."""
        if self._reference is not None:
            self._reference.confirmed = True
            return []
        facts, second = attempt.facts, self._trials[1]
        reference = Reference(
            attempt.number, facts, attempt.kept, second, self._comparison, self._seed + 3, self.memory
        )
        text = reference.examine(self._seconds / SHARE, sample=False)
        attempt.compared.append(reference.compared)
        self._reference = None if text else reference
        return [text] if text else []

    def _revoke(self, text: str) -> None:
        if text and self._reference is not None:
            self._revoked[self._reference.number] = text
            self._reference = None

    def _attempt(self, whole: RProgram, run: Run, number: int) -> _Attempt:
        run, program = running_blocks(whole, run, self.memory), blocks_of(whole)
        if program.temporaries:
            require(with_temporaries(program), self.memory, "this candidate")
        points = sample_points(program, self._seed + 1)
        return _Attempt(number, Facts(program), run, points, self._outputs, self.memory.guarded(program.temporaries))

    def _other_runs(self, attempt: _Attempt, problems: list[str]) -> None:
        """What is wrong on equal inputs and on hostile ones is added to `problems`."""
        for trial in self._trials[2:]:
            self._run(replace(attempt, points=_some(attempt.points)), trial, 0, problems, poisoned_as=2)
        for hostile in self._hostile_runs:
            self._hostile_run(attempt, hostile, problems)

    def _ordinary_runs(self, attempt: _Attempt, again: Run | None, sparing: bool) -> list[str]:
        """What is wrong on random inputs, on those of the second kind, and after launches marked ``once``."""
        first, second = self._trials[:2]
        problems: list[str] = []
        results = self._run(attempt, first, 0, problems)
        if not sparing:
            self._run_again(attempt, results, problems)
        others = self._run(attempt, second, 1, problems, poisoned_as=2, fresh=False)
        problems += self._never_written(attempt.program, results, second, others)
        if again is not None:
            later = mixed(attempt.program, first, second)
            self._run(replace(attempt, run=again), later, 0, problems, fresh=False)
        return problems

    def _run_again(self, attempt: _Attempt, results: Mapping[str, Array], problems: list[str]) -> None:
        """A second run on random inputs, of which the first gave `results`."""
        again = self._run(attempt, self._trials[0], 1, problems, compared=False, fresh=False)
        problems += self._unsteady(results, again, attempt)

    def _run(
        self, attempt: _Attempt, trial: Trial, which: int, problems: list[str], *, poisoned_as: int | None = None,
        compared: bool = True, fresh: bool = True,
    ) -> dict[str, Array]:  # fmt: skip
        """The outputs of one run by name; what is wrong with them is added to `problems`.

        ``which``: of the outputs' arrays; ``fresh``: temporaries are poisoned as well, else as the last run left them.
        """
        program, variant = attempt.program, which if poisoned_as is None else poisoned_as
        zones = {**trial.inputs, **attempt.temporaries, **attempt.outputs[which]}
        for buffer in (*(program.temporaries if fresh else ()), *program.outputs):
            self.memory.poison(zones[buffer.name].array, variant)
        attempt.run({name: zone.array for name, zone in zones.items()})
        found = self._damages(zones, trial)
        results = {buffer.name: zones[buffer.name].array for buffer in program.outputs}
        if compared:
            texts = (self._compare(attempt, trial, buffer, results[buffer.name]) for buffer in program.outputs)
            found += [text for text in texts if text]
        problems += [f"{trial.title}: {text}" for text in found]
        return results

    def _hostile_run(self, attempt: _Attempt, hostile: HostileRun, problems: list[str]) -> None:
        """One run on hostile inputs: those of the first trial, for the time being with its elements."""
        base, ordinary = self._trials[0], self._ordinary[hostile.title]
        self._replace(base, hostile.patches)
        try:
            trial = Trial(hostile.title, base.inputs, base.pristine, absolute=hostile.absolute)
            self._run(attempt, trial, 0, problems)
        finally:
            self._replace(base, {name: (at, ordinary[name]) for name, (at, _) in hostile.patches.items()})

    def _replace(self, trial: Trial, patches: Patches) -> None:
        """Few elements of a trial's inputs."""
        for name, (offsets, values) in patches.items():
            trial.pristine[name].reshape(-1)[offsets] = values
            self.memory.scatter(trial.inputs[name].array, offsets, values)

    def _compare(self, attempt: _Attempt, trial: Trial, buffer: Buffer, got: Array) -> str | None:
        """What is wrong at the sampled points, and where the output differs from the reference's."""
        where = attempt.points[buffer.name]
        other = self._reference
        known = None if other is None else other.known(trial, buffer)
        if other is not None and known is not None and got.ndim:
            suspects = disagreements(self.memory, attempt.facts, other.facts, trial, buffer, got, known)
            where = tuple(np.concatenate(pair) for pair in zip(where, suspects, strict=True))
        want = self._comparison.wanted(trial.pristine, buffer, where)
        values = self.memory.gather(got, where)
        wrong = self._comparison.wrong(attempt.facts, trial, buffer, where, values, want)
        attempt.compared.append(wrong.size)
        if other is not None and known is not None:
            theirs = self.memory.gather(known, where)
            mistaken = self._comparison.wrong(other.facts, trial, buffer, where, theirs, want) & ~wrong
            if mistaken.any():
                text = said(buffer.name, where, theirs, want, mistaken)
                self._revoke(f"{trial.title}: {text}; a later candidate is right there")
        if wrong.any():
            return said(buffer.name, where, values, want, wrong)
        if trial.remembers and self._reference is None:
            attempt.kept[trial.title, buffer.name] = self.memory.copy(got)
        return None

    def _never_written(
        self, program: RProgram, results: Mapping[str, Array], second: Trial, others: Mapping[str, Array]
    ) -> list[str]:
        """Of every output what kept its poison in both trials."""
        texts = []
        for buffer in program.outputs:
            blank = self.memory.unwritten(results[buffer.name], others[buffer.name], (0, 2))
            texts.append(self._unwritten(second, buffer, others[buffer.name], blank))
        return [text for text in texts if text]

    def _unwritten(self, trial: Trial, buffer: Buffer, got: Array, blank: Places) -> str:
        """Which elements kept their poison; none if they are right (a narrow integer may equal it)."""
        if not blank.count:
            return ""
        at = blank.points(buffer.shape)
        want, held = self._comparison.wanted(trial.pristine, buffer, at), self.memory.gather(got, at)
        held = held.view(np.uint8) if buffer.dtype == "bool" else held
        if not is_float(buffer.dtype) and np.array_equal(held, want):
            return ""
        elements, name = f"{blank.count} of {buffer.elements} elements of {buffer.name}", _first(blank, buffer)
        return f"{elements} were never written, such as {name}"

    def _unsteady(self, results: Mapping[str, Array], again: Mapping[str, Array], attempt: _Attempt) -> list[str]:
        """Outputs that two runs on the same inputs do not agree on to the last bit; where the program adds in any
        order, to twice the tolerance."""
        found = []
        in_any_order = any(stage.store.adds for stage in attempt.program.stages)
        for buffer in attempt.program.outputs:
            variance, tolerance = attempt.facts.accuracies[buffer.name].variance, None
            if in_any_order and is_float(buffer.dtype):
                tolerance = Tolerance(4 * variance, everywhere=True)
            # Never written elements, which hold the first run's poison, are reported as such.
            differ = self.memory.unequal(results[buffer.name], again[buffer.name], tolerance, unless=0)
            if differ.count:
                how = f"in {differ.count} of {buffer.elements} elements of {buffer.name}, such as"
                found.append(f"two runs on the same inputs differ {how} {_first(differ, buffer)}")
        return found

    def _damages(self, zones: Mapping[str, Zone], trial: Trial) -> list[str]:
        """What was written where nothing may be written; made good again."""
        found = [f"{name}: {damage}" for name, damage in self.memory.damages(zones)]
        for name in self.memory.changed(trial.inputs, trial.pristine):
            found.append(f"input {name} was changed")
            self.memory.write(trial.inputs[name].array, trial.pristine[name])
        return found


def _with_elements(program: RProgram) -> RProgram:
    """The program without inputs and outputs that have no elements, which no stage reads or writes."""
    some = lambda buffers: tuple(one for one in buffers if one.elements)
    return replace(program, inputs=some(program.inputs), outputs=some(program.outputs))


def _some(points: Mapping[str, Points]) -> Mapping[str, Points]:
    """The first points, which are corners and edges."""
    return {name: tuple(axis[:FEW_POINTS] for axis in where) for name, where in points.items()}


def _first(places: Places, buffer: Buffer) -> str:
    """``C[3, 4]``."""
    return f"{buffer.name}[{', '.join(str(int(axis[0])) for axis in places.points(buffer.shape))}]"
