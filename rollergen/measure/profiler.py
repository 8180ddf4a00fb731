"""Compiles, checks and times the few best programs on a present device; only these are ever run.

Candidates are timed in alternation on the same arrays, after one warm-up launch each, and compared
by medians: what disturbs one round disturbs all of them.  The cache state is warm: each launch finds
the operands as the previous candidate's launch left them (`cache_state`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from rollergen.emit import emit
from rollergen.errors import CheckFailedError, DeviceError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device
from rollergen.measure.bench import Bench, LocalBench, Lost
from rollergen.measure.executor import Executor
from rollergen.measure.gate import Gate
from rollergen.measure.outcome import Outcome, Progress
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

ROUNDS = 15
LEAST_ROUNDS = 3
TIMING_SECONDS = 1.0
"""Rounds of timing: at least the least, then until the rounds or the seconds (wall, all candidates) are used up."""

HOPELESS = 1.5
"""A candidate whose median after the least rounds is this many times the best one's is timed no further."""

@dataclass(slots=True)
class _Running:
    outcome: Outcome
    walls: list[float] = field(default_factory=list)
    events: list[float] = field(default_factory=list)

    def time_once(self, bench: Bench) -> bool:
        """Whether it came back."""
        try:
            wall, event = bench.time(self.outcome)
        except (Lost, DeviceError) as error:
            cause = error.cause if isinstance(error, Lost) else "crash"
            self.outcome = replace(self.outcome, problems=(f"when timed: {error}",), ended=cause)
            return False
        self.walls.append(wall)
        self.events.append(event)
        return True

    def finished(self) -> Outcome:
        if self.outcome.problems:
            return self.outcome
        wall, event, times = median(self.walls), median(self.events), tuple(self.walls)
        return replace(self.outcome, wall_s=wall, event_s=event, rounds=len(times), times_s=times)


def propose(
    programs: Sequence[RProgram], device: Device, predicted_s: Sequence[float] | None = None
) -> tuple[Outcome, ...]:
    """Every program with its source and predicted time (unless known already); nothing is compiled or run."""
    if predicted_s is None:
        predicted_s = [float(predict(program, device).seconds) for program in programs]
    pairs = enumerate(zip(programs, predicted_s, strict=True))
    return tuple(Outcome(rank, program, emit(program, device), seconds) for rank, (program, seconds) in pairs)


def measure(
    candidates: Sequence[Outcome],
    executor: Executor,
    gate: Gate,
    *,
    time_budget_s: float = 60.0,
    progress: Progress = lambda what, done, of: None,
) -> tuple[Outcome, ...]:
    """`measure_on` a bench of this process."""
    return measure_on(LocalBench(executor, gate), candidates, time_budget_s=time_budget_s, progress=progress)


def measure_on(
    bench: Bench,
    candidates: Sequence[Outcome],
    *,
    time_budget_s: float = 60.0,
    progress: Progress = lambda what, done, of: None,
) -> tuple[Outcome, ...]:
    """The candidates with what became of them, in the order given; failing ones are reported, never timed.

    Raises CheckFailedError, with every candidate's problems, if none passes the gate.
    """
    deadline = time.perf_counter() + time_budget_s
    outcomes: list[Outcome] = []
    running: list[_Running] = []
    for number, candidate in enumerate(candidates):
        if not running or time.perf_counter() < deadline:
            candidate = bench.check(candidate)
            if not candidate.problems:
                running.append(_Running(candidate))
        outcomes.append(candidate)
        progress("compiled and checked", number + 1, len(candidates))
    _time(running, bench, progress)
    timed = {one.outcome.rank: one.finished() for one in running}
    results = tuple(timed.get(outcome.rank, outcome) for outcome in outcomes)
    if not any(outcome.state == "passed" for outcome in results):
        raise CheckFailedError(_all_failed(results))
    return results


def fastest(outcomes: Iterable[Outcome]) -> Outcome:
    """The passed outcome with the least wall time; equal ones by rank."""
    passed = [outcome for outcome in outcomes if outcome.wall_s is not None]
    return min(passed, key=lambda outcome: (outcome.wall_s, outcome.rank))


def _time(running: Sequence[_Running], bench: Bench, progress: Progress) -> None:
    """Rounds in alternation; the order turns from round to round."""
    start = time.perf_counter()
    alive = list(running)
    for number in range(ROUNDS):
        alive = [one for one in (alive if number % 2 == 0 else alive[::-1]) if one.time_once(bench)]
        alive = alive if number % 2 == 0 else alive[::-1]
        progress("timed", number + 1, ROUNDS)
        if not alive:
            break
        if number + 1 >= LEAST_ROUNDS:
            best = min(median(one.walls) for one in alive)
            alive = [one for one in alive if median(one.walls) <= HOPELESS * best]
            if time.perf_counter() - start > TIMING_SECONDS:
                break


def _all_failed(outcomes: Iterable[Outcome]) -> str:
    lines = [f"candidate {o.rank + 1}: {'; '.join(o.problems[:2])}" for o in outcomes]
    return "no candidate passed the check against the definition: " + " | ".join(lines)


def cache_state(program: RProgram, device: Device) -> str:
    """In what state timed launches find the caches, in words with sizes."""
    size = sum(b.elements * ITEMSIZE[b.dtype] for b in program.buffers())
    caches = [layer for layer in device.layers[:-1] if not layer.managed]
    largest = max(caches, key=lambda layer: layer.capacity_bytes, default=None)
    against = f", {largest.name} holds {largest.capacity_bytes / 2**20:.3g} MiB" if largest else ""
    return f"warm: operands as the previous launch left them ({size / 2**20:.3g} MiB in all{against})"
