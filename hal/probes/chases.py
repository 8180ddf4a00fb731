"""Micro-benchmarks by pointer chasing: latency of each layer, and how many bytes one miss brings.

Each load's address is what the load before read, so that nothing overlaps; the order is random, so that nothing is
fetched ahead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.hal.probes.microbench import Figure, Run, aligned, best_seconds, runner
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

_STEPS = 100_000
_SLOT_BYTES = 256
"""Distance of two places of a chain: beyond a line and the neighbour that is fetched with it."""
_OFFSETS = (16, 32, 64, 128)
_CHASE = f"""kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void chase(global int *out, global const int *next, global const int *beside) {{
  int at = next[0];
  int b = beside[0];
  for (int k = 0; k < {_STEPS}; k++) {{ at = next[at]; }}
  out[0] = at + b;
}}
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void chase_beside(global int *out, global const int *next, global const int *beside) {{
  int at = next[0];
  int b = beside[0];
  for (int k = 0; k < {_STEPS}; k++) {{ at = next[at + next[at + b]]; }}
  out[0] = at;
}}
"""


def latencies_ns(runtime: OpenCLRuntime, sizes_bytes: Mapping[str, int], rounds: int = 5) -> dict[str, Figure]:
    """Nanoseconds of one dependent load by layer, over working sets of the given sizes.

    Where a set has more pages than the translation buffers reach, their misses are part of the figure.
    """
    module, zero = runtime.compile(_CHASE), aligned(16).view(np.int32)
    runs: dict[str, Run] = {
        layer: runner(runtime, module, "chase", [aligned(16), _chain(size), zero], 1)
        for layer, size in sizes_bytes.items()
    }
    return {
        layer: Figure(figure.value / _STEPS * 1e9, figure.spread)
        for layer, figure in best_seconds(runs, rounds).items()
    }


def line_bytes(runtime: OpenCLRuntime, size_bytes: int, rounds: int = 5) -> tuple[int, Mapping[int, Figure]]:
    """Bytes that one miss brings in from a working set of `size_bytes`, and the nanoseconds it follows from.

    At each place of the chain a second load, so many bytes further, waits for the first: cheap as long as it lies in
    the same line.  0 where no offset is clearly dearer than the shortest: not measurable.
    """
    module, chain = runtime.compile(_CHASE), _chain(size_bytes)
    runs: dict[int, Run] = {}
    for offset in _OFFSETS:
        beside = aligned(16).view(np.int32)
        beside[0] = offset // 4
        runs[offset] = runner(runtime, module, "chase_beside", [aligned(16), chain, beside], 1)
    found = {o: Figure(f.value / _STEPS * 1e9, f.spread) for o, f in best_seconds(runs, rounds).items()}
    return first_dear(found), found


def first_dear(nanoseconds: Mapping[int, Figure]) -> int:
    """The offset from which on all take a quarter longer than the shortest; 0 if there is none, or none before it."""
    least, found = nanoseconds[min(nanoseconds)].value, 0
    for offset in sorted(nanoseconds, reverse=True):
        if nanoseconds[offset].value <= 1.25 * least:
            break
        found = offset
    return found


def _chain(size_bytes: int) -> np.ndarray:
    """A ring over all slots in random order; entry i holds where to go next, the rest of a slot is 0."""
    slots = max(2, size_bytes // _SLOT_BYTES)
    data = aligned(slots * _SLOT_BYTES // 4).view(np.int32)
    order = np.random.default_rng(0).permutation(slots).astype(np.int64) * (_SLOT_BYTES // 4)
    data[order] = np.roll(order, -1)
    return data
