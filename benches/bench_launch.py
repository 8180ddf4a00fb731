"""What a launch costs here, and which part of each case's time it is: ``python benches/bench_launch.py``.

A kernel of 16 elements has nothing to do: its call is the launch (Python, pyopencl, PoCL's queue); one of 16 KB has
little to do, but several blocks where there are several cores: what it takes longer is waking the threads that sleep.
Both are timed as `bench_operators` times its cases, beside the libraries, on one core and on all of them.  Beside them
what the cases that `bench_operators` kept last would be without their launches (each as long as the longer of both).
"""

from __future__ import annotations

# ruff: noqa: E402
import os
import sys
from pathlib import Path

PRESENT = os.sched_getaffinity(0)
"""Cores of this process, of which `bench_operators` keeps one when it is imported."""
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse
import json
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.bench_operators import CORES, measure
from benches.operator_cases import Case
from benches.peers import Operation
from benches.results import RESULTS, keep, machine_kind
from benches.timing import alone
from rollergen.bench.results import newest


def relu(name: str, elements: int) -> Case:
    make = lambda: rg.ops.relu(rg.tensor("X", (elements,)))
    return Case("elementwise", name, make, Operation("relu", (elements,)))


CASES = {case.name: case for case in (relu("relu of 64 B", 16), relu("relu of 16 KB", 4096))}
MODES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "one core": ("operators", ()),
    "all cores": ("operators_all_cores", ("--all-cores",)),
}


def kept_cases(name: str) -> list[dict[str, Any]]:
    """The cases of the newest result of `bench_operators` of this name; none where there is no result."""
    path = newest(RESULTS, f"{machine_kind(name)}_????-??-??.json")
    return json.loads(path.read_text(encoding="utf-8"))["cases"] if path else []


def without(cases: Sequence[dict[str, Any]], launch_s: float) -> dict[str, Any]:
    """Of each case the share of its time that launches are; the roofline's share of all as it is, and without them
    (of neither side's launches more than nine tenths of the time are taken off)."""
    shares = {one["case"]: min(0.9, one["launches"] * launch_s / one["ours_seconds"]) for one in cases}
    plain = geometric_mean(min(1.0, one["roofline_share"]) for one in cases)
    free = geometric_mean(min(1.0, one["roofline_share"] / (1 - shares[one["case"]])) for one in cases)
    return {"roofline share": plain, "without launches": free, "launches' share of the time": shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=2.0, help="least seconds of timing")
    parser.add_argument("--all-cores", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        print(json.dumps({**measure(CASES[given.alone], given.seconds), "cores": len(CORES)}))
        return
    os.sched_setaffinity(0, PRESENT)  # for the processes of the cases
    console, found = Console(width=120), {}
    table = Table("cores", "call", "ours", "the libraries' calls", "roofline share", "without launches")
    for mode, (name, options) in MODES.items():
        calls = [alone(__file__, case, given.seconds, *options) for case in CASES]
        cases, longest = kept_cases(name), max(one["ours_seconds"] for one in calls)
        seconds = {one["case"]: {"rollergen": one["ours_seconds"], **one["seconds"]} for one in calls}
        found[mode] = {"cores": calls[0]["cores"], "seconds": seconds, **(without(cases, longest) if cases else {})}
        shares = [f"{found[mode][key]:.3f}" if cases else "" for key in ("roofline share", "without launches")]
        for one in calls:
            told = ", ".join(f"{who} {1e6 * s:.1f} us" for who, s in one["seconds"].items())
            table.add_row(mode, one["case"], f"{1e6 * one['ours_seconds']:.1f} us", told, *shares)
    console.print(table)
    console.print(f"kept in {keep('launch', found)}")


if __name__ == "__main__":
    main()
