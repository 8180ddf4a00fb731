"""Launches without PoCL's queue: threads that share work-groups with the calling thread.

A queued launch takes 1 us more than a call of its code, and the threads of PoCL's driver take tens of microseconds to
be woken.  Those of the pool look out for the next job for a while before they sleep, so that jobs that follow each
other find them awake; `pocl_pool.cl` has what they do, PoCL compiles it.  Where it cannot be (another system or
processor, no object found), launches go through the queue.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from _ctypes import dlopen, dlsym
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollergen.hal.errors import BuildError
from rollergen.hal.probes.host_facts import cores
from rollergen.hal.runtimes.pocl_calls import Calls, Made, Wanted, layout_known
from rollergen.hal.runtimes.pocl_work_groups import WorkGroups, array_of, object_of, own_names

if TYPE_CHECKING:
    from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

_TEXT = Path(__file__).with_suffix(".cl")
_SPIN_TICKS, _WAKE_TICKS = 500_000, 400_000
"""How long threads look out for a job before they sleep, and how much work it takes to wake them; an x86 processor
counts 2000 to 4000 ticks a microsecond.  In 200 us a caller prepares the next call; waking takes 15 to 30 us of the
caller's time and the thread comes 40 to 100 us later, so that less work is done sooner alone."""

_PARTS = 4
"""Who is free takes one in so many of its own share of the groups that are left."""

_CLOSED = 1 << 32
_WORD, _APART = ctypes.c_size_t, ctypes.c_size_t * 8
_FUNCTION = ctypes.CFUNCTYPE(None)
_ZERO = ctypes.c_size_t(0)
_CONTEXT = ctypes.create_string_buffer(1024)
"""Zeros, more than a ``struct pocl_context`` of any version has: number of work-groups, offsets, sizes, for printf."""


Told = Callable[[], list[float]]
"""Gives the seconds of each launch of a call that has ended, until the next one: to be asked when no clock runs."""


class _Launch(ctypes.Structure):
    """``struct launch`` of the text."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("context", ctypes.c_void_p),
        ("groups", _WORD), ("alone", _WORD), ("last", _WORD),
        ("backwards", _WORD), ("took", _WORD), ("took_asleep", _WORD),
        ("timed", _WORD), ("begun", _WORD), ("ended", _WORD),
        ("apart", _APART), ("next", _WORD), ("apart_too", _APART), ("done", _WORD),
    )  # fmt: skip


class _State(ctypes.Structure):
    """``struct pool`` of the text."""

    _fields_ = (
        ("job", _WORD), ("once", _WORD), ("spin", _WORD), ("wake", _WORD), ("owed", _WORD), ("parts", _WORD),
        ("threads", ctypes.c_void_p), ("count", _WORD), ("cores", ctypes.c_void_p), ("bytes", _WORD), ("caller", _WORD),
        ("apart", _APART), ("generation", _WORD), ("apart_too", _APART), ("sleepers", _WORD),
        ("apart_from_gate", _APART), ("gate", _WORD), ("apart_from_lock", _APART), ("lock", _WORD),
    )  # fmt: skip


class _Arguments(ctypes.Structure):
    """Of the text's kernels; ctypes keeps what they point to."""

    _fields_ = (("pool", ctypes.POINTER(_State)), ("job", ctypes.POINTER(_Launch)))


def _shares(job: ctypes.Array[_Launch], seconds: float) -> list[float]:
    """Of each launch of the job, which took so many."""
    ticks = [job[0].begun, *(one.ended for one in job)]
    return [(after - before) * seconds / (ticks[-1] - ticks[0]) for before, after in pairwise(ticks)]


