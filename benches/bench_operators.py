"""Every class of operators on one core: ``python benches/bench_operators.py [--case TEXT] [--kind K] [--seconds S]``.

Each case, in a process of its own, is built, checked against its float64 definition, then timed:
``kernel(*arrays, out=y)`` and every peer's call take turns in this one process. A case's ratio is the smallest,
over the peers, of the median of peer time over ours; a class' is the mean of its cases'.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
CORE = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})

import argparse
import json
from statistics import mean, median
from typing import Any

from operator_cases import CASES, Case
from results import keep
from rich.console import Console
from rich.table import Table
from timing import Calls, alone, alternate, checked

CLASS_TARGET, LEAST_CLASS = 1.0, 0.85


def measure(case: Case, seconds: float) -> dict[str, Any]:
    ours = checked(case.name, case.make())
    calls: Calls = {"rollergen": ours.call}
    missing = {}
    for name, peer in case.peers.items():
        try:
            calls[name] = peer(ours.arrays)
        except ImportError as error:
            missing[name] = str(error)
    times = alternate(calls, seconds)
    own = times.pop("rollergen")
    ratios = {name: median(t / o for o, t in zip(own, theirs, strict=True)) for name, theirs in times.items()}
    return {
        "kind": case.kind, "case": case.name, "ratio": min(ratios.values()), "ratios": ratios, "missing": missing,
        "ours_seconds": median(own), "seconds": {name: median(t) for name, t in times.items()},
        "predicted_seconds": ours.kernel.predicted_time, "rounds": len(own), "build_seconds": ours.build_seconds,
        "launches": len(ours.kernel.launches),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--kind", default="", help="only this class")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of timing for each case")
    arguments = parser.parse_args()
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        raise SystemExit('PyTorch is missing; pip install -e ".[cpu,bench]"') from None
    console = Console(width=150)
    columns = ("class", "case", "ours", "best peer", "its time", "ratio", "all ratios")
    table = Table(*columns, title=f"one core (number {CORE})")
    found = []
    for case in CASES:
        if case.name == arguments.alone:
            print(json.dumps(measure(case, arguments.seconds)))
            return
    for case in CASES:
        if arguments.case not in case.name or arguments.kind not in case.kind:
            continue
        one = alone(__file__, case.name, arguments.seconds)
        found.append(one)
        best = min(one["ratios"], key=lambda name: one["ratios"][name])
        every = " ".join(f"{name} {ratio:.2f}" for name, ratio in one["ratios"].items())
        console.print(f"{case.name}: {one['ratio']:.3f} ({every})")
        times = f"{one['ours_seconds'] * 1e3:.3f} ms", best, f"{one['seconds'][best] * 1e3:.3f} ms"
        table.add_row(case.kind, case.name, *times, f"{one['ratio']:.3f}", every)
    console.print(table)
    kinds = dict.fromkeys(one["kind"] for one in found)
    classes = {kind: mean(one["ratio"] for one in found if one["kind"] == kind) for kind in kinds}
    overall = mean(classes.values())
    for kind, ratio in classes.items():
        console.print(f"{kind}: {ratio:.3f} (at least {LEAST_CLASS})")
    console.print(f"mean of class means: {overall:.3f} (at least {CLASS_TARGET})")
    if not arguments.case and not arguments.kind:
        content = {"cache": "warm", "cases": found, "classes": classes, "mean": overall}
        console.print(f"kept in {keep('operators', content)}")


if __name__ == "__main__":
    main()
