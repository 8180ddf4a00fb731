"""What a case would take at the roofline of this machine, measured beside it: its multiply-adds and functions from
registers, and its bytes read and written by nothing but loads and stores, in the same arrays.

The larger of the two times is the bound.  Neither pays for launches: both repeat within one launch.  Functions are
timed in sums of their values, less sums without them; divisions and roots are left out, which have a unit of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.expr.stages import Graph
from rollergen.expr.values import axes_of, walk
from rollergen.hal.probes.host_facts import widest_bits
from rollergen.hal.probes.microbench import aligned, runner
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.spec import Device
from rollergen.kernel import Kernel
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import count_operations

_LEAST_BYTES = 8e6
"""Traffic of one call: some 100 us, so that launching is small beside it."""
_CHAINS, _STEPS = 10, 400_000
"""Independent accumulators (enough for two pipes of 4 clocks), and multiply-adds of each: some 500 us."""
_STREAMS = 8
_CHUNK_FLOATS = 256
"""Of the largest array: reads and writes take turns, as a kernel's do (whole pages in turn are slower)."""


_ROWS, _TERMS = 128, 4096
"""Of the sums in which a function is timed, for each thread: some 100 us."""
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": rg.exp, "log": rg.log, "tanh": rg.tanh, "erf": rg.erf, "pow": lambda value: value**1.7,
}  # fmt: skip
_PLAIN = "sums without functions"


@dataclass(frozen=True)
class Probe:
    """``call`` takes 1 / ``share`` times as long as what it stands for."""

    call: Callable[[], None]
    share: float


