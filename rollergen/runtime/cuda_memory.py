"""The memory of a GPU: arrays of a check stay there, and kernels (`cuda_kernels.py`) compare them.

What is copied: inputs once, then the places and the values of sampled elements, and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.values import Buffer
from rollergen.gate.arrays import pattern_of, poison_bits, touched, zone_bytes
from rollergen.gate.differences import allowance
from rollergen.gate.memory import Places, Points, Tolerance, Traffic, chosen_ranks
from rollergen.hal.dataclass import dataclass
from rollergen.runtime.cuda_kernels import FIGURES, THREADS, WHOLES, kernels_text

MOST_BLOCKS = 1024
"""Of a launch, which bounds what it counts; more than a GPU runs at a time."""

_LEAST_CHUNK = 4096
"""Elements of a block of `tally`: fewer blocks, and so fewer counts, for small arrays."""

_RULE = np.dtype([(name, np.uint64) for name in WHOLES] + [(name, np.float64) for name in FIGURES])


@dataclass(slots=True)
class DeviceArray:
    """An array on the device.  ``part``: its bytes, which CuPy keeps.  ``seal``: of an input, the fingerprint of what
    was written there."""

    part: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    seal: int = 0

    @property
    def address(self) -> int:
        return int(self.part.data.ptr)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class DeviceZone:
    """``array`` between two zones of bytes that are filled with ``pattern``."""

    array: DeviceArray
    before: Any
    after: Any
    pattern: int

    def reset(self) -> None:
        for zone in (self.before, self.after):
            zone.fill(self.pattern)


class CudaMemory:
    """The memory of a `CudaRuntime`'s GPU.  All work is done in the current stream.  For one thread at a time."""

    leads = 0, ARGUMENT_BYTES
    """Arrays of CuPy and torch begin at multiples of 512 bytes (both allocators).  An H100 takes up to 1.7 times as
    long where they begin 16 bytes behind one: a product of 8192^3 by wgmma 2.56 ms for 1.53."""

    def __init__(self, runtime: Any) -> None:
        self._runtime, self.traffic = runtime, Traffic()
        self.name = f"{runtime.gpu.name}'s memory"
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}

    def free_bytes(self) -> int:
        """Free bytes of the device; CuPy's pool gives back what it does not use."""
        self._runtime.cupy.get_default_memory_pool().free_all_blocks()
        return int(self._runtime.cupy.cuda.runtime.memGetInfo()[0])

    def guarded(
        self, buffers: Iterable[Buffer], lead_bytes: int = 0, variant: int = 0
    ) -> dict[str, DeviceZone]:
        return {one.name: self._guarded(one, lead_bytes, variant) for one in buffers}

    def _guarded(self, buffer: Buffer, lead_bytes: int, variant: int) -> DeviceZone:
        kind = numpy_dtype(buffer.dtype)
        size = buffer.elements * kind.itemsize
        lead, zone = 0 if buffer.kind == "temporary" else lead_bytes, zone_bytes(size)
        whole = self._runtime.empty(lead + size + 2 * zone)[lead:]
        inside = DeviceArray(whole[zone : zone + size], buffer.shape, kind)
        pattern = pattern_of(buffer.dtype, buffer.kind == "input", variant)
        made = DeviceZone(inside, whole[:zone], whole[zone + size :], pattern)
        made.reset()
        return made

    def empty(self, buffer: Buffer) -> DeviceArray:
        kind = numpy_dtype(buffer.dtype)
        return DeviceArray(self._runtime.empty(buffer.elements * kind.itemsize), buffer.shape, kind)

    def write(self, array: DeviceArray, values: np.ndarray) -> None:
        if array.size and not any(values.strides):  # all elements are the first
            self._fill(array, int(_bits(np.ascontiguousarray(values.reshape(-1)[:1]))[0]))
        elif array.size:
            self._send(array.part, values)
        self._seal(array)

    def scatter(self, array: DeviceArray, offsets: np.ndarray, values: np.ndarray) -> None:
        converted = np.empty(len(offsets), array.dtype)
        converted[...] = values
        self._launch(array.dtype, "scatter", _blocks(len(offsets)), array, self._places(offsets), self._sent(converted))
        self._seal(array)

    def gather(self, array: DeviceArray, where: Points) -> np.ndarray:
        offsets = np.ravel_multi_index(np.broadcast_arrays(*where), array.shape) if where else np.zeros(1, np.int64)
        offsets = np.reshape(offsets, -1)
        if not offsets.size:
            return np.empty(0, array.dtype)
        values = self._runtime.empty(offsets.size * array.dtype.itemsize)
        self._launch(array.dtype, "gather", _blocks(offsets.size), array, self._places(offsets), values)
        return self._fetched(values).view(array.dtype)

    def copy(self, array: DeviceArray) -> DeviceArray:
        return DeviceArray(array.part.copy(), array.shape, array.dtype)

    def poison(self, array: DeviceArray, variant: int) -> None:
        self._fill(array, poison_bits(array.dtype.name, variant))

    def unequal(
        self, a: DeviceArray, b: DeviceArray, tolerance: Tolerance | None = None, unless: int | None = None
    ) -> Places:
        rule = _rule(a.size)
        if unless is not None:
            rule["skipped"], rule["left"] = 1, poison_bits(a.dtype.name, unless)
        rule["everywhere"] = tolerance is not None and tolerance.everywhere
        counts, squares = self._tally(a, b, rule)
        if tolerance is not None and counts.any():
            among = a.size if tolerance.everywhere else int(counts.sum())
            _judge(rule, tolerance, a.dtype.name, sqrt(float(squares.sum()) / among))
            counts, _ = self._tally(a, b, rule)
        return self._found(a, b, rule, counts)

    def unwritten(self, a: DeviceArray, b: DeviceArray, variants: tuple[int, int]) -> Places:
        rule, name = _rule(a.size), a.dtype.name
        rule["unwritten"], rule["left"], rule["right"] = 1, *(poison_bits(name, variant) for variant in variants)
        return self._found(a, b, rule, self._tally(a, b, rule)[0])

    def damages(self, zones: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        several = list(zones.items())
        if not several:
            return
        rows = [(part.data.ptr, part.nbytes, z.pattern) for _, z in several for part in (z.before, z.after)]
        counts = self._runtime.empty(8 * len(rows))
        self._launch(np.dtype(np.int8), "touched", len(rows), self._sent(np.array(rows, np.uint64)), counts)
        hits = self._fetched(counts).view(np.int64).reshape(-1, 2).sum(axis=1).tolist()
        for (name, zone), hit in zip(several, hits, strict=True):
            if hit:
                text = touched(self._fetched(zone.before), self._fetched(zone.after), zone.pattern)
                zone.reset()
                yield name, text or "written to, and made good again meanwhile"

    def changed(self, zones: Mapping[str, Any], pristine: Mapping[str, np.ndarray]) -> list[str]:
        seals = self._fingerprints([zones[name].array for name in pristine])
        return [name for name, seal in zip(pristine, seals, strict=True) if seal != zones[name].array.seal]

    def _seal(self, array: DeviceArray) -> None:
        (array.seal,) = self._fingerprints([array])

    def _fingerprints(self, arrays: Sequence[DeviceArray]) -> list[int]:
        if not arrays:
            return []
        sums = self._runtime.empty(8 * len(arrays))
        sums.fill(0)
        for number, array in enumerate(arrays):
            if array.size:
                count = self._sent(np.array([array.size], np.uint64))
                into = sums[8 * number : 8 * number + 8]
                self._launch(array.dtype, "fingerprint", _blocks(array.size), array, count, into)
        return [int(one) for one in self._fetched(sums).view(np.uint64)[: len(arrays)]]

    def _fill(self, array: DeviceArray, bits: int) -> None:
        if array.size:
            what = self._sent(np.array([array.size, bits], np.uint64))
            self._launch(array.dtype, "fill", _blocks(array.size), array, what)

    def _tally(self, a: DeviceArray, b: DeviceArray, rule: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each chunk, how many elements are found and the sum of squares."""
        blocks = -(-a.size // int(rule["chunk"][0]))
        if not blocks:
            return np.zeros(0, np.int64), np.zeros(0)
        both = self._runtime.empty(16 * blocks)
        self._launch(a.dtype, "tally", blocks, a, b, self._sent(rule), both[: 8 * blocks], both[8 * blocks :])
        found = self._fetched(both)
        return found[: 8 * blocks].view(np.int64), found[8 * blocks : 16 * blocks].view(np.float64)

    def _found(self, a: DeviceArray, b: DeviceArray, rule: np.ndarray, counts: np.ndarray) -> Places:
        """Where they are, from how many there are in each chunk."""
        ranks, ends = chosen_ranks(int(counts.sum())), np.cumsum(counts)
        if not ranks.size:
            return Places(0, ranks)
        chunks = np.searchsorted(ends, ranks, side="right")
        wanted = np.stack([chunks, ranks - (ends - counts)[chunks]], axis=1)
        places = self._runtime.empty(8 * ranks.size)
        self._launch(a.dtype, "nth", ranks.size, a, b, self._sent(rule), self._sent(wanted), places)
        return Places(int(ends[-1]), self._fetched(places).view(np.int64))

    def _places(self, offsets: np.ndarray) -> Any:
        return self._sent(np.concatenate([[len(offsets)], offsets]).astype(np.int64))

    def _launch(self, dtype: np.dtype[Any], entry: str, blocks: int, *arguments: Any) -> None:
        """Arguments: arrays of the device, which may be let go of: their memory is used again in this stream only."""
        kernel = self._kernel(dtype.name, entry)
        addresses = [one.address if isinstance(one, DeviceArray) else one.data.ptr for one in arguments]
        self._runtime.set_arguments(kernel, addresses)
        self._runtime.launch(kernel, blocks, THREADS)

    def _kernel(self, dtype: str, entry: str) -> Any:
        if dtype not in self._modules:
            self._modules[dtype] = self._runtime.compile(kernels_text(dtype))
        if (dtype, entry) not in self._kernels:
            self._kernels[dtype, entry] = self._modules[dtype].kernel(entry)
        return self._kernels[dtype, entry]

    def _sent(self, values: np.ndarray) -> Any:
        """A copy on the device."""
        part = self._runtime.empty(values.nbytes)
        self._send(part, values)
        return part

    def _send(self, part: Any, values: np.ndarray) -> None:
        part.set(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
        self.traffic.to_device += values.nbytes

    def _fetched(self, part: Any) -> np.ndarray:
        """Its bytes; waits for the stream."""
        found: np.ndarray = part.get()
        self.traffic.from_device += found.nbytes
        return found


def _blocks(elements: int) -> int:
    return min(MOST_BLOCKS, -(-elements // THREADS))


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _rule(elements: int) -> np.ndarray:
    """One ``Rule`` that finds elements whose bits differ."""
    rule = np.zeros(1, _RULE)
    rule["elements"], rule["chunk"] = elements, max(_LEAST_CHUNK, -(-elements // MOST_BLOCKS))
    return rule


def _judge(rule: np.ndarray, tolerance: Tolerance, dtype: str, least: float) -> None:
    """Only what lies beyond the tolerance; ``least``: root mean square of the values that errors are in scale with."""
    rule["judged"], rule["exact"], rule["least"] = 1, tolerance.exact or not tolerance.variance, least
    rule["margin"], rule["unit"], rule["tiny"] = allowance(tolerance.variance, dtype)
