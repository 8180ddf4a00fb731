"""Sessions on a GPU: device arrays by their address, host arrays by guarded copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.errors import DeviceError
from rollergen.measure.arrays import READ_PATTERNS, zone_bytes

ALIGNMENT_BYTES = 256
"""CUDA aligns allocations to as much; also the zone beside a copy of an ordinary call."""


class _Copy:
    """A host array's copy on the device, between zones of one byte that must stay as they are."""

    def __init__(self, runtime: Any, array: np.ndarray, zone: int, pattern: int) -> None:
        self.array, self._lead, self._pattern = array, zone + array.ctypes.data % ALIGNMENT_BYTES, pattern
        self._whole = runtime.empty(self._lead + array.nbytes + zone)
        self._whole.fill(pattern)
        self._part = self._whole[self._lead : self._lead + array.nbytes]
        if array.nbytes:
            self._part.set(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self.address = np.uint64(self._whole.data.ptr + self._lead)

    def read(self, name: str) -> None:
        """Brings the contents back.  DeviceError where a zone was written to."""
        whole = self._whole.get()
        end = self._lead + self.array.nbytes
        zones = np.concatenate([whole[: self._lead], whole[end:]])
        if np.any(zones != self._pattern):
            raise DeviceError(f"{int(np.sum(zones != self._pattern))} bytes were written outside {name}")
        if self.array.nbytes and self.array.flags.writeable:
            self.array.reshape(-1).view(np.uint8)[...] = whole[self._lead : end]


class CudaSession:
    """The launches of a program on the stream that is current when they are made.

    Without host arrays nothing waits for the device; with them `run` does, and after `set` brings the copies back once.
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
        self._copies: dict[str, _Copy] = {}
        self._fresh = False
        self._checks = 0

    def set(self, arrays: Mapping[str, np.ndarray], *, guarded: bool = False) -> None:
        """Copies host arrays to the device; those of a check between zones as its own arrays have, of other bytes each
        time."""
        pattern = READ_PATTERNS[self._checks % len(READ_PATTERNS)] if guarded else READ_PATTERNS[0]
        self._checks += guarded
        for name, array in arrays.items():
            zone = zone_bytes(array.nbytes) if guarded else ALIGNMENT_BYTES
            copy = self._copies[name] = _Copy(self._runtime, array, zone, pattern)
            self._point(name, copy.address)
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
            self._copies.pop(name, None)

    def once(self) -> None:
        self._launch(self._once)

    def run(self) -> None:
        self._launch(self._each)
        if self._copies:
            self._runtime.finish()
        if self._fresh:
            self._fresh = False
            for name, copy in self._copies.items():
                copy.read(name)

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
