"""OpenCL through pyopencl: compile, wrap arrays, launch, time.

On a CPU device NumPy arrays are wrapped in place, so a launch reads and writes the caller's memory.  PoCL has two
drivers for it: one whose threads, as many as cores, are woken for each launch, and one that works in the calling
thread.  Where there are several cores both are opened: small launches go alone (``alone=True``): waking takes longer.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, MendableError, RuntimeUnavailableError
from rollergen.hal.runtimes.opencl_platforms import (
    INSTALL,
    OPENING,
    POCL,
    QUIET,
    choose_drivers,
    hidden_device,
    import_pyopencl,
    in_calling_thread,
    make_ready,
)
from rollergen.hal.runtimes.pocl_builtins import OPTION, declarations, suffice
from rollergen.hal.runtimes.pocl_cache import directory, trouble
from rollergen.hal.runtimes.pocl_pool import Pool, pool_of
from rollergen.hal.runtimes.pocl_work_groups import WorkGroups, callable_alone, object_of, own_names, work_groups
from rollergen.hal.runtimes.protocol import POCL_PRIVATE_BYTES, LaunchLimits
from rollergen.hal.runtimes.remembered import Host, before_opening, remember

_IN_PLACE = (POCL, "Intel", "AMD")
"""How the platforms begin whose CPU devices are used in place.  A simulator calls itself a CPU as well (Oclgrind), and
for one of Mesa's the text for CPUs is too much (llvmpipe: vectors of 64, prefetches); as ``opencl:P:D`` they run."""


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

    def drop_arg(self, position: int) -> None:
        """Lets go of a buffer; it is set again before the next launch."""
        self._buffers.pop(position, None)

    def held(self) -> tuple[Any, ...]:
        """The buffers of the arguments set so far."""
        return tuple(self._buffers.values())


class Module:
    """A compiled program.  ``names``: those that its kernels were given, by their names in the source."""

    def __init__(self, program: Any, opencl: Any, names: Mapping[str, str], direct: bool) -> None:
        self._program, self._opencl, self._names, self._direct = program, opencl, names, direct
        self._objects: dict[str, str] = {}  # of kernels, which stay loaded with the program: to look for one takes ms

    def kernel(self, entry: str) -> Kernel:
        """A new kernel object for `entry`; KeyError names the entries there are."""
        if entry not in self._names:
            raise KeyError(f"no kernel {entry!r}; the source has {list(self._names)}")
        return Kernel(self._opencl.Kernel(self._program, self._names[entry]))

    def work_groups(
        self, entry: str, groups: int, arguments: int, alone: bool, sizes: tuple[int, ...] = ()
    ) -> WorkGroups | None:
        """A launch of so many work-groups of one thread for the pool, once one has run through the queue; None where
        that cannot be.  ``sizes``: integers behind the arguments."""
        name = self._names[entry]
        path = self._objects.get(name) or (object_of(name) if self._direct else None)
        if path is None:
            return None
        self._objects[name] = path
        try:
            return work_groups(path, name, groups, arguments, alone, sizes)
        except OSError:
            return None


