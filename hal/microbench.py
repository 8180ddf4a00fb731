"""Micro-benchmarks of an OpenCL CPU device: peak by dialect, clock, bandwidth by working set, launch cost.

Each figure is the best of several samples (noise only ever slows a run down), with the spread beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rollergen.hal.opencl_runtime import OpenCLRuntime


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value (unit in the name of the function that made it) and its relative spread."""

    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class Dialect:
    """How vector code is written: lanes of a float32 vector, and the attribute that every kernel carries."""

    lanes: int
    attribute: str


def dialects(widest_bits: int) -> tuple[Dialect, ...]:
    """What may compile well for a host with vectors of `widest_bits`, plainest first."""
    found = []
    for bits in (128, 256, 512):
        if bits <= widest_bits:
            found += [Dialect(bits // 32, ""), Dialect(bits // 32, f"__attribute__((min_vector_width({bits})))")]
    return tuple(found)


_VECTOR = "typedef float V{n} __attribute__((ext_vector_type({n}), aligned(4)));\n"


def _peak_kernel(name: str, dialect: Dialect, chains: int) -> str:
    """No call of get_group_id: PoCL then keeps the kernel a function of its own, which is where a missing
    attribute narrows the vectors."""
    vector = f"V{dialect.lanes}"
    start = " ".join(f"{vector} c{i} = ({vector})({i}.5f);" for i in range(chains))
    step = " ".join(f"c{i} = x * c{i} + y;" for i in range(chains))
    total = " + ".join(f"c{i}" for i in range(chains))
    return (
        f"kernel {dialect.attribute} __attribute__((reqd_work_group_size(1, 1, 1)))\n"
        f"void {name}(global float *out, global const float *in) {{\n"
        f"  {vector} x = ({vector})(in[0]), y = ({vector})(in[1]);\n  {start}\n"
        f"  for (int k = 0; k < {_PEAK_STEPS}; k++) {{ {step} }}\n"
        f"  *(global {vector} *)out = {total};\n}}\n"
    )


_PEAK_STEPS = 200_000
_CHAINS = (10, 12)
_CLOCK_STEPS = 2_000_000


def aligned_zeros(count: int, dtype: type) -> np.ndarray:
    """Zeros that start at a multiple of 64 bytes, so that no vector straddles two cache lines, in pages
    of their own (fresh zero pages would all be the same physical one, and read from a cache)."""
    size = np.dtype(dtype).itemsize
    raw: np.ndarray = np.zeros(count + 64 // size, dtype)
    start = (-raw.ctypes.data % 64) // size
    raw.fill(0)
    return raw[start : start + count]


def best_seconds(run: Callable[[], None], samples: int = 5) -> Figure:
    """Least wall time of `run` and the spread (median over least, minus 1)."""
    run()
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    times.sort()
    return Figure(times[0], times[len(times) // 2] / times[0] - 1)


def peak_gflop_s(runtime: OpenCLRuntime, candidates: tuple[Dialect, ...]) -> dict[Dialect, Figure]:
    """Multiply-adds of one core, in GFLOP/s (two operations each), for each way of writing them."""
    text = "".join(_VECTOR.format(n=n) for n in sorted({d.lanes for d in candidates}))
    names = {d: f"peak{i}" for i, d in enumerate(candidates)}
    for dialect, name in names.items():
        text += "".join(_peak_kernel(f"{name}_{chains}", dialect, chains) for chains in _CHAINS)
    module = runtime.compile(text)
    out, values = np.zeros(64, np.float32), np.array([0.5, 1.0], np.float32)
    found: dict[Dialect, Figure] = {}
    for dialect, name in names.items():
        for chains in _CHAINS:
            run = _runner(runtime, module.kernel(f"{name}_{chains}"), [out, values], 1)
            figure = best_seconds(run, 4)
            rate = 2 * dialect.lanes * chains * _PEAK_STEPS / figure.value / 1e9
            if dialect not in found or rate > found[dialect].value:
                found[dialect] = Figure(rate, figure.spread)
    return found


def _runner(runtime: OpenCLRuntime, kernel: object, arrays: list[np.ndarray], blocks: int) -> Callable[[], None]:
    buffers = [runtime.wrap(array) for array in arrays]

    def run() -> None:
        runtime.set_arguments(kernel, buffers)
        runtime.launch(kernel, blocks, 1)
        runtime.finish()

    return run


def clock_mhz(runtime: OpenCLRuntime) -> Figure:
    """Clock under load, from a chain of dependent one-clock integer operations."""
    text = (
        "kernel void chain(global int *out, global const int *in) {\n  int x = in[0], c = in[1];\n"
        f"  for (int k = 0; k < {_CLOCK_STEPS}; k++) {{ x = (x ^ c) + c; x = (x ^ c) + c; }}\n  out[0] = x;\n}}\n"
    )
    kernel = runtime.compile(text).kernel("chain")
    arrays = [np.zeros(16, np.int32), np.array([3, 12345], np.int32)]
    figure = best_seconds(_runner(runtime, kernel, arrays, 1))
    return Figure(4 * _CLOCK_STEPS / figure.value / 1e6, figure.spread)


def _bandwidth_source(dialect: Dialect) -> str:
    vector = f"V{dialect.lanes}"
    head = f"kernel {dialect.attribute} __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid "
    sums = " ".join(f"s{i} += *(global const {vector} *)(p + {i * dialect.lanes});" for i in range(8))
    step = 8 * dialect.lanes
    return (
        _VECTOR.format(n=dialect.lanes)
        + head
        + "reading(global float *out, global const float *in, global const int *n) {\n"
        + f"  {' '.join(f'{vector} s{i} = ({vector})(0);' for i in range(8))}\n"
        + "  size_t size = n[0];\n  global const float *start = in + get_group_id(0) * size;\n"
        + "  for (int r = 0; r < n[1]; r++)\n"
        + f"    for (global const float *p = start; p < start + size; p += {step}) {{ {sums} }}\n"
        + f"  *(global {vector} *)(out + get_group_id(0) * {dialect.lanes}) = s0+s1+s2+s3+s4+s5+s6+s7;\n}}\n"
        + head
        + "writing(global float *out, global const float *in, global const int *n) {\n"
        + "  size_t size = n[0];\n  global float *start = out + get_group_id(0) * size;\n"
        + f"  {vector} v = ({vector})(in[0]);\n  for (int r = 0; r < n[1]; r++)\n"
        + f"    for (global float *p = start; p < start + size; p += {dialect.lanes})"
        + f" *(global {vector} *)p = v;\n}}\n"
    )


def bandwidth_gb_s(
    runtime: OpenCLRuntime, dialect: Dialect, sizes_bytes: dict[str, int], cores: int
) -> dict[tuple[str, str, int], Figure]:
    """GB/s for each (layer, "read" | "write", number of cores), over working sets of the given sizes
    (each core its own; a layer shared by all cores divides its size)."""
    module = runtime.compile(_bandwidth_source(dialect))
    found: dict[tuple[str, str, int], Figure] = {}
    for layer, size in sizes_bytes.items():
        for count in sorted({1, cores}):
            floats = size // 4 // count // 256 * 256
            total = max(1, int(24e6 / (floats * 4 * count)))
            data = aligned_zeros(floats * count, np.float32)
            other, numbers = np.zeros(4096, np.float32), np.array([floats, total], np.int32)
            for kind, arrays in (("read", [other, data, numbers]), ("write", [data, other, numbers])):
                kernel = module.kernel(kind.replace("read", "reading").replace("write", "writing"))
                figure = best_seconds(_runner(runtime, kernel, arrays, count), 3)
                found[layer, kind, count] = Figure(data.nbytes * total / figure.value / 1e9, figure.spread)
    return found


def launch_us(runtime: OpenCLRuntime) -> Figure:
    """Microseconds of wall time of one empty launch and the wait for it."""
    kernel = runtime.compile("kernel void empty(global int *out) {}").kernel("empty")
    buffers = [runtime.wrap(np.zeros(16, np.int32))]
    runtime.set_arguments(kernel, buffers)

    def run() -> None:
        for _ in range(200):
            runtime.launch(kernel, 1, 1)
            runtime.plain_queue.finish()

    figure = best_seconds(run)
    return Figure(figure.value / 200 * 1e6, figure.spread)
