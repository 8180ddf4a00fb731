"""A bench in a process of its own: a candidate that hangs or crashes is reported, the next one finds a new process.

The process is ended where a candidate stays in one state longer than its limit (`worker.Limits`), and replaced after
every candidate that failed: what that one wrote where it must not may have hit the process itself.  Candidates that
passed before are compiled again by the new one (the runtime's compiler cache makes this quick) when they are timed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.errors import DeviceError
from rollergen.gate.comparison import Oracle
from rollergen.gate.gate import Gate
from rollergen.hal.spec import Device
from rollergen.measure.bench import Bench, LocalBench, Lost, failed
from rollergen.measure.outcome import Outcome
from rollergen.measure.worker import GRACE_S, Limits, Setup
from rollergen.program.rprogram import RProgram
from rollergen.runtime.executor import Executor
from rollergen.runtime.session import Reading

START_S = 120.0
"""Seconds for a new process to import everything and to open the device."""

_LAST_WORDS = 300
_LAST_MOMENT_S = 5.0
"""For a process whose pipe is closed to end by itself: what ended it is told by its status."""


class Worker:
    """One process that answers requests until it is ended, or ends."""

    def __init__(self, setup: Setup) -> None:
        self._limits = setup.limits
        self._connection, theirs = Pipe()
        self._expired = False
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rollergen.measure.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._words, stderr=self._words,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        try:
            self.ask("open", setup)
        except (Lost, DeviceError) as error:
            self.end()
            raise DeviceError(f"{setup.device.name} cannot be opened by a process of its own: {error}") from error

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, operation: str, argument: Any) -> Any:
        """The answer; DeviceError for what the worker refuses, Lost where it ends or stays too long in one state."""
        state, seconds = "starting", START_S
        try:
            self._connection.send((operation, argument))
            while True:
                if operation != "open":
                    seconds = self._limits.seconds(state)
                kind, value = self._receive(seconds)
                if kind == "done":
                    return value
                if kind == "error":
                    break
                state = value
        except Exception as error:
            # Its last message may be cut, or overwritten by the candidate: reading that may raise anything.
            raise self._lost(state, seconds, error) from None
        raise DeviceError(value)

    def end(self) -> None:
        """Kills the process, if it still runs, and waits for it."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._words.close()

    def _receive(self, seconds: float) -> Any:
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            return self._connection.recv()
        finally:
            timer.cancel()

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def _lost(self, state: str, seconds: float, error: BaseException) -> Lost:
        code = self._ended(isinstance(error, (EOFError, OSError)))
        if self._expired:
            return Lost(f"ended after {seconds:g} s while {state}", "time")
        if code == -signal.SIGALRM:  # before this process came to it, on a machine that others use
            return Lost(f"ended itself after {self._limits.seconds(state) + GRACE_S:g} s while {state}", "time")
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()[-_LAST_WORDS:]
        how = _how(code) if isinstance(error, (EOFError, OSError)) else f"garbled its answer ({type(error).__name__})"
        return Lost(f"its process {how} while {state}" + (f"; its last words: {words}" if words else ""), "crash")

    def _ended(self, ending: bool) -> int:
        """Its exit status: its own where it is ``ending``, else that of being killed."""
        with suppress(subprocess.TimeoutExpired):
            if ending:
                return self._process.wait(_LAST_MOMENT_S)
        self._process.kill()
        return self._process.wait()


def _how(code: int) -> str:
    try:
        return f"ended with status {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


class IsolatedBench:
    """A `Bench` whose candidates run in a process that may die."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._worker: Worker | None = None
        self._ready: set[int] = set()
        self._revoked: dict[int, str] = {}

    def check(self, candidate: Outcome, sparing: bool = False) -> Outcome:
        try:
            found = self._present().ask("check", (candidate, sparing))
        except Lost as lost:
            self._drop()
            return replace(candidate, problems=(str(lost),), ended=lost.cause)
        checked = replace(
            candidate, compile_s=found.compile_s, check_s=found.check_s, compared=found.compared,
            sent_bytes=found.sent_bytes, fetched_bytes=found.fetched_bytes, problems=found.problems,
        )  # fmt: skip
        if checked.problems:
            self.revoked()
            self._drop()
        else:
            self._ready.add(candidate.rank)
        return checked

    def confirm(self, candidate: Outcome) -> Outcome:
        try:
            found = self._asked(candidate, "confirm", candidate)
        except Lost as lost:
            return replace(failed(candidate, str(lost)), ended=lost.cause)
        if found.problems:
            self._drop()
            return failed(candidate, *found.problems)
        return replace(
            candidate, check_s=found.check_s, compared=found.compared, sent_bytes=found.sent_bytes,
            fetched_bytes=found.fetched_bytes,
        )  # fmt: skip

    def time(self, candidate: Outcome) -> Reading:
        return Reading(*self._asked(candidate, "time", candidate))

    def repeat(self, candidate: Outcome, calls: int) -> float:
        return float(self._asked(candidate, "repeat", (candidate, calls)))

    def revoked(self) -> dict[int, str]:
        if self._worker is not None:
            self._revoked |= self._worker.ask("revoked", ())
        return dict(self._revoked)

    def close(self) -> None:
        self._drop()

    def _asked(self, candidate: Outcome, operation: str, argument: Any) -> Any:
        """The answer about a candidate that is made ready first, where a new process lacks it."""
        try:
            worker = self._present()
            if candidate.rank not in self._ready:
                worker.ask("ready", candidate)
                self._ready.add(candidate.rank)
            return worker.ask(operation, argument)
        except Lost:
            self._drop()
            raise

    def _present(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._setup)
        return self._worker

    def _drop(self) -> None:
        """The next candidate finds a new process."""
        if self._worker is not None:
            self._worker.end()
        self._worker = None
        self._ready.clear()


@contextmanager
def bench_for(
    device: Device, executor: Executor, first: RProgram, oracle: Oracle, options: BuildOptions, kept: int | None = None
) -> Iterator[Bench]:
    """The bench that the options ask for: in this process on ``executor``, or in one of its own.  ``kept``: see
    `LocalBench`."""
    limits = Limits(options.compile_limit_s, options.run_limit_s, options.memory_limit_bytes)
    bench: Bench
    if options.isolate:
        bench = IsolatedBench(Setup(device, first, oracle, limits=limits, kept=kept))
    else:
        bench = LocalBench(executor, Gate(first, oracle, memory=executor.memory), device=device, kept=kept)
    try:
        yield bench
    finally:
        bench.close()
