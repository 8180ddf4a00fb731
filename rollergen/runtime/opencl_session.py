"""Sessions on an OpenCL device with memory of its own: host arrays by guarded copies, buffers as they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.errors import DeviceError
from rollergen.gate.arrays import READ_PATTERNS
from rollergen.hal.runtimes.opencl_buffers import BufferModule, BufferRuntime
from rollergen.runtime.session import Reading

IN_A_ROW_S = 1e-3
"""Of one reading, so that what a clock's steps are does not count."""
MOST_LAUNCHES = 256
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


class OpenCLSession:
    """The launches of a program on one device.

    With arrays that were set, `run` waits, and after `set` brings the copies back once.  With buffers alone (`point`,
    `enqueue`) nothing waits.
    """

    def __init__(self, runtime: BufferRuntime, module: BufferModule, launches: Sequence[Launch]) -> None:
        self._runtime = runtime
        kernels = [(launch, module.kernel(launch.entry)) for launch in launches]
        self._once = [pair for pair in kernels if pair[0].once]
        self._each = [pair for pair in kernels if not pair[0].once]
        self._slots: dict[str, list[tuple[Any, int]]] = {}
        for launch, kernel in kernels:
            for position, name in enumerate(launch.arguments):
                self._slots.setdefault(name, []).append((kernel, position))
        self._set: dict[str, _Copy] = {}
        self._fresh = False
        self._in_a_row: int | None = None

    def set(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            one = self._set[name] = _Copy(self._runtime, array)
            self.point({name: one.buffer})
        self._fresh = True

    def point(self, buffers: Mapping[str, Any]) -> None:
        """Buffers of the device's context; launches keep them."""
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

    def prepare(self) -> None:
        """None: host arrays are copied at every call."""

    def event_seconds(self) -> float:
        return self.reading(None).event_s

    def reading(self, sweep: Callable[[], None] | None) -> Reading:
        return self._read(1 if sweep is not None else self._calls_in_a_row(), sweep)

    def repeat(self, calls: int, sweep: Callable[[], None] | None) -> float:
        most = 1 if sweep is not None else min(calls, self._most_calls())
        readings = [self._read(most, sweep) for _ in range(-(-calls // most))]
        return sum(one.wall_s for one in readings) / len(readings)

    def _calls_in_a_row(self) -> int:
        """So many that they take the device `IN_A_ROW_S`, told from one of them."""
        if self._in_a_row is None:
            seconds = max(self._read(1, None).event_s, 1e-9)
            self._in_a_row = max(1, min(self._most_calls(), ceil(IN_A_ROW_S / seconds)))
        return self._in_a_row

    def _most_calls(self) -> int:
        return max(1, MOST_LAUNCHES // max(1, len(self._each)))

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
        return Reading(seconds / calls, seconds / calls)

    def _launch(self, launches: Sequence[tuple[Launch, Any]], queue: Any = None, timed: bool = False) -> list[Any]:
        return [
            self._runtime.launch(kernel, launch.blocks, launch.threads, timed=timed, queue=queue)
            for launch, kernel in launches
        ]
