"""OpenCL devices with memory of their own: buffers, copies, launches in order, times by the device's events.

Any device may be opened so, a CPU too: it then works on copies, as a GPU does.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rollergen.hal.errors import BuildError
from rollergen.hal.runtimes.opencl_devices import Present
from rollergen.hal.runtimes.opencl_platforms import POCL, QUIET, import_pyopencl, make_ready
from rollergen.hal.runtimes.opencl_runtime import Kernel, Launched
from rollergen.hal.runtimes.protocol import POCL_PRIVATE_BYTES, LaunchLimits

_LEAST_ALIGNED = 256
"""Bytes, beside what the device asks for; also the least zone beside a copy."""

_LOOP = """kernel void loop(global float *x, int steps)
{
    float value = x[get_global_id(0)];
    for (int step = 0; step < steps; ++step) value = value * 1.0001f + 0.5f;
    x[get_global_id(0)] = value;
}
"""
_DOUBLE = r"(?m)^(?!\s*(?:/?\*|//)).*\bdouble\d*\b"
"""On a line that is no comment."""
_LOOP_S = 2e-3
"""So long a loop takes by the host's clock, at least, before its events are believed or not."""
_MOST_STEPS = 1 << 24
_EVENTS_AGREE = 0.01
"""A device's time of a long loop is no less than this share of the host's, who may be kept waiting on a busy machine;
of a driver that counts nothing it is a millionth (rusticl of Mesa 22: 1 ns always)."""


class BufferModule:
    """A compiled program for one device."""

    def __init__(self, program: Any, opencl: Any) -> None:
        self._program, self._opencl = program, opencl

    def kernel(self, entry: str) -> Kernel:
        """A new kernel object.  A block of more threads than the driver can launch of it is refused at the launch: what
        it says of that beforehand (CL_KERNEL_WORK_GROUP_SIZE) is too little on rusticl, which runs blocks of 64 where
        it says 32."""
        return Kernel(self._opencl.Kernel(self._program, entry))


