"""Compiles, checks and times the few best programs on a present device; only these are ever run.

Candidates are timed in alternation on the same arrays (`timing.py`).  The cache state is warm: each launch finds
the operands as the previous candidate's launch left them (`cache_state`); or cold, where that was
asked for (`eviction.py`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from rollergen.dropped import Drop, at_once, collected_drops, error_text, none_stands
from rollergen.emit import Source, emit_all
from rollergen.errors import CheckFailedError, MeasurementWarning
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.gate.gate import Gate
from rollergen.hal.spec import Device
from rollergen.measure.bench import Bench, LocalBench
from rollergen.measure.bounds import doubt
from rollergen.measure.clocks import timed_on
from rollergen.measure.outcome import Outcome, Progress, silent
from rollergen.measure.timing import Timed
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.runtime.executor import Executor


def propose(programs: Sequence[RProgram], device: Device, caches: str = "warm") -> tuple[Outcome, ...]:
    """`written`, of programs some of which can be: where none can, the first one's error is raised."""
    found, dropped = written(programs, device, caches=caches)
    if found and all(one.problems for one in found):
        raise none_stands(dropped, device.name)
    return found


def written(
    programs: Sequence[RProgram], device: Device, predicted_s: Sequence[float] | None = None, caches: str = "warm"
) -> tuple[tuple[Outcome, ...], list[Drop]]:
    """Every program with its source and predicted time (unless known already); nothing is compiled or run.

    ``caches``: "warm" or "cold", as they shall be timed.  A program that has no price or cannot be written has failed:
    its source is empty, its problem says why, and it is among the drops.
    """

    def described(numbers: Sequence[int]) -> list[tuple[Source, float]]:
        some = [programs[number] for number in numbers]
        known = predicted_s or {number: float(predict(programs[number], device).seconds) for number in numbers}
        return list(zip(emit_all(some, device), [known[number] for number in numbers], strict=True))

    with collected_drops() as dropped:
        found = dict(at_once(range(len(programs)), described, lambda number: f"candidate {number + 1}"))
    why = {one.candidate: error_text(one.error) for one in dropped}
    nothing = Source("", (), next((source.language for source, _ in found.values()), ""))
    outcomes = []
    for rank, program in enumerate(programs):
        source, seconds = found.get(rank, (nothing, predicted_s[rank] if predicted_s else inf))
        problems = () if rank in found else (why[f"candidate {rank + 1}"],)
        outcomes.append(Outcome(rank, program, source, seconds, problems=problems, caches=caches))
    return tuple(outcomes), dropped


def written_out(candidates: Sequence[Outcome], device: Device) -> tuple[Outcome, ...]:
    """The candidates, those that were unwritten with their sources, or with why they have none."""

    def of(one: Outcome) -> Outcome:
        [found], _ = written([one.program], device, [one.predicted_s])
        return replace(one, source=found.source, problems=found.problems)

    return tuple(of(one) if one.unwritten else one for one in candidates)


def measure(
    candidates: Sequence[Outcome],
    executor: Executor,
    gate: Gate,
    *,
    time_budget_s: float = 60.0,
    progress: Progress = silent,
) -> tuple[Outcome, ...]:
    """`measure_on` a bench of this process."""
    return measure_on(LocalBench(executor, gate), candidates, time_budget_s=time_budget_s, progress=progress)


