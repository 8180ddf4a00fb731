"""Speed on one core against NumPy and PyTorch: ``python benches/bench_speed.py [--case TEXT] [--seconds S]``.

Each case, in a process of its own, is built, checked against its float64 definition, then timed:
``kernel(*arrays, out=c)`` and the peer's call alternate in this one process, and the median of the rounds'
ratios is compared with the target. Caches are warm: every call finds what the previous one left.
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
from statistics import median, quantiles
from typing import Any

from operators import CASES, Case
from results import keep
from rich.console import Console
from rich.table import Table
from timing import alone, alternate, checked, thinned


def measure(case: Case, seconds: float, top_k: int | None) -> dict[str, Any]:
    own = checked(case.name, case.make(), top_k)
    times = alternate({"ours": own.call, "peer": case.peer(own.arrays)}, seconds)
    ours, peers = times["ours"], times["peer"]
    ratios = [theirs / mine for mine, theirs in zip(ours, peers, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return {
        "case": case.name,
        "peer": case.peer_name,
        "target": case.target,
        "ratio": median(ratios),
        "ratio_quartiles": [low, high],
        "samples": thinned(ratios),
        "met": median(ratios) >= case.target,
        "ours_seconds": median(ours),
        "peer_seconds": median(peers),
        "rate": case.work / median(ours) / 1e9,
        "unit": case.unit,
        "predicted_seconds": own.kernel.predicted_time,
        "rounds": len(ratios),
        "compared_elements": own.compared,
        "build_seconds": own.build_seconds,
        "launches": len(own.kernel.launches),
        "chosen_rank": next(c.rank for c in own.kernel.candidates if c.program is own.kernel.program) + 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--seconds", type=float, default=2.0, help="least seconds of timing for each case")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--top-k", type=int, default=None, help="candidates to measure at build")
    arguments = parser.parse_args()
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        raise SystemExit('PyTorch is missing; pip install -e ".[cpu,bench]"') from None
    top_k = () if arguments.top_k is None else ("--top-k", str(arguments.top_k))
    console = Console(width=130)
    table = Table("case", "peer", "ours", "peer's", "rate", "ratio", "target", "met", title=f"one core (number {CORE})")
    found = []
    for case in CASES:
        if case.name == arguments.alone:
            print(json.dumps(measure(case, arguments.seconds, arguments.top_k)))
        elif not arguments.alone and arguments.case in case.name:
            one = alone(__file__, case.name, arguments.seconds, *top_k)
            found.append(one)
            console.print(f"{case.name}: {one['ratio']:.3f} (target {case.target})")
            times = (f"{one[who] * 1e3:.3f} ms" for who in ("ours_seconds", "peer_seconds"))
            rate, met = f"{one['rate']:.4g} {one['unit']}", "yes" if one["met"] else "no"
            table.add_row(case.name, case.peer_name, *times, rate, f"{one['ratio']:.3f}", f"{case.target}", met)
    if arguments.alone:
        return
    console.print(table)
    if not arguments.case:
        console.print(f"kept in {keep('speed', {'cache': 'warm', 'cases': found})}")


if __name__ == "__main__":
    main()
