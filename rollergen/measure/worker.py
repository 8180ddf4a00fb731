"""The process in which candidates may hang, crash or write where they must not: ``python -m rollergen.measure.worker``.

It reads requests from a pipe and answers each with any number of ``("now", state)`` and one ``("done", value)`` or
``("error", text)``.  ``state`` is what begins: "compiling", "running" or "comparing".  Its first request is a
`Setup`.  It ends with the pipe, and by an alarm of the operating system where nobody is left to end it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from rollergen.errors import RollergenError
from rollergen.gate.comparison import Oracle
from rollergen.gate.gate import Gate
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.measure.bench import LocalBench
from rollergen.program.rprogram import RProgram
from rollergen.runtime.executor import Executor, executor_for

GRACE_S = 5.0
"""So much later than its limit a process ends itself, if nobody has ended it."""
LONGEST_S = 1e9
"""Timers of the system and of threads count no longer than some 9e9 seconds; infinity is as good as this."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker: seconds for compiling one candidate and for one run of it; bytes that the process may use
    beyond those that it starts with (None: no limit)."""

    compile_s: float = 60.0
    run_s: float = 10.0
    memory_bytes: int | None = None

    def seconds(self, state: str) -> float:
        """Longest stay in a state, at most `LONGEST_S`.  A run may include what a compiler leaves for the first launch
        (PoCL's does), and comparing the evaluation of the definition: both have the compiler's time as well."""
        return min(self.compile_s if state == "compiling" else self.compile_s + self.run_s, LONGEST_S)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs to know of all candidates; ``opens`` makes the executor of the device, ``kept``: see
    `LocalBench`."""

    device: Device
    program: RProgram
    oracle: Oracle
    seed: int = 0
    limits: Limits = Limits()
    opens: Callable[[Device], Executor] = executor_for
    kept: int | None = None


def main(descriptor: int) -> None:
    """Serves requests that arrive at an inherited end of a pipe."""
    connection = Connection(descriptor)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(connection)


def _serve(connection: Connection) -> None:
    bench: LocalBench | None = None
    while True:
        operation, argument = connection.recv()
        try:
            if operation == "open":
                bench, value = _opened(argument, connection), None
            else:
                arguments = argument if isinstance(argument, tuple) else (argument,)
                value = getattr(bench, operation)(*arguments)
        except RollergenError as error:
            connection.send(("error", f"{type(error).__name__}: {error}"))
        else:
            connection.send(("done", value))


def _opened(setup: Setup, connection: Connection) -> LocalBench:
    _expendable()

    def notify(state: str) -> None:
        _alarm(setup.limits.seconds(state) + GRACE_S)
        connection.send(("now", state))

    notify("comparing")
    executor = setup.opens(setup.device)
    gate = Gate(setup.program, setup.oracle, setup.seed, executor.memory)
    bench = LocalBench(executor, gate, notify, setup.device, setup.kept)
    if setup.limits.memory_bytes is not None:
        _limit_memory(setup.limits.memory_bytes)
    _alarm(0)
    return bench


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _expendable() -> None:
    """No core files, and the first to go where the machine runs out of memory."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _limit_memory(added: int) -> None:
    """Address space beyond what is in use now."""
    import resource

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard  # more does not fit the system's number
    resource.setrlimit(resource.RLIMIT_AS, (min(used + added, most), hard))


if __name__ == "__main__":
    main(int(sys.argv[1]))