def measure_on(
    bench: Bench,
    candidates: Sequence[Outcome],
    *,
    device: Device | None = None,
    time_budget_s: float = 60.0,
    progress: Progress = silent,
    checked: Callable[[], None] = lambda: None,
    sparing: bool = False,
) -> tuple[Outcome, ...]:
    """The candidates with what became of them, in the order given; failing ones are reported, never timed.

    ``device``: whose figures bound what can be believed (`bounds.doubt`); a time below is a `MeasurementWarning`.
    ``checked``: called when no more candidates are compiled and none is timed yet.  ``sparing``: of those that pass
    the gate's first runs, the fastest alone is held to all of them (`Gate.confirm`); if it fails, the next.
    Raises CheckFailedError, with every candidate's problems, if none passes the gate.
    """
    deadline = time.perf_counter() + time_budget_s
    outcomes: list[Outcome] = []
    passed: list[Timed] = []
    for number, candidate in enumerate(candidates):
        if not candidate.problems and (not passed or time.perf_counter() < deadline):
            candidate = bench.check(candidate, sparing)
            if not candidate.problems:
                passed.append(Timed(candidate))
        outcomes.append(candidate)
        progress("compiled and checked", number + 1, len(candidates))
    outcomes = without_revoked(outcomes, bench.revoked())
    passed = [one for one in passed if one.outcome in outcomes]
    checked()
    note = timed_on(device, passed, bench, progress)
    doubts = lambda one, seconds: "" if device is None else doubt(one.program, device, seconds)
    timed = {one.outcome.rank: replace(one.finished(doubts), note=note) for one in passed}
    results = tuple(timed.get(outcome.rank, outcome) for outcome in outcomes)
    if sparing:
        results = confirmed(results, bench)
    if not any(map(stands, results)):
        raise CheckFailedError(all_failed(results))
    warn_of_doubts(results)
    return results


def confirmed(outcomes: tuple[Outcome, ...], bench: Bench) -> tuple[Outcome, ...]:
    """The outcomes, those failed that were the fastest and did not pass the gate's other runs."""
    while any(map(stands, outcomes)):
        best = fastest(outcomes)
        found = bench.confirm(best)
        outcomes = tuple(found if one is best else one for one in outcomes)
        if not found.problems:
            break
    return outcomes


def stands(outcome: Outcome) -> bool:
    """Whether it passed the gate and was timed."""
    return outcome.state in ("passed", "not believed")


def without_revoked(outcomes: Iterable[Outcome], revoked: Mapping[int, str]) -> list[Outcome]:
    """The outcomes, those failed that were shown to be wrong after they had passed."""
    return [replace(one, problems=(revoked[one.rank],)) if one.rank in revoked else one for one in outcomes]


def warn_of_doubts(outcomes: Sequence[Outcome]) -> None:
    """A `MeasurementWarning` for each time that is not believed, and one where the machine was busy."""
    for outcome in outcomes:
        if outcome.doubt:
            warnings.warn(f"candidate {outcome.rank + 1}: {outcome.doubt}", MeasurementWarning, stacklevel=6)
    noisy = [outcome for outcome in outcomes if outcome.noisy]
    if noisy:
        best = fastest(outcomes)
        took = "" if best.wall_s is None else f"candidate {best.rank + 1} took {best.wall_s:.3g} s, but "
        text = f"times were taken on a busy machine: {took}{noisy[0].noisy}; they are kept as noisy"
        warnings.warn(f"{text}, and taken again by the next build", MeasurementWarning, stacklevel=6)


def first_kept(candidates: Sequence[Outcome]) -> Outcome:
    """The best by the model of those that did not fail."""
    return next(one for one in candidates if not one.problems)


def fastest(outcomes: Iterable[Outcome]) -> Outcome:
    """The passed outcome with the least wall time; equal ones by rank.  Those timed in fewer rounds were given up, as
    slower or as good.  Where no time is believed, the first that passed the gate."""
    outcomes = tuple(outcomes)
    passed = [outcome for outcome in outcomes if outcome.wall_s is not None]
    if not passed:
        return min((one for one in outcomes if one.state == "not believed"), key=lambda one: one.rank)
    rounds = max(outcome.rounds for outcome in passed)
    return min((one for one in passed if one.rounds == rounds), key=lambda one: (one.wall_s, one.rank))


def all_failed(outcomes: Iterable[Outcome]) -> str:
    lines = [f"candidate {o.rank + 1}: {'; '.join(o.problems[:2])}" for o in outcomes]
    return "no candidate passed the check against the definition: " + " | ".join(lines)


def cache_state(program: RProgram, device: Device) -> str:
    """The state of the caches at timed launches, in words with sizes."""
    size = sum(b.elements * ITEMSIZE[b.dtype] for b in program.buffers())
    largest = max(device.caches, key=lambda layer: layer.capacity_bytes, default=None)
    against = f", {largest.name} holds {largest.capacity_bytes / 2**20:.3g} MiB" if largest else ""
    return f"warm: operands as the previous launch left them ({size / 2**20:.3g} MiB in all{against})"
