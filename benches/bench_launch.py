"""What calls and launches cost here, and which part of each case's time they are: ``python benches/bench_launch.py``.

First the host time of calls of tiny operators on one core, beside NumPy and PyTorch: the same arrays each time and
others, with and without ``out=`` (`benches.call_costs`); ``chrt -r 5`` before the command keeps other programs away.

A kernel of 16 elements has nothing to do: its call is the launch (Python, and calling PoCL's code), timed as
`bench_operators` times its cases, beside the libraries, on one core and on all of them.  On several cores the threads
of the others have to join where work is not so small that the calling thread does it alone: for how long is the
device's ``wake_us``, as probed on this machine (`rollergen.hal.probes.microbench.wake_us`).  Beside both what the
cases that `bench_operators` kept last would be without their launches, and without waking.
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
from statistics import geometric_mean, mean
from typing import Any

from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.bench_operators import CORES, class_means, measure
from benches.call_costs import TINY, call_costs
from benches.operator_cases import Case
from benches.peers import Operation
from benches.results import RESULTS, keep, machine_kind
from benches.timing import alone
from rollergen.bench.results import newest
from rollergen.targets import resolve

FIGURES = ("roofline share", "without launches", "ratio", "ratio without waking")


def relu(name: str, elements: int) -> Case:
    make = lambda: rg.ops.relu(rg.tensor("X", (elements,)))
    return Case("elementwise", name, make, Operation("relu", (elements,)))


CASES = {case.name: case for case in (relu("relu of 64 B", 16),)}
MODES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "one core": ("operators", ()),
    "all cores": ("operators_all_cores", ("--all-cores",)),
}


def kept_cases(name: str) -> list[dict[str, Any]]:
    """The cases of the newest result of `bench_operators` of this name; none where there is no result."""
    path = newest(RESULTS, f"{machine_kind(name)}_????-??-??.json")
    return json.loads(path.read_text(encoding="utf-8"))["cases"] if path else []


def without(cases: Sequence[dict[str, Any]], launch_s: float, wake_s: float) -> dict[str, Any]:
    """Of each case the share of its time that launches and waking are (of neither side's more than nine tenths are
    taken off); the roofline's share of all as it is, and without them; the best libraries' time over ours, mean of
    class means, as it is and without waking."""
    woken = {one["case"]: min(0.9, one["woken"] * wake_s / one["ours_seconds"]) for one in cases}
    shares = {
        one["case"]: min(0.9, (one["launches"] * launch_s + one["woken"] * wake_s) / one["ours_seconds"])
        for one in cases
    }
    classes = class_means(cases, lambda one: one["ratio"] / (1 - woken[one["case"]]))
    free = geometric_mean(min(1.0, one["roofline_share"] / (1 - shares[one["case"]])) for one in cases)
    return {
        "roofline share": geometric_mean(min(1.0, one["roofline_share"]) for one in cases),
        "without launches": free,
        "ratio": mean(class_means(cases, lambda one: one["ratio"]).values()),
        "ratio without waking": mean(classes.values()),
        "classes without waking": classes,
        "launches' share of the time": shares,
    }


def calls_table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Microseconds of a call: a row for each operator and caller, a column for each way of calling."""
    ways = list(next(iter(next(iter(found.values())).values())))
    table = Table("us a call", "by", *ways)
    for case, callers in found.items():
        for who, seconds in callers.items():
            table.add_row(case, who, *(f"{1e6 * seconds[way]:.2f}" for way in ways))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--calls", action="store_true", help="only the host time of calls")
    parser.add_argument("--seconds", type=float, default=2.0, help="least seconds of timing")
    parser.add_argument("--all-cores", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone in TINY:
        print(json.dumps(call_costs(given.alone)))
        return
    if given.alone:
        wake_s = resolve("cpu").wake_us * 1e-6
        print(json.dumps({**measure(CASES[given.alone], given.seconds), "cores": len(CORES), "wake": wake_s}))
        return
    os.sched_setaffinity(0, PRESENT)  # for the processes of the cases
    console = Console(width=120)
    found: dict[str, Any] = {"calls": {case: alone(__file__, case, given.seconds) for case in TINY}}
    console.print(calls_table(found["calls"]))
    if given.calls:
        console.print(f"kept in {keep('launch_calls', found)}")
        return
    table = Table("cores", "call", "ours", "waking", "the libraries' calls", *FIGURES)
    for mode, (name, options) in MODES.items():
        for one in [alone(__file__, case, given.seconds, *options) for case in CASES]:
            cases = kept_cases(name)
            found[mode] = {
                "cores": one["cores"], "wake seconds": one["wake"],
                "seconds": {one["case"]: {"rollergen": one["ours_seconds"], **one["seconds"]}},
                **(without(cases, one["ours_seconds"], one["wake"]) if cases else {}),
            }  # fmt: skip
            told = ", ".join(f"{who} {1e6 * s:.1f} us" for who, s in one["seconds"].items())
            figures = [f"{found[mode][key]:.3f}" if cases else "" for key in FIGURES]
            own = (f"{1e6 * one['ours_seconds']:.1f} us", f"{1e6 * one['wake']:.1f} us")
            table.add_row(mode, one["case"], *own, told, *figures)
    console.print(table)
    console.print(f"kept in {keep('launch', found)}")


if __name__ == "__main__":
    main()
