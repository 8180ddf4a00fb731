"""What a case would take at the roofline of this machine, measured beside it: its multiply-adds from registers, and
its bytes read and written by nothing but loads and stores, in the same arrays.

The larger of the two times is the bound.  Neither pays for launches: both repeat within one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from rollergen.hal.probes.host_facts import widest_bits
from rollergen.hal.probes.microbench import aligned, runner
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

_LEAST_BYTES = 8e6
"""Traffic of one call: some 100 us, so that launching is small beside it."""
_CHAINS, _STEPS = 10, 400_000
"""Independent accumulators (enough for two pipes of 4 clocks), and multiply-adds of each: some 500 us."""
_STREAMS = 8
_CHUNK_FLOATS = 256
"""Of the largest array: reads and writes take turns, as a kernel's do (whole pages in turn are slower)."""


@dataclass(frozen=True)
class Probe:
    """``call`` takes 1 / ``share`` times as long as what it stands for."""

    call: Callable[[], None]
    share: float


def probes(
    points: int, inputs: Sequence[np.ndarray], out: np.ndarray, threads: int
) -> dict[str, Probe]:
    """By name: "arithmetic", and "stores", "streamed stores" and "reads" of as many bytes, the fastest of which counts.

    ``inputs``, ``out``: float32, contiguous; `out` is overwritten.  ``points``: multiply-adds of the case.
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
        points / (lanes * _CHAINS * _STEPS * threads),
    )}  # fmt: skip
    for name, entry in _MEMORY.items():
        call = runner(runtime, module, entry, [kept, *flat, numbers], threads)
        found[name] = Probe(call, 1 / passes)
    return found


def bound_s(found: Mapping[str, Probe], times: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """(what binds: "arithmetic" or "memory", seconds) from the medians of the probes' times."""
    seconds = {name: probe.share * median(times[name]) for name, probe in found.items()}
    memory = min(seconds[name] for name in _MEMORY)
    return ("arithmetic", seconds["arithmetic"]) if seconds["arithmetic"] > memory else ("memory", memory)


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
