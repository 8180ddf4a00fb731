"""Micro-benchmarks of an OpenCL device with memory of its own: peaks, bandwidths by access width, banks, latencies,
launches, copies.

Each is a `Meter`, compiled once and read as often as its reader likes.  A launch is given more steps of a loop, or more
blocks, until it takes `LEAST_S`.  Times are the device's, or the host's where events tell nothing.  OpenCL has no clock
of the units: what is counted in clocks stands on the clock that the driver tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError
from rollergen.hal.probes.cuda_microbench import STRIDES, ring
from rollergen.hal.probes.meters import Meter
from rollergen.hal.probes.microbench import Figure
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.spec import Instruction

CHAINS = 8
"""Independent accumulators of a thread, or loads on their way."""
WIDTHS = (1, 2, 4)
"""Floats that one load reads."""
LOADS = 16
"""Loads or stores of a thread, each beside those of the other threads of its block.  There is no loop about them: a CPU
takes one thread's steps after the other, each in another page (so read, PoCL's memory seemed to give 4 GB/s of 25)."""
DEPENDENT_LOADS = 64
"""Dependent loads of a step."""
OFTEN = 0.1
"""The share of the rounds that reach a memory's rate: now and then others leave a shared machine's memory alone for
seconds (30 to 41 GB/s at best in six runs, where a tenth of the rounds reached 28.6 to 31)."""
LAUNCHES = 4
"""Of a reading that has its buffers in a new place, the quickest of so many counts."""
LEAST_S = 4e-3
BY_HOST_S = 4
"""So many times as long where the host's clock counts a launch's overhead too."""
MOST_STEPS = 1 << 15
"""Llvmpipe leaves loops after 65,535 steps in all (LP_MAX_TGSI_LOOP_ITERATIONS of Mesa): its chases seemed to take 0.05
clocks a load."""
_GROWS = 1.5
"""A launch whose steps are what takes time takes so many times as long as one of half of them.  Without, a first launch
that waited ended the search: two probes of rusticl, by the host's clock, gave 0.945 and 7.35 multiply-adds a clock."""
ROWS_S = 200e-3
"""So long launches are timed for one reading: the quickest row of a quarter of it was 2.2 to 3 us (Intel)."""
_AT = "get_global_id(0)"

_PEAKS = {
    ("float32", "float32", 1): ("float", "", "c{i} = c{i} * x + x;"),
    ("float64", "float64", 1): ("double", "cl_khr_fp64", "c{i} = c{i} * x + x;"),
    ("float16", "float16", 1): ("half2", "cl_khr_fp16", "c{i} = c{i} * x + x;"),
    ("int8", "int32", 4): (
        "int", "", "c{i} += as_char4(c{i}).x * as_char4(x).x + as_char4(c{i}).y * as_char4(x).y "
        "+ as_char4(c{i}).z * as_char4(x).z + as_char4(c{i}).w * as_char4(x).w;",
    ),
}  # fmt: skip
"""By dtype, its accumulator's and the products of one instruction: type, extension, one step of a chain."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that surely lie in each layer."""

    l1: int = 1 << 13
    l2: int = 1 << 18
    l3: int = 1 << 24
    dram: int = 1 << 27
    chased: int = 1 << 29
    """Of a chase through memory, a quarter of which it touches: 128 MiB would lie in a third level of 32."""
    near: int = 1 << 20
    """Of the regions of that chase, one after the other: the addresses of a region are translated together, as those of
    a kernel's tiles are.  Of a chase that leaps at random over all pages of 4 KiB the tables' misses are as much a part
    as the memory's, and two probes of PoCL were 16 % apart."""
    shared: int = 1 << 13


SIZES = Sizes()