class Pool:
    """``threads`` beside the calling one.  Thread-safe: of several callers one has the threads, the others do their
    jobs alone."""

    def __init__(self, run_job: int, serve_jobs: int, threads: int, calls: Calls | None = None) -> None:
        """``run_job``, ``serve_jobs``: the addresses of the text's kernels; ``calls``: None where there are none."""
        self._run, self._serve, self._threads = _FUNCTION(run_job), _FUNCTION(serve_jobs), threads
        self._calls = calls
        self._state, self._starting, self._started = _State(), threading.Lock(), False
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Without threads: those of a parent process are not this one's."""
        ctypes.memset(ctypes.byref(self._state), 0, ctypes.sizeof(self._state))
        self._state.spin, self._state.wake, self._state.gate = _SPIN_TICKS, _WAKE_TICKS, _CLOSED
        self._state.parts = _PARTS * (self._threads + 1)
        self._starting, self._started = threading.Lock(), False

    def job(self, launches: Sequence[WorkGroups]) -> Callable[[], None]:
        """What makes the launches, each begun when the one before is done.  One thread at a time may call it."""
        return self._call(self._run, _Arguments(ctypes.pointer(self._state), self._job(launches)))

    def timed(self, launches: Sequence[WorkGroups]) -> Callable[[], Told]:
        """As `job`; each call gives what tells the seconds of each launch: its share of those of the call, by the
        processor's ticks, which are read when it ends."""
        made = self._job(launches)
        made[0].timed = True
        made[0].took = _WAKE_TICKS + 1  # no call before tells; who is timed has enough work to wake threads for
        run = self._call(self._run, _Arguments(ctypes.pointer(self._state), made))

        def call() -> Told:
            start = time.perf_counter()
            run()
            return partial(_shares, made, time.perf_counter() - start)

        return call

    def call_with(self, launches: Sequence[WorkGroups], wanted: Sequence[Wanted]) -> Made | None:
        """As `job`, with arrays that it looks at and whose addresses it sets; None where that cannot be."""
        if self._calls is None:
            return None
        return self._calls.function(self._state, self._job(launches), wanted, launches)

    def _job(self, launches: Sequence[WorkGroups]) -> ctypes.Array[_Launch]:
        if not all(one.alone for one in launches):
            self._start()
        job = array_of(_Launch, len(launches))()
        for launch, one in zip(job, launches, strict=True):
            launch.function, launch.arguments, launch.context = one.function, one.addresses, ctypes.addressof(_CONTEXT)
            launch.groups, launch.alone, launch.backwards = one.groups, one.alone, one.backwards
        job[-1].last = True
        return job

    def _call(self, function: Any, arguments: _Arguments) -> Callable[[], None]:
        return partial(function, ctypes.byref(arguments), _CONTEXT, _ZERO, _ZERO, _ZERO)

    def _start(self) -> None:
        with self._starting:
            if self._started:
                return
            self._started = True
            serve = self._call(self._serve, _Arguments(ctypes.pointer(self._state)))
            made = [
                threading.Thread(target=serve, name=f"rollergen-{number}", daemon=True)
                for number in range(self._threads)
            ]
            for one in made:
                one.start()
            self._keep_off([number for one in made if (number := one.native_id)])  # 0 would be the caller

    def _keep_off(self, threads: Sequence[int]) -> None:
        """Tells callers which threads to keep off their core, and which cores these may use."""
        allowed = os.sched_getaffinity(0)
        self._cores = bytearray(8 * (max(allowed) // 64 + 1))
        for core in allowed:
            self._cores[core // 8] |= 1 << core % 8
        self._numbers = (_WORD * len(threads))(*threads)
        state = self._state
        state.cores = ctypes.addressof((ctypes.c_char * len(self._cores)).from_buffer(self._cores))
        state.threads, state.bytes, state.count = ctypes.addressof(self._numbers), len(self._cores), len(threads)


def pool_of(runtime: OpenCLRuntime) -> Pool | None:
    """The pool of this process; None where there can be none.  ``runtime``: PoCL's, which makes its code."""
    with _making:
        if not _made:
            _made.append(_pool(runtime))
        return _made[0]


_made: list[Pool | None] = []
_making = threading.Lock()


def _pool(runtime: OpenCLRuntime) -> Pool | None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    text = _TEXT.read_text()
    try:
        module = runtime.compile(text, alone=(True,))
    except BuildError:
        return None
    state, job, found = _State(once=True, gate=_CLOSED, parts=1), _Launch(alone=True, last=True), ctypes.c_size_t()
    for entry, arguments in (("run_job", (state, job)), ("serve_jobs", (state,)), ("find_call", (found,))):
        kernel = module.kernel(entry)
        runtime.set_arguments(kernel, [runtime.wrap(np.frombuffer(one, np.uint8)) for one in arguments])  # type: ignore[call-overload]
        runtime.launch(kernel, 1, 1, alone=True)
        runtime.finish()
    run_job, serve_jobs, _ = (_function(name) for name in own_names(text).values())  # all stay loaded
    if not run_job or not serve_jobs:
        return None
    calls = Calls(found.value) if found.value and layout_known() else None
    return Pool(run_job, serve_jobs, min(usable_cores(), runtime.units) - 1, calls)


def _function(name: str) -> int:
    """The address of a kernel's code, which stays loaded; 0 where it is not found."""
    path = object_of(name)
    try:
        return dlsym(dlopen(path, os.RTLD_NOW), f"_pocl_kernel_{name}_workgroup_fast") if path else 0
    except OSError:
        return 0


def usable_cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Cores that this process may keep busy all the time: its affinity, and the least share of time of its control
    group and those around it.  ``groups``: where they are mounted; ``own``: tells which ones are the process's."""
    return max(1, min([cores(), *_quotas(groups, own)]))


def _quotas(groups: Path, own: Path) -> Iterator[int]:
    """Whole cores that each of the groups (version 2, or 1) may use that has a limit."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    for controllers, path in [("", "/"), ("cpu", "/"), *(line[1:] for line in lines)]:  # containers see the root alone
        names = [name for name in path.split("/") if name]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = (groups / controllers, groups / "cpu") if controllers else (groups, groups / "unified")
        for mount, depth in product(mounts, range(len(names) + 1)):
            yield from _quota(mount.joinpath(*names[:depth]))


def _quota(group: Path) -> list[int]:
    """The whole cores that a control group may use; none where it has no limit."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return []
    return [max(1, int(quota) // int(period))] if quota.strip().isdigit() else []