def whole_cores(threads: int) -> Callable[[], bool]:
    """Says whether each of so many ``threads`` has a core of its own at the moment.  The host of a virtual machine may
    give two of its cores one for seconds, and whoever has his turn then looks half as fast (multiply-adds of both cores
    of a Zen 5: 250 and 250 GFLOP/s, or 128 and 122)."""
    runtime = OpenCLRuntime()
    module = runtime.compile(_source(widest_bits() // 32, 1))
    every, one = (runner(runtime, module, "arithmetic", [aligned(64 * n), aligned(16)], n) for n in (threads, 1))
    least = lambda call, count: min(_seconds(call) for _ in range(count))
    alone = least(one, 10)
    return lambda: least(every, 2) < _SHARED * alone


def _seconds(call: Callable[[], None]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


_SHARED = 1.25
"""Times as long as one thread's alone, multiply-adds of several take where two of them share a core at times."""


def probes(
    graph: Graph, device: Device, inputs: Sequence[np.ndarray], out: np.ndarray, threads: int
) -> dict[str, Probe]:
    """By name: "arithmetic"; the functions of the case; and "stores", "streamed stores" and "reads" of as many bytes,
    the fastest of which counts.

    ``inputs``, ``out``: float32, contiguous; `out` is overwritten.
    """
    lanes = widest_bits() // 32
    runtime = OpenCLRuntime()
    module = runtime.compile(_source(lanes, len(inputs)))
    flat = [array.reshape(-1) for array in (*inputs, out)]
    sizes = [max(1, len(array) // threads) for array in flat]
    passes = max(1, int(_LEAST_BYTES / sum(4 * size * threads for size in sizes)))
    chunks = max(1, max(sizes) // _CHUNK_FLOATS)
    numbers = np.array([*sizes, chunks, passes], np.int32)
    kept = aligned(64 * threads)
    found = {"arithmetic": Probe(
        runner(runtime, module, "arithmetic", [kept, aligned(16)], threads),
        graph.points / (lanes * _CHAINS * _STEPS * threads),
    )}  # fmt: skip
    found |= _function_probes(function_values(graph, device), threads)
    for name, entry in _MEMORY.items():
        call = runner(runtime, module, entry, [kept, *flat, numbers], threads)
        found[name] = Probe(call, 1 / passes)
    return found


def function_values(graph: Graph, device: Device) -> dict[str, float]:
    """How many values of each of `_FUNCTIONS` the graph asks for, each once.  The exponential of a row's element less
    the row's largest one, which needs less care, counts as the part of one that the device's spec measures it at."""
    costs, found = costs_of(device), dict[str, float]()
    for op in graph.tensor_ops:
        bodies = [*(body for reduction in op.reductions for body in reduction.bodies), op.result]
        for node in dict.fromkeys(node for body in bodies for node in walk(body)):
            for name, _ in count_operations((node,), (), op):
                part = costs.operation(name) / costs.operation("exp") if name == "exp_below" else 1
                name = name.removesuffix("_below")
                if name in _FUNCTIONS:
                    count = prod(op.extents()[axis] for axis in axes_of(node))
                    found[name] = found.get(name, 0) + part * count
    return found


def _function_probes(values: Mapping[str, float], threads: int) -> dict[str, Probe]:
    """Sums of each function's values, and of their arguments alone."""
    rows = _ROWS * threads
    given = np.full(rows, 0.25, np.float32), np.linspace(0.25, 0.75, _TERMS, dtype=np.float32)
    names = (*values, _PLAIN) if values else ()
    kernels = {name: _sums(_FUNCTIONS.get(name, lambda value: value), rows) for name in names}
    return {
        name: Probe(partial(kernel, *given), values.get(name, 0) / (rows * _TERMS))
        for name, kernel in kernels.items()
    }


def _sums(function: Callable[[Any], Any], rows: int) -> Kernel:
    x, y, k = rg.tensor("X", (rows,)), rg.tensor("Y", (_TERMS,)), rg.reduce_axis("k", _TERMS)
    return rg.build(rg.compute((rows,), lambda i: rg.sum(function(x[i] + y[k]), k)), "cpu", profile=False)


def bound_s(found: Mapping[str, Probe], times: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """(what binds: "arithmetic", "functions" or "memory", seconds) from the medians of the probes' times."""
    middle = {name: median(times[name]) for name in found}
    memory = min(found[name].share * middle[name] for name in _MEMORY)
    arithmetic = found["arithmetic"].share * middle["arithmetic"]
    functions = sum(found[name].share * (middle[name] - middle[_PLAIN]) for name in _FUNCTIONS if name in found)
    if arithmetic + functions <= memory:
        return "memory", memory
    return "functions" if functions > arithmetic else "arithmetic", arithmetic + functions


def _source(lanes: int, inputs: int) -> str:
    """Each work-item takes its own part of every array, a chunk of each in turn, again and again."""
    head = f"kernel __attribute__((min_vector_width({32 * lanes}), reqd_work_group_size(1, 1, 1)))\nvoid "
    starts = " ".join(f"V c{i} = (V)({i}.5f);" for i in range(_CHAINS))
    steps = " ".join(f"c{i} = x*c{i} + y;" for i in range(_CHAINS))
    sums = " + ".join(f"c{i}" for i in range(_CHAINS))
    text = f"""typedef float V __attribute__((ext_vector_type({lanes}), aligned(4)));
typedef float W __attribute__((ext_vector_type({lanes})));
{head}arithmetic(global float *out, global const float *in) {{
  V x = (V)(in[0]), y = (V)(in[1]);
  {starts}
  for (int k = 0; k < {_STEPS}; k++) {{ {steps} }}
  *(global V *)(out + get_group_id(0)*{lanes}) = {sums};
}}
"""
    return text + "".join(_walk(entry, head, lanes, inputs) for entry in _MEMORY.values())


def _walk(entry: str, head: str, lanes: int, inputs: int) -> str:
    """The kernel that walks all arrays, a chunk of each in turn: reads the inputs, and reads or writes the result."""
    arrays = "".join(f"global const float *restrict in{i}, " for i in range(inputs))
    reads = "\n".join(_read(f"in{i}", i, lanes) for i in range(inputs))
    last = _read("out", inputs, lanes) if entry == "read" else _write(inputs, lanes, _STORES[entry])
    text = f"""{head}{entry}(global float *kept, {arrays}global float *restrict out, global const int *n) {{
  {" ".join(f"V s{i} = (V)(0);" for i in range(_STREAMS))}
  for (int r = 0; r < n[{inputs + 2}]; r++)
  for (int c = 0; c < n[{inputs + 1}]; c++) {{
{reads}
{last}
  }}
  *(global V *)(kept + get_group_id(0)*{lanes}) = {" + ".join(f"s{i}" for i in range(_STREAMS))};
}}
"""
    return text.replace("CHUNKS", str(inputs + 1))


_STORES = {
    "stored": "*(global W *)p = (W)s0;",
    "streamed": "__builtin_nontemporal_store((W)s0, (global W *)p);",
}
_MEMORY = {"stores": "stored", "streamed stores": "streamed", "reads": "read"}


def _write(number: int, lanes: int, store: str) -> str:
    """Whole aligned vectors only."""
    return f"""    {{ global float *q = out + get_group_id(0)*(size_t)n[{number}];
      global float *p = q + {_part(number, "c")}, *end = q + {_part(number, "c + 1")};
      for (p += -((size_t)p/4) & {lanes - 1}; p + {lanes} <= end; p += {lanes}) {{ {store} }} }}"""


def _part(number: int, of: str) -> str:
    return f"(size_t)n[{number}]*({of})/n[CHUNKS]"


def _read(array: str, number: int, lanes: int) -> str:
    step = _STREAMS * lanes
    many = " ".join(f"s{i} += *(global const V *)(p + {i * lanes});" for i in range(_STREAMS))
    return f"""    {{ global const float *q = {array} + get_group_id(0)*(size_t)n[{number}];
      global const float *p = q + {_part(number, "c")};
      global const float *end = q + {_part(number, "c + 1")};
      for (; p + {step} <= end; p += {step}) {{ {many} }}
      for (; p + {lanes} <= end; p += {lanes}) s0 += *(global const V *)p; }}"""
