"""Benches, where candidates are checked and timed: in this process, or in one that may die (`isolation.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from rollergen.dropped import error_text
from rollergen.errors import ArgumentError
from rollergen.gate.footprint import timing, with_temporaries
from rollergen.gate.gate import Gate
from rollergen.gate.memory import Array
from rollergen.hal.spec import Device
from rollergen.measure.eviction import sweep_of
from rollergen.measure.outcome import Outcome
from rollergen.runtime.executor import Executor
from rollergen.runtime.session import Reading, Session

Notify = Callable[[str], None]
"""Told what begins now: "compiling", "running" or "comparing"."""


class Lost(Exception):
    """The process of a candidate ended, or was ended, with it.  ``cause``: "time" or "crash"."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Bench(Protocol):
    """Checks and times candidates on one set of inputs.  For one thread at a time."""

    def check(self, candidate: Outcome, sparing: bool = False) -> Outcome:
        """The candidate with its verdict; ready to be timed if it has no problems.  ``sparing``: the verdict of the
        gate's first runs, the others are left to `confirm`."""

    def confirm(self, candidate: Outcome) -> Outcome:
        """A candidate that passed a sparing check, with the verdict of the gate's other runs as well."""

    def time(self, candidate: Outcome) -> Reading:
        """A timing of a candidate that passed.  Raises Lost where its process ends with it."""

    def repeat(self, candidate: Outcome, calls: int) -> float:
        """Mean seconds of one of `calls` calls in a row, by the clock that ranks candidates; raises as `time`."""

    def revoked(self) -> dict[int, str]:
        """Why candidates that had passed are wrong after all, by rank (`Gate.revoked`); asked after all checks."""

    def close(self) -> None:
        """Lets go of everything."""


def failed(candidate: Outcome, *problems: str) -> Outcome:
    """A candidate that was timed and is wrong after all."""
    return replace(candidate, problems=problems, wall_s=None, event_s=None)


class LocalBench:
    """A bench in this process: what kills it kills the caller."""

    def __init__(
        self, executor: Executor, gate: Gate, notify: Notify = lambda state: None, device: Device | None = None,
        kept: int | None = None,
    ) -> None:  # fmt: skip
        """``device``: whose caches are swept before runs of candidates that are timed with cold ones.

        ``kept``: of how many candidates, those used last, outputs and temporaries are kept; others get new ones
        before they are timed.  None: of all.  Hundreds of programs with packed operands take gigabytes.
        """
        self._executor, self._gate, self._notify, self._device, self._kept = executor, gate, notify, device, kept
        self._sweep: Callable[[], None] | None = None
        self._ready: dict[int, Session] = {}
        self._made: dict[int, tuple[str, ...]] = {}  # of those that have arrays, used last at the end

    def check(self, candidate: Outcome, sparing: bool = False) -> Outcome:
        start = time.perf_counter()
        try:
            session = self._compiled(candidate)
            compiled = time.perf_counter()
            once = any(launch.once for launch in candidate.source.launches)
            run, again = (partial(self._call, session, once=when) for when in (True, False))
            verdict = self._gate.check(
                candidate.program, run, again if once else None, candidate.rank, sparing=sparing
            )
            checked = time.perf_counter()
            if verdict.passed:
                self._keep_ready(candidate, session)
        except MemoryError as error:
            return replace(candidate, problems=(f"out of memory: {error}".rstrip(": "),))
        except Exception as error:  # whatever a runtime, a compiler or the gate raises, it is this candidate's
            return replace(candidate, problems=(error_text(error),))
        sent, fetched = self._gate.memory.traffic.taken()
        return replace(
            candidate, compile_s=compiled - start, check_s=checked - compiled, sent_bytes=sent, fetched_bytes=fetched,
            problems=verdict.problems, compared=verdict.compared,
        )  # fmt: skip

    def confirm(self, candidate: Outcome) -> Outcome:
        start = time.perf_counter()
        try:
            self._make_room(with_temporaries(candidate.program).total)
            verdict = self._gate.confirm(candidate.program, partial(self._call, self._ready[candidate.rank]))
        except Exception as error:  # as in `check`
            return failed(candidate, error_text(error))
        if not verdict.passed:
            return failed(candidate, *verdict.problems)
        sent, fetched = self._gate.memory.traffic.taken()
        return replace(
            candidate, check_s=(candidate.check_s or 0.0) + time.perf_counter() - start,
            sent_bytes=candidate.sent_bytes + sent, fetched_bytes=candidate.fetched_bytes + fetched,
            compared=candidate.compared + verdict.compared,
        )  # fmt: skip

    def ready(self, candidate: Outcome) -> None:
        """Makes a candidate that passed elsewhere ready to be timed here."""
        self._keep_ready(candidate, self._compiled(candidate))

    def time(self, candidate: Outcome) -> Reading:
        session = self._with_arrays(candidate)
        self._notify("running")
        reading = session.reading(self._sweep_before(candidate))
        self._notify("comparing")
        return reading

    def repeat(self, candidate: Outcome, calls: int) -> float:
        session = self._with_arrays(candidate)
        self._notify("running")
        seconds = session.repeat(calls, self._sweep_before(candidate))
        self._notify("comparing")
        return seconds

    def revoked(self) -> dict[int, str]:
        return self._gate.revoked()

    def close(self) -> None:
        self._ready.clear()
        self._made.clear()

    def _sweep_before(self, candidate: Outcome) -> Callable[[], None] | None:
        """What is done before each run that shall find cold caches; None where they are to be warm."""
        if candidate.caches != "cold":
            return None
        if self._sweep is None:
            if self._device is None:
                raise ArgumentError('this bench knows no device; expected one, or candidates with caches="warm"')
            self._sweep = sweep_of(self._executor, self._device)
        return self._sweep

    def _compiled(self, candidate: Outcome) -> Session:
        self._notify("compiling")
        session = self._executor.prepare(candidate.source).session()
        self._notify("comparing")
        return session

    def _keep_ready(self, candidate: Outcome, session: Session) -> None:
        # Timed on outputs as callers make them: NumPy's own arrays begin at multiples of 16 bytes only.
        program, memory = candidate.program, self._gate.memory
        self._make_room(timing(program))
        made = {buffer.name: memory.empty(buffer) for buffer in (*program.temporaries, *program.outputs)}
        for array in made.values():
            memory.poison(array, 0)  # the first run that is timed shall not wait for pages
        self._notify("running")
        session.set({**self._gate.inputs, **made})
        session.once()
        self._notify("comparing")
        self._ready[candidate.rank] = session
        self._made.pop(candidate.rank, None)
        self._made[candidate.rank] = tuple(made)
        while self._kept is not None and len(self._made) > self._kept:
            self._release_oldest()

    def _make_room(self, needed_bytes: int) -> None:
        """Lets go of the arrays of others until there is so much memory, or nobody has any."""
        free_bytes = self._gate.memory.free_bytes
        while self._made and (free := free_bytes()) is not None and free < needed_bytes:
            self._release_oldest()

    def _release_oldest(self) -> None:
        oldest = next(iter(self._made))
        self._ready[oldest].release(self._made.pop(oldest))

    def _with_arrays(self, candidate: Outcome) -> Session:
        session = self._ready[candidate.rank]
        if candidate.rank not in self._made:
            self._keep_ready(candidate, session)
        else:
            self._made[candidate.rank] = self._made.pop(candidate.rank)
        return session

    def _call(self, session: Session, arrays: Mapping[str, Array], *, once: bool = True) -> None:
        self._notify("running")
        session.set(arrays)
        if once:
            session.once()
        session.run()
        self._notify("comparing")
