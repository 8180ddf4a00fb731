"""What regime maps lose: ``python benches/bench_sizes.py [--device NAME ...] [--case TEXT] [--sizes N]``.

For each operator and device one map of sizes from 1 to 4,096 (batches: to 256), and N random sizes that were not chosen
with regard to it: the predicted time of the best kept program at each, over that of the first choice constructed for
that very size.  Of maps with fewer programs the first so many are kept: they are chosen greedily.  Sizes at which the
expression is another one have a kernel of their own, of ratio 1; they are counted apart.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from results import keep
from rich.console import Console
from rich.table import Table

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import planned
from rollergen.options import BuildOptions
from rollergen.sizes.regime import Expression, Reference, RegimeMap, priced, prices_of, regime_map
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
    regime = regime_map(expression, device, BuildOptions(), most=max(programs))
    seconds = time.perf_counter() - start
    assert regime is not None, f"{case} on {device_name} has no map"
    draw = random.Random(seed)
    sizes = sorted(draw.sample(range(1, high + 1), min(count, high)))
    reference = Reference(expression, device)
    open_ = [size for size in sizes if reference.open_at({"S": size}) is not None]
    first = np.array([_first(outputs.at({"S": size}), device) for size in open_])
    kept = prices_of(regime.plans, open_, device)
    return {
        "case": case, "device": device_name, "sizes": len(open_), "with a kernel of their own": len(sizes) - len(open_),
        "built in s": seconds, "programs": len(regime.plans), "intervals": len(regime.intervals()),
        **{f"{n} programs": _figures(kept[:n].min(axis=0) / first) for n in programs},
        "worst sizes": _worst(regime, kept[: programs[-1]].min(axis=0) / first, open_),
    }  # fmt: skip


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


def _worst(regime: RegimeMap, ratios: np.ndarray, sizes: list[int]) -> dict[str, float]:
    return {str(sizes[n]): float(ratios[n]) for n in np.argsort(-ratios)[:5]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="*", default=DEVICES)
    parser.add_argument("--case", default="", help="a part of the case's name")
    parser.add_argument("--sizes", type=int, default=300)
    parser.add_argument("--programs", type=int, nargs="*", default=[4, 8, 16])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console, rows = Console(width=160), []
    for device in arguments.device:
        table = Table(f"on {device}", *(f"{n} programs: geomean / p95 / max" for n in arguments.programs), "built in s")
        for case in [one for one in CASES if arguments.case in one]:
            row = losses(case, device, arguments.sizes, arguments.programs, arguments.seed)
            each = [row[f"{n} programs"] for n in arguments.programs]
            figures = [f"{one['geomean']:.3f} / {one['p95']:.3f} / {one['max']:.3f}" for one in each]
            table.add_row(case, *figures, f"{row['built in s']:.1f}")
            print(f"{device} {case}: {figures} {row['worst sizes']}", flush=True)
            rows.append(row)
        console.print(table)
        if not arguments.case:
            keep(f"sizes_{device}", {"rows": [row for row in rows if row["device"] == device]})


if __name__ == "__main__":
    main()
