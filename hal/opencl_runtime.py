"""OpenCL through pyopencl: compile, wrap arrays, launch, time.

On a CPU device NumPy arrays are wrapped in place, so a launch reads and writes the caller's memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.launch_limits import POCL_PRIVATE_BYTES, LaunchLimits
from rollergen.hal.pocl_cache import directory, ensure, trouble
from rollergen.hal.pocl_cpu_name import UnknownProcessorError, mend_cpu_name

POCL = "Portable Computing Language"
INSTALL = 'pip install "rollergen[cpu]" (pyopencl with PoCL; wheels for Linux on x86-64)'
_THREADS = "POCL_MAX_PTHREAD_COUNT"
_DRIVERS = "POCL_DEVICES"
_LOCK = threading.Lock()
_opened = threading.Event()


@dataclass(frozen=True, slots=True)
class Launched:
    """One enqueued launch; ``seconds()`` is the device's own time for it, after `finish`."""

    event: Any

    def seconds(self) -> float:
        return float(self.event.profile.end - self.event.profile.start) * 1e-9


class Kernel:
    """An entry point and its arguments: one thread at a time, so every caller makes its own.

    It keeps its buffers, because OpenCL does not: launching with a freed one ends the process.
    """

    __slots__ = ("_buffers", "raw")

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._buffers: dict[int, Any] = {}

    def set_arg(self, position: int, buffer: Any) -> None:
        self.raw.set_arg(position, buffer)
        self._buffers[position] = buffer

    def held(self) -> tuple[Any, ...]:
        """The buffers of the arguments set so far."""
        return tuple(self._buffers.values())


class Module:
    """A compiled program."""

    def __init__(self, program: Any, opencl: Any) -> None:
        self._program, self._opencl = program, opencl

    def kernel(self, entry: str) -> Kernel:
        """A new kernel object for `entry`; KeyError names the entries there are."""
        names = self._program.get_info(self._opencl.program_info.KERNEL_NAMES).split(";")
        if entry not in names:
            raise KeyError(f"no kernel {entry!r}; the source has {names}")
        return Kernel(self._opencl.Kernel(self._program, entry))


class OpenCLRuntime:
    """The OpenCL CPU device of this machine, PoCL before others.

    `threads` limits the threads of PoCL (default: all cores, or POCL_MAX_PTHREAD_COUNT of the environment).
    PoCL reads the limit at the first use of OpenCL in a process and never again.

    Raises `RuntimeUnavailableError` where pyopencl or a CPU platform is missing, where PoCL cannot
    compile for this processor, or where another limit of threads is already in force.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.opencl = _import()
        self.device = _cpu_device(self.opencl, threads)
        self.context = self.opencl.Context([self.device])
        profiling = self.opencl.command_queue_properties.PROFILING_ENABLE
        self.queue = self.opencl.CommandQueue(self.context, properties=profiling)
        self.plain_queue = self.opencl.CommandQueue(self.context)
        self._lock = threading.Lock()
        self._in_use: list[tuple[Any, ...]] = []

    @property
    def description(self) -> str:
        """Platform, driver and device, as they call themselves."""
        platform = self.device.platform
        return f"{platform.name} {self.device.driver_version} on {self.device.name}"

    @property
    def compiler(self) -> str:
        """The platform's version, in which implementations name their compiler."""
        return str(self.device.platform.version)

    @property
    def limits(self) -> LaunchLimits:
        """What a launch may ask for; PoCL ends the process beyond it."""
        private = POCL_PRIVATE_BYTES if self.device.platform.name == POCL else None
        return LaunchLimits(int(self.device.max_work_group_size), int(self.device.local_mem_size), private)

    @property
    def units(self) -> int:
        """Threads that run work-groups side by side."""
        return int(self.device.max_compute_units)

    def compile(self, text: str, options: Sequence[str] = ()) -> Module:
        """Build `text`; raises `BuildError` with the compiler's log."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = self.opencl.Program(self.context, text).build(list(options))
            except self.opencl.RuntimeError as error:
                raise BuildError(f"OpenCL build failed on {self.description}: {error}{self._cache_trouble()}") from None
        return Module(program, self.opencl)

    def _cache_trouble(self) -> str:
        """What PoCL's log does not say: that it had no place to compile in."""
        where = directory(os.environ)
        reason = trouble(where) if self.device.platform.name == POCL else None
        return f"; PoCL's cache {where} {reason}" if reason else ""

    def wrap(self, array: np.ndarray) -> Any:
        """A buffer over the array's own memory (C-contiguous), which it keeps alive.

        Costs less than a microsecond, so nothing is cached.  Raises ValueError for strided arrays.
        """
        if not array.flags.c_contiguous:
            raise ValueError(f"array of shape {array.shape} has strides {array.strides}; expected C-contiguous memory")
        flags = self.opencl.mem_flags
        if array.nbytes == 0:
            return self.opencl.Buffer(self.context, flags.READ_WRITE, size=64)
        access = flags.READ_WRITE if array.flags.writeable else flags.READ_ONLY
        return self.opencl.Buffer(self.context, access | flags.USE_HOST_PTR, hostbuf=array)

    def borrow(self, array: np.ndarray) -> Any:
        """As `wrap`, but the array is not kept alive: the buffer must not be used once it is gone."""
        if array.nbytes == 0:
            return self.wrap(array)
        flags = self.opencl.mem_flags
        access = flags.READ_WRITE if array.flags.writeable else flags.READ_ONLY
        memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
        return self.opencl.Buffer(self.context, access | flags.USE_HOST_PTR, hostbuf=memory)

    def set_arguments(self, kernel: Kernel, buffers: Sequence[Any]) -> None:
        for position, buffer in enumerate(buffers):
            kernel.set_arg(position, buffer)

    def launch(self, kernel: Kernel, blocks: int, threads: int, *, timed: bool = False) -> Launched:
        """Enqueue `blocks` groups of `threads` work-items with the arguments set before.

        Their buffers live until `finish`.  Launches run in order within the timed and within the
        untimed ones, not across them.
        """
        queue = self.queue if timed else self.plain_queue
        with self._lock:
            self._in_use.append(kernel.held())
            event = self.opencl.enqueue_nd_range_kernel(queue, kernel.raw, (blocks * threads,), (threads,))
        return Launched(event)

    def repeating(self, launches: Sequence[tuple[Kernel, int, int]]) -> Callable[[], None]:
        """Launches (kernel, blocks, threads) in order, and waits for them: sizes and arguments are set once.

        The kernels, whose buffers it keeps, are the caller's no more.
        """
        enqueue, queue = self.opencl.enqueue_nd_range_kernel, self.plain_queue
        made = tuple((kernel, (blocks * threads,), (threads,)) for kernel, blocks, threads in launches)
        if len(made) == 1:
            ((kernel, size, group),) = made
            return partial(_launch_alone, enqueue, queue.finish, queue, kernel.raw, size, group, kernel)
        return partial(_repeat, enqueue, queue, made)

    def finish(self) -> None:
        """Wait for everything enqueued, by whichever thread."""
        with self._lock:
            done, self._in_use = self._in_use, []
        self.plain_queue.finish()
        self.queue.finish()
        del done


