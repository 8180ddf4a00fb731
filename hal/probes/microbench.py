"""Micro-benchmarks of an OpenCL CPU device: clock, peak by dialect, bandwidth by working set, launch cost.

What is compared runs in alternation, and each figure is the least time of its rounds: noise only ever
slows a run down.  The spread says how far the median round was from the best.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise
from statistics import median
from typing import TypeVar

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.dot_products import opencl_function
from rollergen.hal.dtypes import DOTS, sum_of
from rollergen.hal.runtimes.opencl_runtime import Module, OpenCLRuntime

Key = TypeVar("Key", bound=Hashable)
Run = Callable[[], None]

_TURN_SECONDS = 3e-3


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value (unit in the name of the function that made it); ``spread``: median over best time, less 1."""

    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class Dialect:
    """How vector code is written: lanes of a float32 vector, and the attribute that every kernel carries."""

    lanes: int
    attribute: str


def dialects(widest_bits: int) -> tuple[Dialect, ...]:
    """What may compile well for a host with vectors of `widest_bits`: these and half as wide ones, with and
    without a word to the compiler about their width."""
    widths = (widest_bits // 2, widest_bits) if widest_bits > 128 else (widest_bits,)
    attribute = "__attribute__((min_vector_width({})))"
    return tuple(Dialect(bits // 32, text) for bits in widths for text in ("", attribute.format(bits)))


_PEAK_STEPS = 250_000
_CHAINS = 10
"""Independent accumulators: enough for 4 clocks of latency and two pipes, few enough for 16 registers."""
_CLOCK_STEPS = 500_000


def clock_and_peaks(
    runtime: OpenCLRuntime, candidates: tuple[Dialect, ...], rounds: int = 7
) -> tuple[Figure, dict[Dialect, Figure]]:
    """MHz of one core under load, and its GFLOP/s (a multiply-add is two) for each way of writing them.

    The clock comes from a chain of integer operations of one clock each, each waiting for the one before.
    """
    lanes = sorted({d.lanes for d in candidates})
    text = "".join(_VECTOR.format(n=n) for n in lanes) + _CHAIN_KERNEL
    text += "".join(_peak_kernel(f"peak{i}", dialect) for i, dialect in enumerate(candidates))
    module = runtime.compile(text)
    out, integers = aligned(64), aligned(16).view(np.int32)
    integers[:2] = 3, 12345
    values = aligned(16)
    values[:2] = 0.5, 1.0
    runs: dict[Dialect | None, Run] = {None: runner(runtime, module, "chain", [out, integers], 1)}
    for i, dialect in enumerate(candidates):
        runs[dialect] = runner(runtime, module, f"peak{i}", [out, values], 1)
    times = best_seconds(runs, rounds)
    clock = times.pop(None)
    return _rate(4 * _CLOCK_STEPS / 1e6, clock), {
        dialect: _rate(2 * dialect.lanes * _CHAINS * _PEAK_STEPS / 1e9, figure)
        for dialect, figure in times.items()
        if dialect is not None
    }


def bandwidths_gb_s(
    runtime: OpenCLRuntime, dialect: Dialect, sizes_bytes: Mapping[str, int], cores: int, rounds: int = 5,
    places: int = 1,
) -> dict[tuple[str, str, int], Figure]:  # fmt: skip
    """GB/s for each (layer, "reading" | "writing", cores at work), one core and all, over working sets of the given
    sizes; several cores share the size.

    A cache that is indexed by physical pages holds some places of memory better than others: the best of so many
    ``places`` of the largest working set counts.
    """
    module = runtime.compile(_stream_source(dialect))
    other = aligned(64 * max(cores, 1))
    data = aligned(max(sizes_bytes.values()) // 4)
    data[...] = 1.0
    runs: dict[tuple[str, str, int, int], Run] = {}
    amounts: dict[tuple[str, str, int], float] = {}
    for layer, size in sizes_bytes.items():
        for count in sorted({1, cores}):
            floats = max(1, size // 4 // count // _STREAM_FLOATS) * _STREAM_FLOATS
            passes = max(1, int(_LEAST_BYTES / (floats * 4)))
            numbers = np.array([floats, passes], np.int32)
            for place in range(min(places, max(1, len(data) // (2 * floats * count)))):
                start = place * (len(data) // places // _STREAM_FLOATS * _STREAM_FLOATS)
                part = data[start : start + floats * count]
                for kind, arrays in (("reading", [other, part, numbers]), ("writing", [part, other, numbers])):
                    runs[layer, kind, count, place] = runner(runtime, module, kind, arrays, count)
                    amounts[layer, kind, count] = floats * 4.0 * count * passes / 1e9
    best: dict[tuple[str, str, int], Figure] = {}
    for (layer, kind, count, _), figure in sorted(best_seconds(runs, rounds).items(), key=lambda item: -item[1].value):
        best[layer, kind, count] = figure
    return {key: _rate(amounts[key], figure) for key, figure in best.items()}


def peak_gflop_s(runtime: OpenCLRuntime, dialect: Dialect, dtype: str, rounds: int = 5) -> Figure:
    """GFLOP/s of one core in OpenCL's `dtype` (float, double), with vectors as wide as the dialect's."""
    lanes = dialect.lanes if dtype == "float" else dialect.lanes // 2
    text = _VECTOR.format(n=lanes).replace("float", dtype)
    text += _peak_kernel("peak", Dialect(lanes, dialect.attribute)).replace("float", dtype)
    values = aligned(32).view(np.float32 if dtype == "float" else np.float64)
    values[:2] = 0.5, 1.0
    run = runner(runtime, runtime.compile(text), "peak", [aligned(64), values.view(np.float32)], 1)
    return _rate(2 * lanes * _CHAINS * _PEAK_STEPS / 1e9, best_seconds({"peak": run}, rounds)["peak"])


def dot_products_per_clock(
    runtime: OpenCLRuntime, dialect: Dialect, op: str, clock_mhz: float, rounds: int = 5
) -> Figure:
    """Vectors of dot products (of the kind ``op``) that start in one clock of one core."""
    name, text = opencl_function(op, dialect.lanes, "__attribute__((always_inline)) static inline ")
    rows, columns = _DOT_TILES[op]
    summed = "int" if sum_of(next(x for (x, _), one in DOTS.items() if one == op)) == "int32" else "float"
    module = runtime.compile(f"{text}\n{_dot_kernel(name, rows, columns, dialect, summed)}")
    run = runner(runtime, module, "dots", [aligned(16), aligned(16)], 1)
    return _rate(rows * columns * _DOT_STEPS / clock_mhz / 1e6, best_seconds({"dots": run}, rounds)["dots"])


def launch_us(runtime: OpenCLRuntime, rounds: int = 10, launches: int = 4) -> Figure:
    """Microseconds of wall time of one empty launch and the wait for it, as kernels are called: the best batch's
    mean."""
    alone = runtime.has_caller
    module = runtime.compile("kernel void empty(global float *out) {}", alone=(alone,))
    run = caller(runtime, module, "empty", [aligned(16)], 1, alone)

    def batch() -> None:
        for _ in range(launches):
            run()

    figure = best_seconds({"empty": batch}, rounds)["empty"]
    return Figure(figure.value / launches * 1e6, figure.spread)


def wake_us(runtime: OpenCLRuntime, blocks: int, rounds: int = 10) -> Figure:
    """Microseconds by which as many blocks as cores, each on a thread of its own, take longer than one of them in the
    calling thread, in calls that follow each other.  0 where nothing runs there.

    The blocks work for `_BUSY_STEPS` steps, so that a caller that sleeps while it waits does; medians, as sleep is not
    as deep each time.
    """
    if not runtime.has_caller:
        return Figure(0.0, 0.0)
    module = runtime.compile(_BUSY_KERNEL, alone=(True, False))
    runs = {
        alone: caller(runtime, module, "busy", [aligned(16 * blocks), aligned(16)], 1 if alone else blocks, alone)
        for alone in (True, False)
    }
    found = best_seconds(runs, rounds)
    alone, woken = (found[which].value * (1 + found[which].spread) for which in (True, False))
    return Figure(max(0.0, woken - alone) * 1e6, found[False].spread)


def best_seconds(runs: Mapping[Key, Run], rounds: int) -> dict[Key, Figure]:
    """Least wall seconds of each run, over rounds in which all take their turn.

    A turn begins with an untimed run, so that the timed ones find the data where that left them, and
    lasts a few milliseconds: short runs get many tries at a moment without noise.
    """
    times: dict[Key, list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            run()
            times[key] += _turn(run)
    return {key: Figure(min(all_), median(all_) / min(all_) - 1) for key, all_ in times.items()}


def _turn(run: Run) -> list[float]:
    marks = [time.perf_counter()]
    while len(marks) < 2 or marks[-1] - marks[0] < _TURN_SECONDS:
        run()
        marks.append(time.perf_counter())
    return [end - start for start, end in pairwise(marks)]


def aligned(floats: int) -> np.ndarray:
    """Zeros (float32) that start at a cache line, so that no vector straddles two."""
    raw = np.zeros(floats * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + floats * 4].view(np.float32)


def _rate(amount: float, seconds: Figure) -> Figure:
    return Figure(amount / seconds.value, seconds.spread)


def runner(
    runtime: OpenCLRuntime, module: Module, entry: str, arrays: list[np.ndarray], blocks: int, alone: bool = False
) -> Run:
    """One launch of `entry` on these arrays, work-groups of one thread, and the wait for it."""
    kernel = module.kernel(entry)
    runtime.set_arguments(kernel, [runtime.wrap(array) for array in arrays])

    def run() -> None:
        runtime.launch(kernel, blocks, 1, alone=alone)
        runtime.finish()

    return run


def caller(
    runtime: OpenCLRuntime, module: Module, entry: str, arrays: list[np.ndarray], blocks: int, alone: bool
) -> Run:
    """As `runner`, by the pool where there is one, as kernels are called."""
    run = runner(runtime, module, entry, arrays, blocks, alone)
    run()
    launch = module.work_groups(entry, blocks, len(arrays), alone)
    if runtime.pool is None or launch is None:
        return run
    for position, array in enumerate(arrays):
        launch.addresses[position] = array.ctypes.data
    job = runtime.pool.job([launch])

    def call(_kept: list[np.ndarray] = arrays) -> None:
        job()

    return call


_VECTOR = "typedef float V{n} __attribute__((ext_vector_type({n}), aligned(4)));\n"

_BUSY_STEPS = 100_000
"""Dependent pairs of operations: some 70 us at 3 GHz."""
_BUSY_KERNEL = f"""kernel void busy(global int *out, global const int *in) {{
  int x = in[0], c = in[1] + get_group_id(0);
  for (int k = 0; k < {_BUSY_STEPS}; k++) x = (x ^ c) + c;
  out[16*get_group_id(0)] = x;
}}
"""

_CHAIN_KERNEL = f"""kernel void chain(global int *out, global const int *in) {{
  int x = in[0], c = in[1];
  for (int k = 0; k < {_CLOCK_STEPS}; k++) {{ x = (x ^ c) + c; x = (x ^ c) + c; }}
  out[0] = x;
}}
"""


def _peak_kernel(name: str, dialect: Dialect) -> str:
    """Register-blocked multiply-adds, as in a matmul's inner loop but without its loads."""
    vector = f"V{dialect.lanes}"
    start = " ".join(f"{vector} c{i} = ({vector})({i}.5f);" for i in range(_CHAINS))
    step = " ".join(f"c{i} = x * c{i} + y;" for i in range(_CHAINS))
    total = " + ".join(f"c{i}" for i in range(_CHAINS))
    return f"""kernel {dialect.attribute} __attribute__((reqd_work_group_size(1, 1, 1)))
void {name}(global float *out, global const float *in) {{
  {vector} x = ({vector})(in[0]), y = ({vector})(in[1]);
  {start}
  for (int k = 0; k < {_PEAK_STEPS}; k++) {{ {step} }}
  *(global {vector} *)(out + get_group_id(0) * {dialect.lanes}) = {total};
}}
"""


_DOT_STEPS = 50_000
_DOT_TILES = {"dot": (13, 1), "dot_pairs": (4, 2), "dot_bfloat16": (13, 1)}
"""Rows and columns of sums, by what they add up, which with their factors fill 16 registers but one.  Of what adds in
the instruction itself more than `_CHAINS`, as each waits a clock longer: rows may share a factor.  Of what multiplies
first each sum has factors of its own, for the product of two that others have too is computed once."""


def _dot_kernel(name: str, rows: int, columns: int, dialect: Dialect, summed: str) -> str:
    """As `_peak_kernel`, of dot products, whose sums are ``summed``; one factor changes, so that none is moved out of
    the loop."""
    vector, sums_of, shared = f"int{dialect.lanes}", f"{summed}{dialect.lanes}", columns == 1
    sums = [(f"c{i}_{j}", f"x{0 if shared else i}", f"y{j}") for i in range(rows) for j in range(columns)]
    fixed = dict.fromkeys(x for _, x, _ in sums)
    start = " ".join(f"{sums_of} {c} = ({sums_of})({at});" for at, (c, _, _) in enumerate(sums))
    start += " ".join(f" {vector} {x} = ({vector})(in[0]) + {at};" for at, x in enumerate(fixed))
    start += " ".join(f" {vector} y{j} = ({vector})(in[1]) + {j};" for j in range(columns))
    step = " ".join(f"{c} = {name}({c}, {x}, {y});" for c, x, y in sums)
    step += " ".join(f" y{j} ^= x0;" for j in range(columns))
    total = " + ".join(c for c, _, _ in sums)
    return f"""kernel {dialect.attribute} __attribute__((reqd_work_group_size(1, 1, 1)))
void dots(global {summed} *out, global const int *in) {{
  {start}
  for (int k = 0; k < {_DOT_STEPS}; k++) {{ {step} }}
  *(global {sums_of} *)out = {total};
}}
"""


_STREAMS = 8
_STREAM_FLOATS = 256
"""Working sets are multiples of this: 8 vectors of 16 lanes, twice."""
_LEAST_BYTES = 24e6
"""Traffic of one run and core: a millisecond at 24 GB/s, so that launching is small beside it."""


def _stream_source(dialect: Dialect) -> str:
    """Each work-item walks its own part of the data, again and again: sums of it, or one value into it."""
    vector, step = f"V{dialect.lanes}", _STREAMS * dialect.lanes
    at = lambda i: f"*(global {vector} *)(p + {i * dialect.lanes})"
    head = f"kernel {dialect.attribute} __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid "
    start = " ".join(f"{vector} s{i} = ({vector})(0);" for i in range(_STREAMS))
    sums = " ".join(f"s{i} += {at(i).replace('global', 'global const')};" for i in range(_STREAMS))
    stores = " ".join(f"{at(i)} = v;" for i in range(_STREAMS))
    total = " + ".join(f"s{i}" for i in range(_STREAMS))
    walk = "for (int r = 0; r < n[1]; r++)\n    for ({q} float *p = start; p < start + n[0]; p += {step})"
    return f"""{_VECTOR.format(n=dialect.lanes)}
{head}reading(global float *out, global const float *in, global const int *n) {{
  {start}
  global const float *start = in + get_group_id(0) * (size_t)n[0];
  {walk.format(q="global const", step=step)} {{ {sums} }}
  *(global {vector} *)(out + get_group_id(0) * {dialect.lanes}) = {total};
}}
{head}writing(global float *out, global const float *in, global const int *n) {{
  {vector} v = ({vector})(in[0]);
  global float *start = out + get_group_id(0) * (size_t)n[0];
  {walk.format(q="global", step=step)} {{ {stores} }}
}}
"""
