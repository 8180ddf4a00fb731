"""Kernels checked, then timed in turns with what they compete with: read by the benches of speed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.gate.arrays import CALLER_LEAD_BYTES, aligned_empty
from rollergen.gate.oracle import compare, expression_oracle
from rollergen.kernel import Kernel

LEAST_ROUNDS, MOST_ROUNDS = 15, 2000

Calls = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Checked:
    """A kernel that agreed with its float64 definition on ``arrays``; ``compared``: elements.

    The arrays begin at a cache line, as those that torch, JAX and TVM allocate for themselves do; ``led``: arrays on
    the same pages (which may be huge or not: what is allocated later gets other ones) that begin where NumPy's do, the
    result's last."""

    kernel: Any
    arrays: list[np.ndarray]
    out: np.ndarray
    led: list[np.ndarray]
    build_seconds: float
    compared: int

    def call(self) -> object:
        return self.kernel(*self.arrays, out=self.out)

    def call_led(self) -> Callable[[], object]:
        """The same call of a kernel of its own (which packs constants for itself), with the arrays that are led."""
        one = self.kernel
        kernel = Kernel(one.device, one.candidates, next(c for c in one.candidates if c.program is one.program))
        *inputs, out = self.led
        return lambda: kernel(*inputs, out=out)


def _placed(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random floats of [-1, 1), or integers of [-128, 128): an array that begins at a cache line, and one
    `CALLER_LEAD_BYTES` behind it."""
    led = CALLER_LEAD_BYTES // numpy_dtype(dtype).itemsize
    whole = aligned_empty((prod(shape) + led,), dtype)
    if is_float(dtype):
        whole[...] = rng.random(whole.shape, dtype=np.float32) * 2 - 1
    else:
        whole[...] = rng.integers(-128, 128, whole.shape)
    return whole[: len(whole) - led].reshape(shape), whole[led:].reshape(shape)


DEFAULTS = rg.BuildOptions()


def checked(name: str, tensor: Any, top_k: int | None = None, options: rg.BuildOptions = DEFAULTS) -> Checked:
    """The tensor's kernel for this machine's CPU, built anew.  Raises SystemExit where its result is wrong."""
    started = time.perf_counter()
    kernel = rg.build(tensor, "cpu", top_k=top_k, cache=False, options=options)
    built = time.perf_counter() - started
    rng = np.random.default_rng(1)
    placed = [_placed(b.shape, b.dtype, rng) for b in (*kernel.signature.inputs, kernel.signature.outputs[0])]
    *arrays, out = (one for one, _ in placed)
    kernel(*arrays, out=out)
    names = [b.name for b in kernel.signature.inputs]
    oracle = expression_oracle((tensor,), kernel.signature.outputs)
    compared, wrong = compare(kernel.program, dict(zip(names, arrays, strict=True)), (out,), oracle)
    if wrong:
        raise SystemExit(f"{name}: {wrong}")
    return Checked(kernel, arrays, out, [led for _, led in placed], built, compared)


def alone(script: str, case: str, seconds: float, *options: str) -> dict[str, Any]:
    """What ``script --alone case`` prints: a case in a process of its own, so that none inherits another's heap
    (large arrays in recycled memory lie on small pages, and every call of a memory-bound kernel pays for it)."""
    command = [sys.executable, script, "--alone", case, "--seconds", str(seconds), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr.strip() or done.stdout.strip()}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True)
class Turns:
    """Wall seconds of each round: ``first``: of the call behind everybody else's, which finds caches and branch
    predictors as they left them; ``again``: the median of those behind it."""

    first: list[float]
    again: list[float]


def alternate(calls: Calls, seconds: float, threads: int = 1) -> dict[str, list[float]]:
    """Wall seconds of every round, in which each has a turn of several calls: `Turns.again`."""
    return {name: each.again for name, each in in_turns(calls, seconds, threads).items()}


def in_turns(
    calls: Calls, seconds: float, threads: int = 1, whole: Callable[[], bool] = lambda: True
) -> dict[str, Turns]:
    """Each has a turn in every round, of `WARM_S` and `TURN_S`; two rounds are left out.  The order is another one in
    every round: a product with a matrix of 64 MB takes 1.4 times as long behind a library that reads a copy of its own
    as behind one that reads the same array, and nobody is to have the same neighbour always.  With several ``threads``
    a turn begins where nobody else's threads spin.  One before or behind which the cores are not ``whole`` (another
    machine takes of them) is taken again; first calls are then behind what found this out."""
    for _ in range(2):
        for call in calls.values():
            call()
    times = {name: Turns([], []) for name in calls}
    orders = _orders(list(calls))
    started = time.perf_counter()
    rounds = 0
    while rounds < LEAST_ROUNDS or (time.perf_counter() - started < seconds and rounds < MOST_ROUNDS):
        for name in next(orders):
            first, again = _whole_turn(calls[name], threads, whole)
            times[name].first.append(first)
            times[name].again.append(again)
        rounds += 1
    return times


def _orders(names: list[str]) -> Iterator[list[str]]:
    """The names in any order, none of which begins with who was the last of the order before, where there are two."""
    chance, order = random.Random(1), names
    while True:
        last = order[-1]
        order = chance.sample(names, len(names))
        if len(names) > 1 and order[0] == last:
            order.reverse()
        yield order


def _once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _turn(call: Callable[[], object]) -> tuple[float, float]:
    """(Wall seconds of a first call, median of those for `TURN_S` behind it and others, for `WARM_S` and at least one).

    The first one pays for what others left: their data in the caches and, with several threads, its own threads
    asleep.  So do the next few: copying 16 MB took 3.1, 3.3 and 1.5 ms before it took 1.24 ms, also behind a sleep.
    What follows is compared with the roofline, whose probes too repeat in caches of their own.
    """
    first = _once(call)
    warm = first + _once(call)
    while warm < WARM_S:
        warm += _once(call)
    found = [_once(call)]
    while sum(found) < TURN_S:
        found.append(_once(call))
    return first, median(found)


def _whole_turn(call: Callable[[], object], threads: int, whole: Callable[[], bool]) -> tuple[float, float]:
    """A `_turn` before and behind which the cores are whole.  Raises SystemExit where there is none in `SPELL_S`."""

    def settled() -> bool:
        if threads > 1:
            settle()
        return whole()

    end = time.perf_counter() + SPELL_S
    while time.perf_counter() < end:
        if settled():
            found = _turn(call)
            if settled():
                return found
    raise SystemExit(f"the cores of this machine were not whole for {SPELL_S:g} s: somebody else takes of them")


SPELL_S = 120.0
WARM_S = 4e-3
TURN_S, LOOK_S, QUIET, PATIENCE_S = 4e-3, 4e-3, 0.05, 2.0


def settle() -> None:
    """Waits until the threads of this process use less than a twentieth of a core.

    Threads of OpenMP, OpenBLAS and others spin for milliseconds after their work, in wait of more: whoever comes next
    has that much less of the machine (a product of 1024 x 1024 matrices took 14 ms behind NumPy's, and 7.4 else).
    Raises SystemExit where they never do: nothing timed then would be of one library alone.
    """
    end = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < end:
        start, used = time.perf_counter(), time.process_time()
        time.sleep(LOOK_S)
        if time.process_time() - used < QUIET * (time.perf_counter() - start):
            return
    raise SystemExit(f"threads of this process are still at work {PATIENCE_S} s after the last call")


KEPT_SAMPLES = 40


def thinned(values: list[float], count: int = KEPT_SAMPLES) -> list[float]:
    """At most ``count`` of the values, evenly spread over the run: what `rollergen bench compare` tests."""
    step = max(1, -(-len(values) // count))
    return [float(f"{value:.5g}") for value in values[::step]]