class OpenCLBench:
    """The micro-benchmarks of one device with so many units at so many MHz, in blocks of `threads`."""

    def __init__(self, runtime: BufferRuntime, units: int, mhz: float, threads: int, sizes: Sizes = SIZES) -> None:
        self.runtime, self.units, self.mhz, self.threads, self.sizes = runtime, units, mhz, threads, sizes
        self.blocks = 4 * units

    def per_clock(self, one: Instruction) -> Meter:
        """How many of the instruction a unit completes in a clock; BuildError where the device has it not."""
        known = _PEAKS.get((one.dtype, one.accumulator_dtype, one.k))
        if known is None or one.is_matrix:
            raise BuildError(f"no micro-benchmark for {one.dtype} products summed in {one.accumulator_dtype}")
        kind, extension, step = known
        if extension and extension not in self.runtime.extensions:
            raise BuildError(f"{self.runtime.facts.name} has no {extension}")
        pragma = f"#pragma OPENCL EXTENSION {extension} : enable\n" if extension else ""
        value = "(half2)((half)in[0])" if kind == "half2" else f"({kind})in[0]"
        starts = " ".join(f"{kind} c{i} = x + ({kind})({i});" for i in range(CHAINS))
        summed = " + ".join(f"c{i}" for i in range(CHAINS))
        result = f"({summed}).x" if kind == "half2" else summed
        body = " ".join(step.format(i=i) for i in range(CHAINS))
        text = f"""{pragma}kernel void peak(global float *out, global const float *in, int steps) {{
  {kind} x = {value};
  {starts}
  for (int k = 0; k < steps; k++) {{ {body} }}
  out[{_AT}] = (float)({result});
}}
"""
        products = self.blocks * self.threads * CHAINS / (self.units * self.mhz * 1e6)
        return self._rate(text, "peak", products, self._out, self._zeros(64))

    def reading_gb_s(self, layer: str) -> dict[int, Meter]:
        """GB/s of the whole chip that reads a layer's working set again and again, by floats of a load."""
        size = getattr(self.sizes, layer)
        return {width: self._reading(layer, width, size) for width in WIDTHS}

    def _reading(self, layer: str, width: int, size: int) -> Meter:
        """Of l1 every block reads the same; else all blocks share the set."""
        vector = f"float{width}" if width > 1 else "float"
        count = size // (4 * width)
        loads = " + ".join(f"in[{at}]" for at in _spots(count))
        parts = " + ".join(f"sum.s{i}" for i in range(width)) if width > 1 else "sum"
        text = f"""kernel void reading(global float *out, global const {vector} *in, uint side) {{
  uint from = {"0" if layer == "l1" else self._part(count)};
  {vector} sum = {loads};
  float all = {parts};
  if (all == 0.5f) out[0] = all;
}}
"""
        made = partial(self._zeros, size // 4)
        return self._by_blocks(layer, text, "reading", 4 * width, size, self._out, made)

    def writing_gb_s(self) -> Meter:
        """GB/s of the whole chip that writes to memory, in vectors of four floats."""
        size, count = self.sizes.dram, self.sizes.dram // 16
        stores = " ".join(f"out[{at}] = (float4)(1, 2, 3, {i});" for i, at in enumerate(_spots(count)))
        text = f"""kernel void writing(global float4 *out, uint side) {{
  uint from = {self._part(count)};
  {stores}
}}
"""
        return self._by_blocks("dram", text, "writing", 16, size, partial(self._zeros, size // 4))

    def _part(self, count: int) -> str:
        """Where a block begins in a set of `count` vectors: one part further in each round of the set, so that no unit
        keeps the same part in its own cache."""
        return f"(get_group_id(0) + get_group_id(0) / {max(1, count // (LOADS * self.threads))}) * {LOADS} * side"

    def _by_blocks(self, layer: str, text: str, entry: str, width: int, size: int, *buffers: Any) -> Meter:
        """GB/s of blocks whose threads move `LOADS` vectors of so many bytes.  ``side``, the threads of a block, is an
        argument, so that no compiler sees which loads are of one address.  Memory is gone through once at least."""
        amount = 1e-9 * width * LOADS * self.blocks * self.threads
        side = np.uint32(self.threads)
        least = int(1e-9 * size / amount)
        rate = self._rate(text, entry, amount, *buffers, side, moves=layer != "l1", least=least)
        return replace(rate, share=OFTEN) if layer == "dram" else rate

    def shared_bytes_per_clock(self) -> dict[int, Meter]:
        """What a unit reads from shared memory in a clock, by the words between the lanes of a load."""
        return {stride: self._shared(stride) for stride in STRIDES if 4 * 32 * stride <= 4 * self.sizes.shared}

    def _shared(self, stride: int) -> Meter:
        words = 32 * stride
        loads = " ".join(f"a{i} += held[(at + k + {i}) & {words - 1}];" for i in range(CHAINS))
        text = f"""kernel void lanes(global int *out, int steps) {{
  local int held[{words}];
  for (int i = get_local_id(0); i < {words}; i += get_local_size(0)) held[i] = i;
  barrier(CLK_LOCAL_MEM_FENCE);
  int at = (get_local_id(0) & 31) * {stride};
  {" ".join(f"int a{i} = 0;" for i in range(CHAINS))}
  for (int k = 0; k < steps; k++) {{ {loads} }}
  out[{_AT}] = {" + ".join(f"a{i}" for i in range(CHAINS))};
}}
"""
        amount = 4.0 * CHAINS * self.blocks * self.threads / (self.units * self.mhz * 1e6)
        return self._rate(text, "lanes", amount, self._out)

    def latency_clocks(self, layer: str) -> Meter:
        """Clocks of one dependent load of a cache or of dram: each launch goes on where the last one ended, so that it
        meets nothing that is nearer because it was just read."""
        size, near = getattr(self.sizes, layer), None
        if layer == "dram":
            size, near = self.sizes.chased, self.sizes.near
        chain = ring(size, near)
        text = f"""kernel void chase(global int *out, global const int *next, int steps) {{
  int at = out[0];
  for (int k = 0; k < steps; k++) {{ {DEPENDENT_LOADS * "at = next[at]; "}}}
  out[0] = at;
}}
"""
        made = partial(self.runtime.wrap, chain)
        rate = self._rate(
            text, "chase", DEPENDENT_LOADS, self._zeros(1), made, blocks=1, threads=1, moves=layer != "l1"
        )
        return Meter(lambda: self.mhz * 1e6 / rate.read(), less=True)

    def launch_us(self, launches: int = 16) -> Meter:
        """Microseconds of one of several empty kernels in a row, by the host's clock: the quickest row of `ROWS_S`, for
        a driver's threads need some rows to be awake (PoCL: 1.8 us then, 3.5 to 12 before)."""
        kernel = self.runtime.compile("kernel void empty(global float *out) {}").kernel("empty")
        self.runtime.set_arguments(kernel, [self.runtime.empty(256)])

        def batch() -> float:
            start = time.perf_counter()
            for _ in range(launches):
                self.runtime.launch(kernel, 1, 1)
            self.runtime.finish()
            return (time.perf_counter() - start) / launches * 1e6

        def quickest() -> float:
            end, found = time.perf_counter() + ROWS_S, [batch()]
            while time.perf_counter() < end:
                found.append(batch())
            return min(found)

        return Meter(quickest, less=True)

    def copies_gb_s(self) -> dict[str, Meter]:
        """GB/s "to" the device and "back", of arrays in host memory."""
        size = self.sizes.dram // 8
        array, buffer = np.ones(size, np.uint8), self.runtime.empty(size)
        to, back = partial(self.runtime.write, buffer, 0, array), partial(self.runtime.read, buffer, 0, size)
        rate = lambda copy: lambda: size / 1e9 / _quickest(copy)
        return {way: Meter(rate(copy), share=OFTEN) for way, copy in (("to", to), ("back", back))}

    def _rate(
        self, text: str, entry: str, amount: float, *buffers: Any, blocks: int | None = None,
        threads: int | None = None, moves: bool = False, least: int | None = None,
    ) -> Meter:  # fmt: skip
        """`amount` a step over the seconds of a step; ``buffers``: each one, or what makes it.

        Steps are those of the kernel's loop, or, with the ``least`` of them, so many times as many blocks.

        ``moves``: those that are made are made anew for each reading.  Where their pages lie decides how fast they
        are read (PoCL on pages of 4 KiB: chases of 525 to 970 clocks, one buffer's 616 to 730), and the best place
        counts.
        """
        kernel = self.runtime.compile(text).kernel(entry)

        def place() -> None:
            self.runtime.set_arguments(kernel, [one() if callable(one) else one for one in buffers])

        place()
        blocks, threads = blocks or self.blocks, threads or self.threads

        def seconds(steps: int) -> float:
            if least is not None:
                return self.runtime.seconds(kernel, blocks * steps, threads)
            kernel.raw.set_arg(len(buffers), np.int32(steps))
            return self.runtime.seconds(kernel, blocks, threads)

        best = lambda steps: min(seconds(steps) for _ in range(3))  # a launch that waits for others seems long enough
        steps, enough = max(16, least or 0), LEAST_S * (1 if self.runtime.events_tell else BY_HOST_S)
        seconds(steps)
        while steps < MOST_STEPS:
            took = best(steps)
            if took >= enough and took >= _GROWS * best(steps // 2):  # else a launch is what is long
                break
            steps = min(MOST_STEPS, steps * max(2, min(16, int(1.2 * enough / took))))

        def read() -> float:
            if moves:
                place()
                seconds(steps)  # the first launch may be the one that brings pages there
            return amount * steps / min(seconds(steps) for _ in range(LAUNCHES if moves else 1))

        return Meter(read)

    @cached_property
    def _out(self) -> Any:
        return self.runtime.empty(4 * self.blocks * self.threads)

    def _zeros(self, floats: int) -> Any:
        buffer = self.runtime.empty(4 * floats)
        self.runtime.fill(buffer, 0, 4 * floats, 0)
        return buffer


def _spots(count: int) -> list[str]:
    """Where a thread's vectors lie in a set of `count`: what differs between blocks is the same for all threads of one,
    so that compilers for CPUs see vectors side by side."""
    return [f"((from + {i} * side) & {count - 1}) + get_local_id(0)" for i in range(LOADS)]


def widest(rates: Mapping[int, Figure]) -> int:
    """The access width of the highest of the rates."""
    return max(rates, key=lambda width: rates[width].value)


def _quickest(run: Callable[[], object]) -> float:
    found = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)
