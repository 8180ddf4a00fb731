"""Sessions on a GPU: device arrays by their address, host arrays by guarded copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.errors import DeviceError
from rollergen.gate.arrays import READ_PATTERNS
from rollergen.runtime.cuda_memory import DeviceArray
from rollergen.runtime.device_session import DeviceSession
from rollergen.runtime.session import Reading

HOST_BOUND = "the host launched more slowly than the GPU computed, so that its times are the host's"

ALIGNMENT_BYTES = 256
"""CUDA aligns allocations to as much; also the zones before and behind a copy, which begins aligned itself."""


_PATTERN = READ_PATTERNS[0]


class _Copy:
    """A host array's copy on the device, between zones of one byte that must stay as they are."""

    def __init__(self, runtime: Any, array: np.ndarray) -> None:
        self.array, self._lead = array, ALIGNMENT_BYTES
        self._whole = runtime.empty(self._lead + array.nbytes + ALIGNMENT_BYTES)
        self._whole.fill(_PATTERN)
        self._part = self._whole[self._lead : self._lead + array.nbytes]
        if array.nbytes:
            self._part.set(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self.address: int = self._whole.data.ptr + self._lead

    def read(self, name: str) -> None:
        """Brings the contents back.  DeviceError where a zone was written to."""
        whole = self._whole.get()
        end = self._lead + self.array.nbytes
        zones = np.concatenate([whole[: self._lead], whole[end:]])
        if np.any(zones != _PATTERN):
            raise DeviceError(f"{int(np.sum(zones != _PATTERN))} bytes were written outside {name}")
        if self.array.nbytes and self.array.flags.writeable:
            self.array.reshape(-1).view(np.uint8)[...] = whole[self._lead : end]


class CudaSession(DeviceSession):
    """The launches of a program on the stream that is current when they are made.

    After `point` alone nothing waits for the device; with arrays that were set `run` does, and after `set` brings the
    copies of host arrays back once.
    """

    def __init__(self, runtime: Any, module: Any, launches: Sequence[Launch]) -> None:
        self._runtime = runtime
        runtime.bind_thread()
        make = lambda one: module.kernel(one.entry, len(one.arguments) + len(one.sizes), one.dynamic_bytes, one.maps)
        super().__init__([(launch, make(launch)) for launch in launches])
        self._set: dict[str, _Copy | DeviceArray] = {}
        self._fresh = False

    def set(self, arrays: Mapping[str, np.ndarray | DeviceArray]) -> None:
        """Host arrays are copied to the device, its own are used in place."""
        for name, array in arrays.items():
            one = self._set[name] = array if isinstance(array, DeviceArray) else _Copy(self._runtime, array)
            self._point(name, one.address)
        self._fresh = True

    def point(self, arrays: Mapping[str, Any]) -> None:
        """Arrays of the device: CuPy's, which are kept, or the address of the first element, whose owner keeps it."""
        for name, array in arrays.items():
            self._point(name, array)

    def _point(self, name: str, array: Any) -> None:
        for kernel, position in self._slots.get(name, ()):
            kernel.set_arg(position, array)

    def release(self, names: Iterable[str]) -> None:
        for name in names:
            self._set.pop(name, None)
            self._point(name, 0)

    def once(self) -> None:
        self._launch(self._once)

    def run(self) -> None:
        self._launch(self._each)
        if self._set:
            self._runtime.finish()
        if self._fresh:
            self._fresh = False
            for name, one in self._set.items():
                if isinstance(one, _Copy):
                    one.read(name)

    def setters(self) -> dict[str, list[tuple[Callable[[int, int], None], int]]]:
        """For each array (set_address, place) wherever a launch takes it."""
        found = lambda slots: [(kernel.set_address, kernel.places[at]) for kernel, at in slots]
        return {name: found(slots) for name, slots in self._slots.items()}

    def launches_on(self, stream: int) -> Callable[[], None]:
        """What makes the launches of a call on a stream, one after the other, with the addresses set last."""
        each = [self._runtime.launching(kernel, one.blocks, one.threads, stream) for one, kernel in self._each]
        if len(each) == 1:
            return each[0]

        def run() -> None:
            for launch in each:
                launch()

        return run

    def _read(self, calls: int, sweep: Callable[[], None] | None) -> Reading:
        """Of calls whose launches follow each other on a stream that is held until all are enqueued."""

        def enqueue() -> None:
            for _ in range(calls):
                self._launch(self._each)

        seconds, late = self._runtime.held.seconds(enqueue, sweep or (lambda: None))
        return Reading(seconds / calls, seconds / calls, HOST_BOUND if late else "")

    def _launch(self, launches: Sequence[tuple[Launch, Any]]) -> None:
        for launch, kernel in launches:
            self._runtime.launch(kernel, launch.blocks, launch.threads)
