"""Compiles, checks and times the few best programs on a present device; only these are ever run.

Candidates are timed in alternation on the same arrays, after one warm-up launch each, and compared
by medians: what disturbs one round disturbs all of them.  The cache state is warm: each launch finds
the operands as the previous candidate's launch left them (`cache_state`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from rollergen.emit import Source, emit
from rollergen.errors import CheckFailedError, RollergenError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.hal.spec import Device
from rollergen.measure.arrays import aligned_empty
from rollergen.measure.executor import Executor, Session
from rollergen.measure.gate import Gate
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

ROUNDS = 15
LEAST_ROUNDS = 3
TIMING_SECONDS = 1.0
"""Rounds of timing: at least the least, then until the rounds or the seconds (wall, all candidates) are used up."""

HOPELESS = 1.5
"""A candidate whose median after the least rounds is this many times the best one's is timed no further."""

Progress = Callable[[str, int, int], None]
"""``progress(what, done, of)``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate.

    ``wall_s`` and ``event_s``: medians in seconds of one call, by the host's clock and by the
    device's; None where it was not timed.  ``times_s``: all by the host's clock, in order.
    ``problems`` is why it may not win; ``compared`` counts the elements that were held against the
    oracle.  ``rank``: its place under the model, from 0.
    """

    rank: int
    program: RProgram
    source: Source
    predicted_s: float
    compile_s: float | None = None
    wall_s: float | None = None
    event_s: float | None = None
    rounds: int = 0
    compared: int = 0
    problems: tuple[str, ...] = ()
    times_s: tuple[float, ...] = ()

    @property
    def state(self) -> str:
        """passed, failed, or not run."""
        if self.problems:
            return "failed"
        return "not run" if self.wall_s is None else "passed"


@dataclass(slots=True)
class _Running:
    outcome: Outcome
    session: Session
    walls: list[float] = field(default_factory=list)
    events: list[float] = field(default_factory=list)

    def time_once(self) -> None:
        start = time.perf_counter()
        self.session.run()
        self.walls.append(time.perf_counter() - start)
        self.events.append(self.session.event_seconds())

    def finished(self) -> Outcome:
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
    """The candidates with what became of them, in the order given; failing ones are reported, never timed.

    Raises CheckFailedError, with every candidate's problems, if none passes the gate.
    """
    deadline = time.perf_counter() + time_budget_s
    outcomes: list[Outcome] = []
    running: list[_Running] = []
    for number, candidate in enumerate(candidates):
        if not running or time.perf_counter() < deadline:
            candidate, session = _checked(candidate, executor, gate)
            if session is not None:
                running.append(_Running(candidate, session))
        outcomes.append(candidate)
        progress("compiled and checked", number + 1, len(candidates))
    if not running:
        raise CheckFailedError(_all_failed(outcomes))
    _time(running, progress)
    timed = {one.outcome.rank: one.finished() for one in running}
    return tuple(timed.get(outcome.rank, outcome) for outcome in outcomes)


def fastest(outcomes: Iterable[Outcome]) -> Outcome:
    """The passed outcome with the least wall time; equal ones by rank."""
    passed = [outcome for outcome in outcomes if outcome.wall_s is not None]
    return min(passed, key=lambda outcome: (outcome.wall_s, outcome.rank))


def _checked(outcome: Outcome, executor: Executor, gate: Gate) -> tuple[Outcome, Session | None]:
    """The outcome with its compile time and verdict; its launches on the gate's inputs if it passed."""
    program = outcome.program
    start = time.perf_counter()
    try:
        session = executor.prepare(outcome.source).session()
        compiled = time.perf_counter()
        verdict = gate.check(program, lambda arrays: _call(session, arrays))
    except RollergenError as error:
        return replace(outcome, problems=(f"{type(error).__name__}: {error}",)), None
    outcome = replace(outcome, compile_s=compiled - start, problems=verdict.problems, compared=verdict.compared)
    if not verdict.passed:
        return outcome, None
    made = {b.name: aligned_empty(b.shape, b.dtype) for b in program.temporaries}
    # Timed on outputs as callers make them: NumPy's own arrays begin at multiples of 16 bytes only.
    made |= {b.name: np.empty(b.shape, numpy_dtype(b.dtype)) for b in program.outputs}
    _call(session, {**gate.inputs, **made})
    return outcome, session


def _call(session: Session, arrays: Mapping[str, np.ndarray]) -> None:
    session.set(arrays)
    session.once()
    session.run()


def _time(running: list[_Running], progress: Progress) -> None:
    """Rounds in alternation; the order turns from round to round."""
    start = time.perf_counter()
    alive = list(running)
    for number in range(ROUNDS):
        for one in alive if number % 2 == 0 else reversed(alive):
            one.time_once()
        progress("timed", number + 1, ROUNDS)
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
