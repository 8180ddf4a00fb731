"""Host time of a call of a tiny operator: same and other arrays each time, with and without ``out=``; read by
`bench_launch`.  For CUDA it is what precedes the driver's own launch, through a stand-in for CuPy."""

from __future__ import annotations

import os
import sys
import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np

import rollergen as rg
from benches.results import ROOT

Call = Callable[..., object]
"""``call(*inputs, out=None)``."""

LOOP = "the loop"
CALLS, ROUNDS, SETS = 1000, 41, 8
"""Calls in a turn, turns of each caller, and sets of arrays which "other arrays" go round in."""


@dataclass(frozen=True)
class Tiny:
    """An operator on float32 arrays of ``shape``, by rollergen, NumPy, and a function of torch's name ``torch``."""

    inputs: int
    shape: tuple[int, ...]
    make: Callable[..., Any]
    numpy: Call
    torch: str


TINY: Mapping[str, Tiny] = {
    "abs of 16": Tiny(1, (16,), rg.ops.abs, np.abs, "abs"),
    "add of 16": Tiny(2, (16,), rg.ops.add, np.add, "add"),
    "matmul 16x16x16": Tiny(2, (16, 16), rg.ops.matmul, np.matmul, "matmul"),
}


def call_costs(name: str) -> dict[str, dict[str, float]]:
    """Seconds of a call: for each caller those of each way of calling; medians of turns taken in alternation.

    The loop around the calls of other arrays, which hands out the next set, is taken off."""
    tiny = TINY[name]
    callers = list(_callers(tiny))
    timers = {(who, way): timer for who, call, sets in callers for way, timer in _ways(call, sets)}
    timers |= {(LOOP, way): timer for way, timer in _loops(callers[0][2])}
    times: dict[tuple[str, str], list[float]] = {key: [] for key in timers}
    for _ in range(ROUNDS):
        for key, timer in timers.items():
            timer.timeit(CALLS // 10)  # untimed: the processor's caches still hold what the caller before used
            times[key].append(timer.timeit(CALLS) / CALLS)
    found: dict[str, dict[str, float]] = {}
    for (who, way), each in times.items():
        found.setdefault(who, {})[way] = median(each)
    loop = found.pop(LOOP)
    return {who: {way: seconds - loop.get(way, 0) for way, seconds in ways.items()} for who, ways in found.items()}


def _callers(tiny: Tiny) -> Iterator[tuple[str, Call, list[list[Any]]]]:
    """(name, call, its sets of inputs and an output)."""
    arrays = [[np.ones(tiny.shape, np.float32) for _ in range(tiny.inputs + 1)] for _ in range(SETS)]
    kernel = rg.build(tiny.make(*[rg.tensor(f"X{i}", tiny.shape) for i in range(tiny.inputs)]), "cpu")
    yield "rollergen", kernel, arrays
    yield "NumPy", tiny.numpy, arrays
    yield "rollergen, CUDA's host side", *_on_cuda(tiny)
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    tensors = [[torch.from_numpy(array) for array in each] for each in arrays]
    yield "rollergen, PyTorch's tensors", kernel, tensors
    yield "PyTorch", getattr(torch, tiny.torch), tensors


def _on_cuda(tiny: Tiny) -> tuple[Call, list[list[Any]]]:
    """A kernel for CUDA and arrays of the tests' stand-in for CuPy, whose launch and allocation do nothing."""
    os.environ["FAKE_GPU"] = "Tesla V100-PCIE-16GB|7|0|17179869184"
    sys.path.insert(0, str(ROOT / "tests" / "cuda" / "fake"))
    import cupy

    cupy.cuda.driver.launchKernel = lambda *_: None
    arrays = [[cupy.empty(tiny.shape, np.float32) for _ in range(tiny.inputs + 1)] for _ in range(SETS)]
    cupy.empty = lambda *_: arrays[0][-1]
    tensors = [rg.tensor(f"X{i}", tiny.shape) for i in range(tiny.inputs)]
    return rg.build(tiny.make(*tensors), "v100", profile=False, cache=False), arrays


def _ways(call: Call, sets: list[list[Any]]) -> Iterator[tuple[str, timeit.Timer]]:
    inputs = _names(sets)
    same = dict(zip(f"{inputs}, out".split(", "), sets[0], strict=True)) | {"call": call}
    other = {"following": cycle(sets).__next__, "call": call}
    yield "same arrays, out=", timeit.Timer(f"call({inputs}, out=out)", globals=same)
    yield "same arrays", timeit.Timer(f"call({inputs})", globals=same)
    yield "other arrays, out=", timeit.Timer(f"{inputs}, out = following(); call({inputs}, out=out)", globals=other)
    yield "other arrays", timeit.Timer(f"{inputs}, out = following(); call({inputs})", globals=other)


def _loops(sets: list[list[Any]]) -> Iterator[tuple[str, timeit.Timer]]:
    """What stands around the calls of `_ways`."""
    for way in ("other arrays, out=", "other arrays"):
        yield way, timeit.Timer(f"{_names(sets)}, out = following()", globals={"following": cycle(sets).__next__})


def _names(sets: list[list[Any]]) -> str:
    return ", ".join(f"x{i}" for i in range(len(sets[0]) - 1))