def _repeat(enqueue: Callable[..., Any], queue: Any, launches: tuple[tuple[Kernel, Any, Any], ...]) -> None:
    try:
        for kernel, size, group in launches:
            enqueue(queue, kernel.raw, size, group)
    finally:  # also where the user interrupts: what was enqueued must not outlive its arrays
        queue.finish()


def _launch_alone(
    enqueue: Callable[..., Any], finish: Callable[[], None], queue: Any, raw: Any, size: Any, group: Any, _kept: Kernel
) -> None:
    """As `_repeat` for one launch: small kernels take no longer than the loop around them."""
    try:
        enqueue(queue, raw, size, group)
    finally:
        finish()


def _import() -> Any:
    if not _opened.is_set():
        ensure(os.environ)
    try:
        import pyopencl
    except ImportError as error:
        raise RuntimeUnavailableError(f"pyopencl is missing ({error}); {INSTALL}") from None
    return pyopencl


def _cpu_device(opencl: Any, threads: int | None) -> Any:
    with _LOCK:
        _limit_threads(threads)
        try:
            platforms = opencl.get_platforms()
        except opencl.LogicError as error:
            raise RuntimeUnavailableError(f"no OpenCL platform ({error}); {INSTALL}") from None
        found = [d for p in platforms for d in p.get_devices() if d.type & opencl.device_type.CPU]
        if not found:
            names = [p.name for p in platforms]
            raise RuntimeUnavailableError(f"no OpenCL CPU device among the platforms {names}; {INSTALL}")
        device = min(found, key=lambda d: d.platform.name != POCL)
        if device.platform.name == POCL:
            try:
                mend_cpu_name(device.int_ptr, device.version)
            except UnknownProcessorError as error:
                raise RuntimeUnavailableError(str(error)) from None
        return device


def _limit_threads(threads: int | None) -> None:
    """Asks PoCL for so many threads; it listens before its first use only."""
    in_force = os.environ.get(_THREADS)
    if threads is not None and in_force != str(threads):
        if _opened.is_set():
            raise RuntimeUnavailableError(
                f"threads={threads} comes too late: this process uses OpenCL with {in_force or 'all'} threads already; "
                f"ask before the first use, or set {_THREADS} in the environment"
            )
        os.environ[_THREADS] = str(threads)
    _run_inline_on_one_core()
    _opened.set()


def _run_inline_on_one_core() -> None:
    """Where only one core may be used, PoCL's driver without worker threads: handing a launch to a worker on the
    same core and waking up again costs 16 of 18 us of an empty launch.  A choice of the user's stands."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or os.environ.get(_THREADS) == "1":
        os.environ.setdefault(_DRIVERS, "basic")
