"""OpenCL through pyopencl: compile, wrap arrays, launch, time.

On a CPU device NumPy arrays are wrapped in place, so a launch reads and writes the caller's memory.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.pocl_cpu_name import mend_cpu_name

INSTALL = 'pip install "rollergen[cpu]" (pyopencl with PoCL; wheels for Linux on x86-64)'
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class Launched:
    """One enqueued launch; ``seconds()`` is the device's own time for it, after `finish`."""

    event: Any

    def seconds(self) -> float:
        return (self.event.profile.end - self.event.profile.start) * 1e-9


class Module:
    """A compiled program.  Kernel objects hold their arguments, so every caller makes its own."""

    def __init__(self, program: Any, opencl: Any) -> None:
        self._program, self._opencl = program, opencl

    def kernel(self, entry: str) -> Any:
        """A new kernel object for `entry`; KeyError names the entries there are."""
        names = self._program.get_info(self._opencl.program_info.KERNEL_NAMES).split(";")
        if entry not in names:
            raise KeyError(f"no kernel {entry!r}; the source has {names}")
        return self._opencl.Kernel(self._program, entry)


class OpenCLRuntime:
    """The OpenCL CPU device of this machine, PoCL before others.

    Raises `RuntimeUnavailableError` where pyopencl or a CPU platform is missing.  PoCL uses all
    cores; the environment variable POCL_MAX_PTHREAD_COUNT, set before the first use of OpenCL in
    the process, limits them.
    """

    def __init__(self) -> None:
        self.opencl = _import()
        self.device = _cpu_device(self.opencl)
        self.context = self.opencl.Context([self.device])
        profiling = self.opencl.command_queue_properties.PROFILING_ENABLE
        self.queue = self.opencl.CommandQueue(self.context, properties=profiling)
        self.plain_queue = self.opencl.CommandQueue(self.context)

    @property
    def description(self) -> str:
        """Platform, driver and device, as they call themselves."""
        platform = self.device.platform
        return f"{platform.name} {self.device.driver_version} on {self.device.name}"

    def compile(self, text: str, options: Sequence[str] = ()) -> Module:
        """Build `text`; raises `BuildError` with the compiler's log."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = self.opencl.Program(self.context, text).build(list(options))
            except self.opencl.RuntimeError as error:
                raise BuildError(f"OpenCL build failed on {self.description}: {error}") from None
        return Module(program, self.opencl)

    def wrap(self, array: np.ndarray) -> Any:
        """A buffer over the array's own memory (C-contiguous); keep it as long as launches use it."""
        flags = self.opencl.mem_flags
        if array.nbytes == 0:
            return self.opencl.Buffer(self.context, flags.READ_WRITE, size=64)
        access = flags.READ_WRITE if array.flags.writeable else flags.READ_ONLY
        return self.opencl.Buffer(self.context, access | flags.USE_HOST_PTR, hostbuf=array)

    def set_arguments(self, kernel: Any, buffers: Sequence[Any]) -> None:
        for position, buffer in enumerate(buffers):
            kernel.set_arg(position, buffer)

    def launch(self, kernel: Any, blocks: int, threads: int, *, timed: bool = False) -> Launched:
        """Enqueue `blocks` groups of `threads` work-items with the arguments set before."""
        queue = self.queue if timed else self.plain_queue
        event = self.opencl.enqueue_nd_range_kernel(queue, kernel, (blocks * threads,), (threads,))
        return Launched(event)

    def finish(self) -> None:
        """Wait for everything enqueued."""
        self.plain_queue.finish()
        self.queue.finish()


def _import() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise RuntimeUnavailableError(f"pyopencl is missing ({error}); {INSTALL}") from None
    return pyopencl


def _cpu_device(opencl: Any) -> Any:
    with _LOCK:
        try:
            platforms = opencl.get_platforms()
        except opencl.LogicError as error:
            raise RuntimeUnavailableError(f"no OpenCL platform ({error}); {INSTALL}") from None
        found = [d for p in platforms for d in p.get_devices() if d.type & opencl.device_type.CPU]
        if not found:
            names = [p.name for p in platforms]
            raise RuntimeUnavailableError(f"no OpenCL CPU device among the platforms {names}; {INSTALL}")
        found.sort(key=lambda d: d.platform.name != "Portable Computing Language")
        if found[0].platform.name == "Portable Computing Language":
            mend_cpu_name(found[0].int_ptr)
        return found[0]
