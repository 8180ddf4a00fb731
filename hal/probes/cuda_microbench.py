"""Micro-benchmarks of a CUDA GPU: clock, peaks, bandwidths, latencies, banks, sectors, launches.

Times are the device's own between two events, or ticks of `clock64` in the kernel; the best of several rounds counts,
and the spread says how far the median round was off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from statistics import median
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.probes import cuda_microbench_text as text
from rollergen.hal.probes.microbench import Figure
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime, Module
from rollergen.hal.spec import Instruction

THREADS = 256
STRIDES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Words of 4 bytes between the lanes of a shared load."""
DISTANCES = (4, 8, 16, 32, 64, 128, 256)
"""Bytes between the words that are read from memory."""
SLOT_BYTES = 256
"""Of a pointer chase: beyond a line."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long the measuring is: ``steps`` of a loop, ``rounds`` of which the best counts, ``bytes`` that are read in
    one launch, ``launches`` in a row."""

    steps: int = 4096
    rounds: int = 12
    bytes: int = 1 << 30
    launches: int = 50


@dataclass(frozen=True, slots=True)
class WorkingSets:
    """Bytes that surely lie in each layer."""

    shared: int
    l1: int
    l2: int
    dram: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A kernel with its arguments, which it keeps alive."""

    runtime: CudaRuntime
    kernel: Any
    arrays: tuple[Any, ...]
    blocks: int

    def seconds(self) -> float:
        """The device's time of one launch."""
        launched = self.runtime.launch(self.kernel, self.blocks, THREADS, timed=True)
        self.runtime.finish()
        assert launched is not None  # it was timed
        return max(launched.seconds(), 1e-9)

    def best(self, amount: float, rounds: int) -> Figure:
        """`amount` over the least seconds; one untimed launch first."""
        self.seconds()
        return _most([amount / self.seconds() for _ in range(rounds)])


class CudaBench:
    """The micro-benchmarks of one GPU with so many units; everything but the peaks is compiled at once.

    Raises BuildError where the compiler refuses the text.
    """

    def __init__(self, runtime: CudaRuntime, units: int, sets: WorkingSets, effort: Effort) -> None:
        self.runtime, self.units, self.sets, self.effort = runtime, units, sets, effort
        self._module: Module = runtime.compile(kernels_text(units, sets, effort))

    def clock_mhz(self) -> Figure:
        """The clock of the units, all at work: ticks of a long chain over the event's time."""
        ticks, factor = self.runtime.wrap(np.zeros(self.units, np.int64)), self._zeros(64)
        one = self._ready("ticks", self.units, ticks, factor)
        one.seconds()
        rates = []
        for _ in range(self.effort.rounds):
            seconds = one.seconds()
            rates.append(float(ticks.get().max()) / seconds / 1e6)
        return _most(rates)

    def per_clock(self, one: Instruction, mhz: float) -> Figure:
        """How many of the instruction a unit starts in a clock; BuildError where compiler or GPU has it not."""
        peak = self._peak(one, self.effort.steps)
        together = one.lanes if one.is_matrix else 1
        started = peak.blocks * THREADS * text.CHAINS * self.effort.steps / together
        return peak.best(started / (self.units * mhz * 1e6), self.effort.rounds)

    def reading_gb_s(self, layer: str) -> Figure:
        """GB/s of the whole chip that reads the working set of l1, l2 or dram again and again."""
        vectors, passes, readers, blocks = _walk(self.units, getattr(self.sets, layer), layer, self.effort)
        data = self.runtime.empty(16 * vectors)
        data.fill(0)
        one = self._ready(f"reading_{layer}", blocks, self._out(blocks), data)
        return one.best(16e-9 * vectors * passes * readers, self.effort.rounds)

    def writing_gb_s(self) -> Figure:
        """GB/s of the whole chip that writes to memory."""
        vectors = _vectors(self.sets.dram)
        one = self._ready("writing", 16 * self.units, self.runtime.empty(16 * vectors))
        return one.best(16e-9 * vectors, self.effort.rounds)

    def shared_bytes_per_clock(self) -> dict[int, Figure]:
        """What one block of eight warps reads from shared memory in a clock, by the words between lanes."""
        return {stride: self._shared(stride) for stride in STRIDES}

    def seconds_apart(self) -> dict[int, Figure]:
        """Seconds in which as many words are read from memory, by the bytes between them."""
        count = _count(self.sets.dram)
        data, out = self.runtime.empty(count * max(DISTANCES)), self._out(16 * self.units)
        data.fill(0)
        rates = {
            apart: self._ready(f"strided_{apart}", 16 * self.units, out, data).best(1.0, self.effort.rounds)
            for apart in DISTANCES
        }
        return {apart: Figure(1 / rate.value, rate.spread) for apart, rate in rates.items()}

    def latency_clocks(self, layer: str) -> Figure:
        """Clocks of one dependent load from shared, l1, l2 or dram."""
        ticks = self.runtime.wrap(np.zeros(1, np.int64))
        chain = self.runtime.wrap(ring(getattr(self.sets, layer)))
        one = self._ready(f"chase_{layer}", 1, ticks, self.runtime.empty(4), chain)
        found = []
        for _ in range(min(self.effort.rounds, 5)):
            self.runtime.launch(one.kernel, 1, 1)
            self.runtime.finish()
            found.append(max(float(ticks.get()[0]) / self.effort.steps, 1e-3))
        return _least(found)

    def launch_us(self) -> Figure:
        """Microseconds from start to start of empty kernels, on a stream that is held until all are queued."""
        one = self._ready("empty", 1, self._out(1))

        def enqueue() -> None:
            for _ in range(self.effort.launches):
                self.runtime.launch(one.kernel, 1, 32)

        return _least([self._held_us(enqueue) / self.effort.launches for _ in range(self.effort.rounds)])

    def _held_us(self, enqueue: Callable[[], None]) -> float:
        seconds, _ = self.runtime.held.seconds(enqueue)
        return max(1e6 * seconds, 1e-3)

    def _shared(self, stride: int) -> Figure:
        ticks = self.runtime.wrap(np.zeros(self.units, np.int64))
        one = self._ready(f"banks_{stride}", self.units, ticks, self._out(self.units))
        rates = []
        for _ in range(self.effort.rounds):
            one.seconds()
            rates.append(THREADS * text.CHAINS * 4.0 * self.effort.steps / max(1.0, float(ticks.get().min())))
        return _most(rates)

    def _peak(self, one: Instruction, steps: int) -> Ready:
        blocks = 8 * self.units
        kernel = self.runtime.compile(text.peak_text("peak", one, steps)).kernel("peak")
        return self._with(kernel, blocks, self._out(blocks), self._zeros(64))

    def _ready(self, entry: str, blocks: int, *arrays: Any) -> Ready:
        return self._with(self._module.kernel(entry), blocks, *arrays)

    def _with(self, kernel: Any, blocks: int, *arrays: Any) -> Ready:
        self.runtime.set_arguments(kernel, arrays)
        return Ready(self.runtime, kernel, arrays, blocks)

    def _out(self, blocks: int) -> Any:
        return self.runtime.empty(4 * blocks * THREADS)

    def _zeros(self, count: int) -> Any:
        return self.runtime.wrap(np.zeros(count, np.float32))


