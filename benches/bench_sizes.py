"""What regime maps lose: ``python benches/bench_sizes.py [--device NAME ...] [--case TEXT] [--sizes N] [--measured]``.

For each operator and device one map of sizes from 1 to 4,096 (batches: to 256), and N random sizes that were not chosen
with regard to it: the predicted time of the best kept program at each, over that of the first choice constructed for
that very size.  Sizes at which the expression is another one have a kernel of their own, of ratio 1; they are counted
apart.

``--measured``: on this machine's CPU, one core, the kernel for all sizes and the first choice built for each size take
turns on the same arrays; its ratio is the median of the rounds', and its results are those of the other.  A call of the
kernel for all sizes looks its size up: what that takes is the time of `call` less that of the kernel of the size.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

if "--measured" in sys.argv:
    for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from results import begun, keep, result_path
from rich.console import Console
from rich.table import Table

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.sizes.regime import PROGRAMS, Expression, Reference, choice_of, priced, prices_of
from rollergen.targets import resolve

DEVICES = ("v100", "a100", "h200", "mi50", "cpu")
T = rg.tensor

CASES: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "matmul Sx1024x1024": (4096, lambda S: rg.ops.matmul(T("A", (S, 1024)), T("B", (1024, 1024)))),
    "linear + gelu Sx768x3072": (
        4096,
        lambda S: rg.ops.gelu(rg.ops.linear(T("x", (S, 768)), T("w", (3072, 768), constant=True), T("b", (3072,)))),
    ),
    "conv Sx64x28x28, 64 of 3x3": (
        256,
        lambda S: rg.ops.conv2d(T("x", (S, 64, 28, 28)), T("w", (64, 64, 3, 3), constant=True), padding=1),
    ),
    "softmax Sx1000": (4096, lambda S: rg.ops.softmax(T("x", (S, 1000)))),
    "layer norm Sx768": (4096, lambda S: rg.ops.layer_norm(T("x", (S, 768)), 768, T("g", (768,)), T("b", (768,)))),
}


def losses(case: str, device_name: str, count: int, programs: list[int], seed: int) -> dict[str, Any]:
    high, make = CASES[case]
    device, outputs = resolve(device_name), make(rg.dim("S", 1, high))
    expression = Expression(outputs, None, outputs.dims)
    start = time.perf_counter()
    choice = choice_of(expression, device, BuildOptions())
    assert choice is not None, f"{case} on {device_name} has no map"
    maps = {most: choice.map(most) for most in (*programs, PROGRAMS)}
    regime = maps[PROGRAMS]
    seconds = time.perf_counter() - start
    draw = random.Random(seed)
    sizes = sorted(draw.sample(range(1, high + 1), min(count, high)))
    reference = Reference(expression, device)
    open_ = [size for size in sizes if reference.open_at({"S": size}) is not None]
    first = np.array([_first(outputs.at({"S": size}), device) for size in open_])
    kept = {most: prices_of(one.plans, open_, device).min(axis=0) / first for most, one in maps.items()}
    return {
        "case": case, "device": device_name, "sizes": len(open_), "with a kernel of their own": len(sizes) - len(open_),
        "built in s": seconds, "programs": len(regime.plans), "intervals": len(regime.intervals()),
        **{f"{n} programs": _figures(kept[n]) for n in programs},
        "worst sizes": _worst(kept[PROGRAMS], open_),
    }  # fmt: skip


ROUNDS, LEAST_S, CALLS = 5, 2e-3, 2000
"""Turns of each kernel at a size, how long one lasts at least, and calls of one by which its look-up is timed."""


def measured(case: str, count: int, seed: int) -> dict[str, Any]:
    """The kernel for all sizes beside those built for `count` random ones, on the CPU."""
    high, make = CASES[case]
    outputs = make(rg.dim("S", 1, high))
    start = time.perf_counter()
    kernel = rg.build(outputs, "cpu", profile=False, cache=False)
    seconds, ratios = time.perf_counter() - start, {}
    sizes = sorted(random.Random(seed).sample(range(1, high + 1), min(count, high)))
    for size in sizes:
        own = rg.build(outputs.at({"S": size}), "cpu", profile=False, cache=False)
        arrays = [_drawn(one.shape) for one in own.signature.inputs]
        calls = {"all": _call(kernel, arrays, own), "own": _call(own, arrays, own)}
        got = {name: call() for name, call in calls.items()}
        apart = 0 if case.startswith(("matmul", "conv")) else 1e-5  # whole numbers: sums of products are exact
        np.testing.assert_allclose(got["all"], got["own"], rtol=apart, atol=apart)
        ratios[size] = _ratio(calls["all"], calls["own"])
    least = kernel.at(S=2)
    arrays = [_drawn(one.shape) for one in least.signature.inputs]
    extra = _looked_up_s(_call(kernel, arrays, least), _call(least, arrays, least))
    return {
        "case": case, "device": "cpu", "sizes": len(sizes), "built in s": seconds, "programs": len(kernel.programs),
        "measured": _figures(np.array([*ratios.values()])), "look-up s": extra,
        "ratios": {str(n): ratio for n, ratio in ratios.items()},
    }  # fmt: skip


def _drawn(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-2, 3, shape).astype("float32")


def _call(kernel: Any, arrays: Sequence[np.ndarray], like: Any) -> Callable[[], Any]:
    out = np.empty(like.signature.outputs[0].shape, "float32")
    return lambda: kernel(*arrays, out=out)


def _ratio(ours: Callable[[], Any], theirs: Callable[[], Any]) -> float:
    return median(_turn(ours) / _turn(theirs) for _ in range(ROUNDS))


def _turn(call: Callable[[], Any]) -> float:
    """Seconds of a call: the median of those of a turn."""
    found: list[float] = []
    while sum(found) < LEAST_S:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return median(found)


def _looked_up_s(looking: Callable[[], Any], direct: Callable[[], Any]) -> float:
    """How much longer a call takes that looks its size up: the median difference of two calls one behind the other,
    each of them the first as often, so that neither what drifts nor who comes second counts."""
    more = []
    for number in range(CALLS):
        seconds = {}
        for call in (looking, direct) if number % 2 else (direct, looking):
            start = time.perf_counter()
            call()
            seconds[call] = time.perf_counter() - start
        more.append(seconds[looking] - seconds[direct])
    return median(more)


def _first(tensor: Any, device: Any) -> float:
    """Predicted seconds of the first choice for one size."""
    chosen = construct(planned(tensor, device), device, BuildOptions(), top_k=1)[0]
    return priced([chosen.program], device)[0]


def _figures(ratios: np.ndarray) -> dict[str, float]:
    ratios = ratios[np.isfinite(ratios)] if np.isfinite(ratios).any() else ratios
    return {
        "geomean": float(np.exp(np.log(ratios).mean())),
        "p95": float(np.percentile(ratios, 95)),
        "max": float(ratios.max()),
        "served": len(ratios),
    }


def _worst(ratios: np.ndarray, sizes: list[int]) -> dict[str, float]:
    return {str(sizes[n]): float(ratios[n]) for n in np.argsort(-ratios)[:5]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="*", default=DEVICES)
    parser.add_argument("--case", default="", help="a part of the case's name")
    parser.add_argument("--sizes", type=int, help="random sizes of a case, 300 unless told")
    parser.add_argument("--programs", type=int, nargs="*", default=[4, 8, 16])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measured", action="store_true", help="60 sizes, unless --sizes says, on this machine's CPU")
    arguments = parser.parse_args()
    if arguments.measured:
        _print_measured(arguments.case, arguments.sizes or 60, arguments.seed)
        return
    console, rows = Console(width=160), []
    for device in arguments.device:
        table = Table(f"on {device}", *(f"{n} programs: geomean / p95 / max" for n in arguments.programs), "built in s")
        for case in [one for one in CASES if arguments.case in one]:
            row = losses(case, device, arguments.sizes or 300, arguments.programs, arguments.seed)
            each = [row[f"{n} programs"] for n in arguments.programs]
            figures = [f"{one['geomean']:.3f} / {one['p95']:.3f} / {one['max']:.3f}" for one in each]
            table.add_row(case, *figures, f"{row['built in s']:.1f}")
            print(f"{device} {case}: {figures} {row['worst sizes']}", flush=True)
            rows.append(row)
        console.print(table)
        if not arguments.case:
            keep(f"sizes_{device}", {"rows": [row for row in rows if row["device"] == device]})


def _print_measured(text: str, sizes: int, seed: int) -> None:
    for case in [one for one in CASES if text in one]:
        row = measured(case, sizes, seed)
        one = row["measured"]
        figures = f"{one['geomean']:.3f} / {one['p95']:.3f} / {one['max']:.3f}"
        print(f"cpu {case}, {sizes} sizes: {figures}, look-up {row['look-up s'] * 1e6:.2f} us", flush=True)
        known = {**{old["case"]: old for old in begun(result_path("sizes_measured")).get("rows", ())}, case: row}
        keep("sizes_measured", {"rows": [known[name] for name in CASES if name in known]})


if __name__ == "__main__":
    main()
