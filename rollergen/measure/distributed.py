"""Candidates checked and timed by any ``concurrent.futures.Executor``: threads, processes, or machines far away.

Each candidate is compiled and checked by a task of its own, so that as many are compiled side by side as there are
workers; those that passed are then timed by one task, because only times taken in alternation on one device compare.
What travels is plain data: programs, sources, the definition.  Sources are compiled where they run, and a task finds
the device there by its spec.  A task that is delivered twice gives the same answer twice, and counts once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import replace
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.errors import CheckFailedError
from rollergen.gate.comparison import Oracle
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.measure.bounds import doubt
from rollergen.measure.clocks import timed_on
from rollergen.measure.isolation import bench_for
from rollergen.measure.outcome import Outcome, Progress
from rollergen.measure.profiler import all_failed, stands, warn_of_doubts, without_revoked
from rollergen.measure.timing import Timed
from rollergen.program.rprogram import RProgram
from rollergen.runtime.executor import executor_for


@dataclass(frozen=True, slots=True)
class Job:
    """What every task needs to know: device, definition, limits; ``first`` decides names and shapes of the inputs."""

    device: Device
    first: RProgram
    oracle: Oracle
    options: BuildOptions


def measure_through(
    executor: Executor, job: Job, candidates: Sequence[Outcome], progress: Progress = lambda what, done, of: None
) -> tuple[Outcome, ...]:
    """The candidates with what became of them, in the order given.

    Raises CheckFailedError if none passes the gate, and whatever a task raises on purpose (DeviceError where a worker
    lacks the device).  A worker that is lost fails the candidate that it worked on.
    """
    tasks = [None if one.problems else _submitted(executor, check_one, job, one) for one in candidates]
    checked: list[Outcome] = []
    for number, (task, candidate) in enumerate(zip(tasks, candidates, strict=True)):
        checked += (candidate,) if task is None else _answer(task, (candidate,))
        progress("compiled and checked", number + 1, len(candidates))
    passed = tuple(outcome for outcome in checked if not outcome.problems)
    answer = _answer(_submitted(executor, time_passed, job, passed), passed) if passed else ()
    timed = {one.rank: one for one in answer}
    results = tuple(timed.get(outcome.rank, outcome) for outcome in checked)
    progress("timed", 1, 1)
    if not any(map(stands, results)):
        raise CheckFailedError(all_failed(results))
    warn_of_doubts(results)
    return results


def check_one(job: Job, candidate: Outcome) -> tuple[Outcome, ...]:
    """A task: the candidate compiled and passed through the gate, here."""
    with bench_for(job.device, executor_for(job.device), job.first, job.oracle, job.options) as bench:
        return (bench.check(candidate),)


def time_passed(job: Job, passed: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """A task: candidates that passed, timed in alternation, here.  They are checked again: where they run now, they may
    have been compiled by another compiler."""
    start = time.perf_counter()
    with bench_for(job.device, executor_for(job.device), job.first, job.oracle, job.options) as bench:
        again: list[Outcome] = []
        for candidate in passed:
            if all(one.problems for one in again) or time.perf_counter() - start < job.options.time_budget_s:
                found = bench.check(candidate)
                again.append(replace(found, compile_s=candidate.compile_s, check_s=candidate.check_s))
        again = without_revoked(again, bench.revoked())
        running = [Timed(outcome) for outcome in again if not outcome.problems]
        note = timed_on(job.device, running, bench, lambda *_: None)
        doubts = lambda one, seconds: doubt(one.program, job.device, seconds)
        done = [replace(one.finished(doubts), note=note) for one in running]
    return (*done, *(outcome for outcome in again if outcome.problems))


def _submitted(executor: Executor, task: Callable[..., tuple[Outcome, ...]], *arguments: Any) -> Future[Any]:
    """The task's future; one that failed already where the executor takes no tasks any more."""
    try:
        return executor.submit(task, *arguments)
    except BrokenExecutor as error:
        broken: Future[Any] = Future()
        broken.set_exception(error)
        return broken


def _lost_workers() -> tuple[type[BaseException], ...]:
    """What a future raises where its worker was lost; Dask has classes of its own."""
    found = (CancelledError, BrokenExecutor, ConnectionError, EOFError)
    dask = sys.modules.get("distributed")
    return (*found, dask.KilledWorker, dask.CancelledError) if dask is not None else found


def _answer(task: Future[Any], candidates: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
    """What the task gave back; its candidates as failed ones where its worker was lost."""
    try:
        return tuple(task.result())
    except _lost_workers() as error:
        lost = f"its worker was lost: {type(error).__name__}: {error}"
        return tuple(replace(candidate, problems=(lost,), ended="crash") for candidate in candidates)
