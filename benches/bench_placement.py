"""What it costs where arrays lie: ``python benches/bench_placement.py``.

An array's place is its address modulo 4 KiB: NumPy's large ones all begin 16 bytes behind a page, so that vectors of
64 bytes straddle lines, and loads follow stores to addresses that agree in their last 12 bits.  For each operator the
times of a call on one core at pairs of places of its inputs and its output, in turns; the worst over the best; and of
some those of calls without ``out=``, whose results come from the pool.  ``chrt -r 5`` before the command keeps other
programs away.
"""

from __future__ import annotations

# ruff: noqa: E402
import os
import sys
from pathlib import Path

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse
import time
from collections.abc import Callable
from math import prod
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.results import keep

PAGE = 4096
PLACES = (
    (0, 0), (0, 2048), (16, 16), (16, 0), (0, 16), (0, 48), (48, 16), (0, 64), (64, 0), (0, 256), (16, 2048),
    (16, 2064),
)  # fmt: skip
"""Bytes behind a page at which the inputs begin, and the output."""

X = rg.tensor("X", (4096, 1024))
BIG = tuple(rg.tensor(name, (1 << 24,)) for name in "XY")
OPERATORS: dict[str, Callable[[], Any]] = {
    "layer norm 4096x1024": lambda: rg.ops.layer_norm(X, (1024,)),
    "layer norm 64x1024": lambda: rg.ops.layer_norm(rg.tensor("X", (64, 1024)), (1024,)),
    "rms norm 4096x1024": lambda: rg.ops.rms_norm(X, (1024,)),
    "softmax 4096x1024": lambda: rg.ops.softmax(X, -1),
    "log softmax 4096x1024": lambda: rg.ops.log_softmax(X, -1),
    "transpose 2048x2048": lambda: rg.ops.permute(rg.tensor("X", (2048, 2048)), (1, 0)),
    "relu of 64 MB": lambda: rg.ops.relu(BIG[0]),
    "add of 64 MB": lambda: rg.ops.add(*BIG),
}
NEW = ("relu of 64 MB", "add of 64 MB")
"""Also called without ``out=``."""


class Memory:
    """An array of a shape at any place within its pages."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._size = shape, 4 * prod(shape)
        self._bytes = np.ones(self._size + 2 * PAGE, np.uint8)

    def at(self, place: int) -> np.ndarray:
        start = -self._bytes.ctypes.data % PAGE + place
        array = self._bytes[start : start + self._size].view(np.float32).reshape(self._shape)
        array[...] = 1
        return array


def measured(make: Callable[[], Any], rounds: int, new: bool) -> dict[str, float]:
    """Milliseconds by "input+output" place, and of calls without ``out=``; medians of rounds of the best of four."""
    kernel = rg.build(make(), "cpu")
    inputs = [Memory(b.shape) for b in kernel.signature.inputs]
    output = Memory(kernel.signature.outputs[0].shape)
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for given, written in PLACES:
            arrays, out = [one.at(given) for one in inputs], output.at(written)
            best = _best(lambda arrays=arrays, out=out: kernel(*arrays, out=out))
            times.setdefault(f"{given}+{written}", []).append(best)
        if new:
            arrays = [one.at(16) for one in inputs]
            times.setdefault("without out=", []).append(_best(lambda arrays=arrays: kernel(*arrays)))
    return {place: 1e3 * median(each) for place, each in times.items()}


def _best(call: Callable[[], object]) -> float:
    found = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=OPERATORS, default=list(OPERATORS))
    given = parser.parse_args()
    console, found = Console(width=120), {}
    table = Table("operator", "best ms", "at", "worst ms", "at", "worst/best", "without out=/with")
    for name in given.only:
        times = measured(OPERATORS[name], given.rounds, name in NEW)
        new = times.pop("without out=", None)
        best, worst = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        found[name] = {"milliseconds": times, "worst over best": times[worst] / times[best]}
        if new is not None:
            found[name] |= {"without out= ms": new, "without out= over with": new / times["16+16"]}
        shown = "" if new is None else f"{new / times['16+16']:.2f}"
        row = (f"{times[best]:.3f}", best, f"{times[worst]:.3f}", worst, f"{times[worst] / times[best]:.2f}", shown)
        table.add_row(name, *row)
    console.print(table)
    console.print(f"kept in {keep('placement', found)}")


if __name__ == "__main__":
    main()