def kernels_text(units: int, sets: WorkingSets, effort: Effort) -> str:
    """Every kernel but those of the peaks."""
    parts = [text.clock_text("ticks", 64 * effort.steps), text.empty_text("empty")]
    for layer in ("l1", "l2", "dram"):
        vectors, passes, _, _ = _walk(units, getattr(sets, layer), layer, effort)
        parts.append(text.reading_text(f"reading_{layer}", vectors, passes, layer == "l1"))
    parts.append(text.writing_text("writing", _vectors(sets.dram)))
    parts += [text.shared_text(f"banks_{stride}", stride, effort.steps) for stride in STRIDES]
    parts += [text.strided_text(f"strided_{apart}", _count(sets.dram), apart // 4) for apart in DISTANCES]
    for layer, how in {"shared": "shared", "l1": "cached", "l2": "beyond", "dram": "beyond"}.items():
        slots = _slots(getattr(sets, layer))
        parts.append(text.chase_text(f"chase_{layer}", slots * SLOT_BYTES // 4, slots, effort.steps, how))
    return "\n".join(parts)


def banks(bytes_per_clock: Mapping[int, Figure]) -> tuple[int, int]:
    """(banks, bytes of one) that the rates by stride show; (0, 0) where they show none.

    Lanes whose words fall on one bank are served one by one: the longest stride that costs nothing is one bank wide,
    and the first beyond which nothing more is lost passes all banks.
    """
    rates = {stride: bytes_per_clock[stride].value for stride in sorted(bytes_per_clock)}
    first = next(iter(rates.values()))
    wide = list(takewhile(lambda stride: rates[stride] > first / 1.25, rates))[-1]
    for one, further in zip(rates, list(rates)[1:], strict=False):
        if rates[one] < first / 4 and rates[further] > rates[one] / 1.25:
            return one // wide, 4 * wide
    return 0, 0


def sector_bytes(seconds: Mapping[int, Figure]) -> int:
    """The distance from which on a further one costs no more; 0 where none costs more, or all do."""
    apart = sorted(seconds)
    for at, one in enumerate(apart[:-1]):
        if all(seconds[further].value < 1.25 * seconds[one].value for further in apart[at + 1 :]):
            return one if at else 0
    return 0


def ring(size_bytes: int, near_bytes: int | None = None) -> np.ndarray:
    """int32 of a ring over all slots of 256 bytes in random order: entry i holds where to go next.

    ``near_bytes``: of regions, a divisor of the size, that are visited one after the other, at random as the slots in
    each are; None: the whole is one."""
    step, random = SLOT_BYTES // 4, np.random.default_rng(0)
    slots = _slots(size_bytes)
    near = _slots(near_bytes) if near_bytes else slots
    data = np.zeros(slots * step, np.int32)
    regions = [near * region + random.permutation(near) for region in random.permutation(slots // near)]
    order = np.concatenate(regions).astype(np.int64) * step
    data[order] = np.roll(order, -1)
    return data


def _walk(units: int, size: int, layer: str, effort: Effort) -> tuple[int, int, int, int]:
    """(vectors of 16 bytes, passes over them, blocks that each walk them all, blocks)."""
    blocks = 4 * units if layer == "l1" else 16 * units
    readers = blocks if layer == "l1" else 1
    return _vectors(size), max(1, effort.bytes // (size * readers)), readers, blocks


def _vectors(size: int) -> int:
    return max(THREADS, size // 16 // THREADS * THREADS)


def _count(size: int) -> int:
    return max(THREADS, size // max(DISTANCES) // THREADS * THREADS)


def _slots(size_bytes: int) -> int:
    return max(2, size_bytes // SLOT_BYTES)


def _most(rates: list[float]) -> Figure:
    return Figure(max(rates), max(rates) / median(rates) - 1)


def _least(values: list[float]) -> Figure:
    return Figure(min(values), median(values) / min(values) - 1)