class BufferRuntime:
    """One OpenCL device, by buffers.  ``context``: the caller's where arrays of it are to be used; None: a new one."""

    def __init__(self, facts: Present, device: Any, context: Any = None) -> None:
        make_ready(device)
        self.opencl = import_pyopencl()
        self.facts, self.device = facts, device
        self.context = context or self.opencl.Context([device])
        profiling = self.opencl.command_queue_properties.PROFILING_ENABLE
        self.queue = self.opencl.CommandQueue(self.context, device, properties=profiling)

    @property
    def description(self) -> str:
        """Platform, driver and device, as they call themselves, and whose clock times are by."""
        clock = "" if self.events_tell else ", timed by the host's clock"
        return f"{self.facts.platform} {self.device.driver_version} on {self.facts.name} by buffers{clock}"

    @property
    def compiler(self) -> str:
        """The platform's version, in which implementations name their compiler."""
        return str(self.device.platform.version)

    @property
    def compiles_slowly(self) -> bool:
        """Compilers for CPUs take up to a second for a program; those of GPUs do not."""
        return "CPU" in self.facts.kinds

    @property
    def limits(self) -> LaunchLimits:
        private = POCL_PRIVATE_BYTES if self.facts.platform == POCL else None
        return LaunchLimits(int(self.device.max_work_group_size), int(self.device.local_mem_size), private)

    @property
    def alignment(self) -> int:
        """Bytes at multiples of which a part of a buffer may begin, and no less than what stands beside a copy."""
        return max(_LEAST_ALIGNED, int(self.device.mem_base_addr_align) // 8)

    @cached_property
    def extensions(self) -> frozenset[str]:
        """What the device can beyond the language."""
        return frozenset(self.device.extensions.split())

    @cached_property
    def events_tell(self) -> bool:
        """Whether events tell how long a kernel took: by a loop that the host's clock finds long."""
        kernel = self.compile(_LOOP).kernel("loop")
        self.set_arguments(kernel, [self.empty(256)])
        steps = 1 << 10
        while True:
            kernel.raw.set_arg(1, np.int32(steps))
            seconds, told = min(self._by_both_clocks(kernel) for _ in range(3))  # a delay of the host is not the loop's
            if (seconds >= _LOOP_S and steps > 1 << 10) or steps >= _MOST_STEPS:
                return told >= _EVENTS_AGREE * seconds
            steps *= 4

    def _by_both_clocks(self, kernel: Kernel) -> tuple[float, float]:
        """Seconds of a launch by the host's clock and by its events."""
        self.finish()
        start = time.perf_counter()
        launched = self.launch(kernel, 1, 64, timed=True)
        self.finish()
        return time.perf_counter() - start, launched.seconds()

    def compile(self, text: str, options: Sequence[str] = ()) -> BufferModule:
        """Raises BuildError with the compiler's log, and for text in double where the device has none."""
        if re.search(_DOUBLE, text) and "cl_khr_fp64" not in self.extensions:
            raise BuildError(
                f"the source computes in double, and {self.facts} has no cl_khr_fp64; expected a spec without an "
                "instruction for float64, for which such an expression is refused"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = self.opencl.Program(self.context, text).build([QUIET, *options], devices=[self.device])
            except self.opencl.Error as error:
                raise BuildError(f"OpenCL build failed on {self.facts}: {error}") from None
        return BufferModule(program, self.opencl)

    def empty(self, size: int) -> Any:
        """So many bytes on the device (1 at least).  MemoryError where it has not got them."""
        most = int(self.device.max_mem_alloc_size)
        if size > most:
            raise MemoryError(
                f"{size} bytes asked for, {self.facts} gives {most} at most (CL_DEVICE_MAX_MEM_ALLOC_SIZE)"
            )
        try:
            return self.opencl.Buffer(self.context, self.opencl.mem_flags.READ_WRITE, size=max(size, 1))
        except self.opencl.MemoryError as error:
            raise MemoryError(f"{size} bytes asked for on {self.facts}: {error}") from None

    def wrap(self, array: np.ndarray) -> Any:
        """A copy of a C-contiguous array on the device."""
        buffer = self.empty(array.nbytes)
        self.write(buffer, 0, array)
        return buffer

    def part(self, buffer: Any, start: int, size: int) -> Any:
        """Bytes of a buffer as a buffer; ``start`` is a multiple of `alignment`."""
        return buffer.get_sub_region(start, max(size, 1))

    def fill(self, buffer: Any, start: int, size: int, byte: int) -> None:
        if size:
            self.opencl.enqueue_fill_buffer(self.queue, buffer, np.uint8(byte), start, size)

    def write(self, buffer: Any, start: int, array: np.ndarray) -> None:
        """All bytes of an array; they are on their way when it returns, not later."""
        if array.nbytes:
            source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.opencl.enqueue_copy(self.queue, buffer, source, dst_offset=start, is_blocking=True)

    def read(self, buffer: Any, start: int, size: int) -> np.ndarray:
        """So many bytes, after all that was enqueued before."""
        found = np.empty(size, np.uint8)
        if size:
            self.opencl.enqueue_copy(self.queue, found, buffer, src_offset=start, is_blocking=True)
        return found

    def set_arguments(self, kernel: Kernel, buffers: Sequence[Any]) -> None:
        for position, buffer in enumerate(buffers):
            kernel.set_arg(position, buffer)

    def launch(self, kernel: Kernel, blocks: int, threads: int, *, timed: bool = False, queue: Any = None) -> Launched:
        """Enqueues, in ``queue`` or the runtime's own; launches of one queue run in order."""
        event = self.opencl.enqueue_nd_range_kernel(queue or self.queue, kernel.raw, (blocks * threads,), (threads,))
        return Launched(event)

    def seconds(self, kernel: Kernel, blocks: int, threads: int) -> float:
        """Of one launch and nothing else: the device's time, or the host's where events do not tell."""
        self.finish()
        start = time.perf_counter()
        launched = self.launch(kernel, blocks, threads, timed=True)
        self.finish()
        return max(1e-9, launched.seconds() if self.events_tell else time.perf_counter() - start)

    def finish(self) -> None:
        """Waits for everything in the runtime's own queue."""
        self.queue.finish()