class OpenCLRuntime:
    """The OpenCL CPU device of this machine, PoCL before others.

    PoCL has a thread for every core, or POCL_MAX_PTHREAD_COUNT of the environment, which it reads at the first use of
    OpenCL in a process and never again.

    Raises `RuntimeUnavailableError` where pyopencl or a CPU platform is missing, and where PoCL cannot compile for
    this processor or finds no linker.
    """

    def __init__(self) -> None:
        before = before_opening()
        self.opencl = import_pyopencl()
        self.device, self._caller = _cpu_devices(self.opencl)
        self.context = self.opencl.Context([self.device, *([self._caller] if self._caller else [])])
        self.queue, self.plain_queue = self._queues(self.device)
        self._caller_queues = self._queues(self._caller) if self._caller else (self.queue, self.plain_queue)
        self._lock = threading.Lock()
        self._in_use: list[tuple[Any, ...]] = []
        self._last = {True: self.queue, False: self.plain_queue}
        if before is not None:
            remember(self.host if self.device.platform.name == POCL else None, before)

    @property
    def host(self) -> Host:
        """What other processes may remember of it."""
        return Host(self.description, self.compiler, self.units)

    def _queues(self, device: Any) -> tuple[Any, Any]:
        """A queue whose launches are timed, and one whose are not."""
        profiling = self.opencl.command_queue_properties.PROFILING_ENABLE
        make = partial(self.opencl.CommandQueue, self.context, device)
        return make(properties=profiling), make()

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
    def compiles_slowly(self) -> bool:
        """PoCL takes 0.5 to 1 s for a program, and lets one thread in at a time."""
        return True

    @property
    def limits(self) -> LaunchLimits:
        """What a launch may ask for; PoCL ends the process beyond it."""
        private = POCL_PRIVATE_BYTES if self.device.platform.name == POCL else None
        return LaunchLimits(int(self.device.max_work_group_size), int(self.device.local_mem_size), private)

    @property
    def units(self) -> int:
        """Threads that run work-groups side by side."""
        return int(self.device.max_compute_units)

    @property
    def has_caller(self) -> bool:
        """Whether launches may run in the calling thread, beside the threads of all cores."""
        return self._caller is not None

    @property
    def pool(self) -> Pool | None:
        """What makes launches without a queue; None where only queues do."""
        return pool_of(self) if self.device.platform.name == POCL else None

    def compile(self, text: str, options: Sequence[str] = (), alone: Collection[bool] = (False,)) -> Module:
        """Build `text` for launches that are `alone`, or not, or some of each; raises `BuildError` with the compiler's
        log."""
        devices = list(dict.fromkeys(self._device(one) for one in alone))
        names = own_names(text)
        options = [QUIET, *options, *(f"-D{entry}={name}" for entry, name in names.items())]
        try:
            program = self._built(text, options, devices)
        except self.opencl.RuntimeError as error:
            raise BuildError(f"OpenCL build failed on {self.description}: {error}{self._cache_trouble()}") from None
        return Module(program, self.opencl, names, self.device.platform.name == POCL and callable_alone(text))

    def _built(self, text: str, options: list[str], devices: list[Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.device.platform.name == POCL and suffice(text):
                behind_ours = self.opencl.Program(self.context, declarations() + text)
                with suppress(self.opencl.RuntimeError):  # it is wrong, or takes a type or a macro of the others
                    return behind_ours.build([*options, OPTION], devices=devices)
            return self.opencl.Program(self.context, text).build(options, devices=devices)

    def _device(self, alone: bool) -> Any:
        return self._caller if alone and self._caller else self.device

    def _cache_trouble(self) -> str:
        """What PoCL's log does not say: that it had no place to compile in."""
        where = directory(os.environ)
        reason = trouble(where) if self.device.platform.name == POCL else None
        return f"; PoCL's cache {where} {reason}" if reason else ""

    def wrap(self, array: np.ndarray) -> Any:
        """A buffer over the array's own memory (C-contiguous), which it keeps alive.

        Costs less than a microsecond, so nothing is cached.  Raises ValueError for strided arrays, and for one of more
        bytes than the device's buffers may have where kernels take no addresses either.
        """
        if not array.flags.c_contiguous:
            raise ValueError(f"array of shape {array.shape} has strides {array.strides}; expected C-contiguous memory")
        flags = self.opencl.mem_flags
        if array.nbytes == 0:
            return self.opencl.Buffer(self.context, flags.READ_WRITE, size=64)
        most = int(self.device.max_mem_alloc_size)  # PoCL: a quarter of the memory, at least 2 GiB
        if array.nbytes > most:
            if self.takes_addresses:
                return self.memory(_writeable(array))
            raise ValueError(
                f"array of shape {array.shape} has {array.nbytes} bytes; {self.description} takes at most {most}"
                " (CL_DEVICE_MAX_MEM_ALLOC_SIZE)"
            )
        access = flags.READ_WRITE if array.flags.writeable else flags.READ_ONLY
        return self.opencl.Buffer(self.context, access | flags.USE_HOST_PTR, hostbuf=array)

    @property
    def takes_addresses(self) -> bool:
        """Whether kernels take addresses of host memory: shared virtual memory of the fine-grained system kind
        (OpenCL 3.0, section 5.6), which PoCL's CPU drivers have without saying so (3.0)."""
        devices = [self.device, *([self._caller] if self._caller else [])]
        fine = self.opencl.device_svm_capabilities.FINE_GRAIN_SYSTEM
        return all(one.platform.name == POCL or bool(one.svm_capabilities & fine) for one in devices)

    @property
    def memory(self) -> Callable[[np.ndarray], Any]:
        """pyopencl's own type: a method around it would take a tenth of a call's time."""
        return self.opencl.SVM

    def set_arguments(self, kernel: Kernel, buffers: Sequence[Any]) -> None:
        for position, buffer in enumerate(buffers):
            kernel.set_arg(position, buffer)

    def launch(
        self, kernel: Kernel, blocks: int, threads: int, *, timed: bool = False, alone: bool = False
    ) -> Launched:
        """Enqueue `blocks` groups of `threads` work-items with the arguments set before; `alone`: in the calling
        thread, where there is a driver that does.

        Their buffers live until `finish`.  Launches run in order within the timed and within the untimed ones, not
        across them.
        """
        queue = self._queue(alone, timed)
        with self._lock:
            self._in_use.append(kernel.held())
            if self._last[timed] is not queue:
                self._last[timed].finish()
                self._last[timed] = queue
            event = self.opencl.enqueue_nd_range_kernel(queue, kernel.raw, (blocks * threads,), (threads,))
        return Launched(event)

    def _queue(self, alone: bool, timed: bool) -> Any:
        timing, plain = self._caller_queues if alone else (self.queue, self.plain_queue)
        return timing if timed else plain

    def prepared(self, launches: Sequence[tuple[Kernel, int, int, bool]]) -> Callable[[], None]:
        """Launches (kernel, blocks, threads, alone) in order, and waits for them: sizes are set once.

        It keeps the kernels and their buffers.
        """
        enqueue = self.opencl.enqueue_nd_range_kernel
        made = tuple(
            (self._queue(alone, False), kernel, (blocks * threads,), (threads,))
            for kernel, blocks, threads, alone in launches
        )
        if len(made) == 1:
            ((queue, kernel, size, group),) = made
            return _single_launch(enqueue, queue, kernel, size, group)
        return partial(_launch_all, enqueue, made)

    def finish(self) -> None:
        """Wait for everything enqueued, by whichever thread."""
        with self._lock:
            done, self._in_use = self._in_use, []
            last = tuple(self._last.values())
        for queue in last:
            queue.finish()
        del done


def _writeable(array: np.ndarray) -> np.ndarray:
    """The same memory as an array that may be written, as pyopencl's SVM asks of each; kernels write no inputs."""
    interface = array.__array_interface__
    memory = SimpleNamespace(__array_interface__=interface | {"data": (interface["data"][0], False)}, owner=array)
    return np.asarray(memory)


def _launch_all(enqueue: Callable[..., Any], launches: tuple[tuple[Any, Kernel, Any, Any], ...]) -> None:
    last = launches[0][0]
    try:
        for queue, kernel, size, group in launches:
            if queue is not last:  # another driver, which does not wait for this one's launches by itself
                last.finish()
                last = queue
            enqueue(queue, kernel.raw, size, group)
    finally:  # also where the user interrupts: what was enqueued must not outlive its arrays
        last.finish()


def _single_launch(
    enqueue: Callable[..., Any], queue: Any, kernel: Kernel, size: Any, group: Any
) -> Callable[[], None]:
    """As `_launch_all` for one launch: small kernels take no longer than the loop around them."""
    raw, finish = kernel.raw, queue.finish

    def launch(_kept: Kernel = kernel) -> None:
        try:
            enqueue(queue, raw, size, group)
        finally:
            finish()

    return launch


def cpu_devices(opencl: Any) -> list[Any]:
    """OpenCL's CPU devices that run text for CPUs, PoCL's first, of whose drivers the one that works in the calling
    thread last."""
    platforms = [p for p in opencl.get_platforms() if p.name.startswith(_IN_PLACE)]
    found = [d for p in platforms for d in p.get_devices() if d.type & opencl.device_type.CPU]
    return sorted(found, key=lambda d: (d.platform.name != POCL, in_calling_thread(d)))


def _cpu_devices(opencl: Any) -> tuple[Any, Any]:
    """The device with the threads of all cores, and the one of the calling thread, None where it is not there, or the
    only one (then it is the first)."""
    with OPENING:
        choose_drivers()
        try:
            found = cpu_devices(opencl)
        except opencl.LogicError as error:
            raise RuntimeUnavailableError(f"no OpenCL platform ({error}); {INSTALL}") from None
        if not found:
            raise _no_device([p.name for p in opencl.get_platforms()])
        device = found[0]
        caller = next((d for d in found[1:] if in_calling_thread(d)), None) if device.platform.name == POCL else None
        for one in (device, caller):
            if one is not None:
                make_ready(one)
        return device, caller


def _no_device(platforms: list[str]) -> RuntimeUnavailableError:
    hidden = hidden_device()
    if POCL in platforms and hidden:
        return MendableError(hidden)
    others = ", or one of these as device='opencl:PLATFORM:DEVICE'" if platforms else ""
    return RuntimeUnavailableError(
        f"no OpenCL platform for this machine's CPU among {platforms}; expected PoCL or Intel's, {INSTALL}{others}"
    )
