"""Sessions on an OpenCL device with memory of its own: host arrays by guarded copies, buffers as they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.errors import DeviceError
from rollergen.gate.arrays import READ_PATTERNS
from rollergen.hal.runtimes.opencl_buffers import BufferModule, BufferRuntime
from rollergen.runtime.device_session import DeviceSession
from rollergen.runtime.session import Reading

_PATTERN = READ_PATTERNS[0]


class _Copy:
    """A host array's copy on the device, between zones of one byte that must stay as they are."""

    def __init__(self, runtime: BufferRuntime, array: np.ndarray) -> None:
        self.array, self._runtime, self._zone = array, runtime, runtime.alignment
        self._whole = runtime.empty(array.nbytes + 2 * self._zone)
        runtime.fill(self._whole, 0, self._zone, _PATTERN)
        runtime.fill(self._whole, self._zone + array.nbytes, self._zone, _PATTERN)
        runtime.write(self._whole, self._zone, array)
        self.buffer = runtime.part(self._whole, self._zone, array.nbytes)

    def read(self, name: str) -> None:
        """Brings the contents back.  DeviceError where a zone was written to."""
        end = self._zone + self.array.nbytes
        whole = self._runtime.read(self._whole, 0, end + self._zone)
        touched = int(np.sum(whole[: self._zone] != _PATTERN) + np.sum(whole[end:] != _PATTERN))
        if touched:
            raise DeviceError(f"{touched} bytes were written outside {name}")
        if self.array.nbytes and self.array.flags.writeable:
            self.array.reshape(-1).view(np.uint8)[...] = whole[self._zone : end]


class OpenCLSession(DeviceSession):
    """The launches of a program on one device.

    With arrays that were set, `run` waits, and after `set` brings the copies back once.  With buffers alone (`point`,
    `enqueue`) nothing waits.
    """

    def __init__(self, runtime: BufferRuntime, module: BufferModule, launches: Sequence[Launch]) -> None:
        self._runtime = runtime
        super().__init__([(launch, module.kernel(launch.entry)) for launch in launches])
        self._set: dict[str, _Copy] = {}
        self._fresh = False

    def integer(self, size: int) -> Any:
        return np.int32(size)

    def set(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            if name not in self._slots:  # no launch takes it, such as one without elements
                continue
            one = self._set[name] = _Copy(self._runtime, array)
            self.point({name: one.buffer})
        self._fresh = True

    def point(self, buffers: Mapping[str, Any]) -> None:
        """Buffers of the device's context; kept until set again or released, which OpenCL's own outlive in a queue."""
        for name, buffer in buffers.items():
            for kernel, position in self._slots.get(name, ()):
                kernel.set_arg(position, buffer)

    def release(self, names: Iterable[str]) -> None:
        for name in names:
            self._set.pop(name, None)
            for kernel, position in self._slots.get(name, ()):
                kernel.drop_arg(position)

    def once(self) -> None:
        self._launch(self._once)
        self._runtime.finish()

    def run(self) -> None:
        self._launch(self._each)
        self._runtime.finish()
        if self._fresh:
            self._fresh = False
            for name, one in self._set.items():
                one.read(name)

    def enqueue(self, queue: Any, once: bool = False) -> list[Any]:
        """The launches of a call, or (`once`) of its constants, in a queue of the caller's; nobody waits."""
        return self._launch(self._once if once else self._each, queue)

    def _read(self, calls: int, sweep: Callable[[], None] | None) -> Reading:
        """The mean of calls in a row: the device's own time of their launches, or the host's where events do not tell
        it (`BufferRuntime.events_tell`)."""
        if sweep is not None:
            sweep()
        tell = self._runtime.events_tell
        start = time.perf_counter()
        launched = [one for _ in range(calls) for one in self._launch(self._each, timed=tell)]
        self._runtime.finish()
        seconds = sum(one.seconds() for one in launched) if tell else time.perf_counter() - start
        return Reading(seconds / calls, seconds / calls if tell else None)

    def _launch(self, launches: Sequence[tuple[Launch, Any]], queue: Any = None, timed: bool = False) -> list[Any]:
        return [
            self._runtime.launch(kernel, launch.blocks, launch.threads, timed=timed, queue=queue)
            for launch, kernel in launches
        ]
