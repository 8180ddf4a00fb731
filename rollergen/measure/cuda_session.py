"""Sessions on a GPU: device arrays by their address, host arrays by guarded copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.errors import DeviceError
from rollergen.measure.arrays import READ_PATTERNS
from rollergen.measure.cuda_memory import DeviceArray

ALIGNMENT_BYTES = 256
"""CUDA aligns allocations to as much; also the zone beside a copy."""


_PATTERN = READ_PATTERNS[0]


class _Copy:
    """A host array's copy on the device, between zones of one byte that must stay as they are."""

    def __init__(self, runtime: Any, array: np.ndarray) -> None:
        self.array, self._lead = array, ALIGNMENT_BYTES + array.ctypes.data % ALIGNMENT_BYTES
        self._whole = runtime.empty(self._lead + array.nbytes + ALIGNMENT_BYTES)
        self._whole.fill(_PATTERN)
        self._part = self._whole[self._lead : self._lead + array.nbytes]
        if array.nbytes:
            self._part.set(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self.address = np.uint64(self._whole.data.ptr + self._lead)

    def read(self, name: str) -> None:
        """Brings the contents back.  DeviceError where a zone was written to."""
        whole = self._whole.get()
        end = self._lead + self.array.nbytes
        zones = np.concatenate([whole[: self._lead], whole[end:]])
        if np.any(zones != _PATTERN):
            raise DeviceError(f"{int(np.sum(zones != _PATTERN))} bytes were written outside {name}")
        if self.array.nbytes and self.array.flags.writeable:
            self.array.reshape(-1).view(np.uint8)[...] = whole[self._lead : end]


class CudaSession:
    """The launches of a program on the stream that is current when they are made.

    After `point` alone nothing waits for the device; with arrays that were set `run` does, and after `set` brings the
    copies of host arrays back once.
    """

    def __init__(self, runtime: Any, module: Any, launches: Sequence[Launch]) -> None:
        self._runtime = runtime
        kernels = [(launch, module.kernel(launch.entry)) for launch in launches]
        self._once = [pair for pair in kernels if pair[0].once]
        self._each = [pair for pair in kernels if not pair[0].once]
        self._slots: dict[str, list[tuple[Any, int]]] = {}
        for launch, kernel in kernels:
            for position, name in enumerate(launch.arguments):
                self._slots.setdefault(name, []).append((kernel, position))
        self._set: dict[str, _Copy | DeviceArray] = {}
        self._fresh = False

    def set(self, arrays: Mapping[str, np.ndarray | DeviceArray]) -> None:
        """Host arrays are copied to the device, its own are used in place."""
        for name, array in arrays.items():
            one = self._set[name] = array if isinstance(array, DeviceArray) else _Copy(self._runtime, array)
            self._point(name, one.address)
        self._fresh = True

    def point(self, addresses: Mapping[str, int]) -> None:
        """Arrays of the device, by the address of their first element; their owners keep them."""
        for name, address in addresses.items():
            self._point(name, np.uint64(address))

    def _point(self, name: str, address: np.uint64) -> None:
        for kernel, position in self._slots.get(name, ()):
            kernel.set_arg(position, address)

    def release(self, names: Iterable[str]) -> None:
        for name in names:
            self._set.pop(name, None)

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

    def prepare(self) -> None:
        """None: host arrays are copied at every call."""

    def event_seconds(self, flushed: bool = False) -> float:
        """``flushed``: each launch finds the L2 cache full of something else; else as the one before left it."""
        launched = []
        for launch, kernel in self._each:
            if flushed:
                self._runtime.flush()
            launched.append(
                self._runtime.launch(
                    kernel, launch.blocks, launch.threads, timed=True, dynamic_bytes=launch.dynamic_bytes
                )
            )
        self._runtime.finish()
        return float(sum(one.seconds() for one in launched))

    def _launch(self, launches: Sequence[tuple[Launch, Any]]) -> None:
        for launch, kernel in launches:
            self._runtime.launch(kernel, launch.blocks, launch.threads, dynamic_bytes=launch.dynamic_bytes)
