"""What each alignment rule is worth, as in ROLLER's Table 3: ``python benches/bench_ablation.py [--case TEXT]``.

The rules are switched on one after another, from none to all.  For the GPUs: the model's time of the program that
construction then puts first (on every step the whole model prices, only the choice is restricted).  For this
machine's CPU: measured, the five kernels in turns, one core.  Figures are times over that of all rules.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import argparse
from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean, median
from typing import Any

from results import keep
from rich.console import Console
from rich.table import Table
from timing import alternate, checked

import rollergen as rg
from rollergen.space.rules import SWITCHES
from rollergen.tile.rules import AlignmentRules

PREDICTED = ("v100", "mi50")
T = rg.tensor

CASES: dict[str, Callable[[], Any]] = {
    "matmul 1024x1024x1024": lambda: rg.ops.matmul(T("A", (1024, 1024)), T("B", (1024, 1024))),
    "matmul 997x997x997": lambda: rg.ops.matmul(T("A", (997, 997)), T("B", (997, 997))),
    "matmul 65x1030x2050": lambda: rg.ops.matmul(T("A", (65, 2050)), T("B", (2050, 1030))),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (1, 64, 56, 56)), T("W", (64, 64, 3, 3)), padding=1),
    "conv 7x7/2": lambda: rg.ops.conv2d(T("X", (1, 3, 224, 224)), T("W", (64, 3, 7, 7)), stride=2, padding=3),
    "sum of rows": lambda: rg.ops.sum(T("X", (4096, 1024)), 1),
    "softmax": lambda: rg.ops.softmax(T("X", (2048, 1000))),
    "transpose": lambda: rg.ops.t(T("X", (2048, 2048))),
}


def steps() -> dict[str, AlignmentRules]:
    """Rules by what the step adds."""
    rules = AlignmentRules(**dict.fromkeys(SWITCHES, False))
    found = {"none": rules}
    for name in SWITCHES:
        rules = replace(rules, **{name: True})
        found["+ " + name.replace("_", " ")] = rules
    return found


def predicted(make: Callable[[], Any], device: str, rules: AlignmentRules) -> float:
    options = rg.BuildOptions(alignment=rules)
    return rg.build(make(), device, top_k=1, profile=False, cache=False, options=options).predicted_time


def measured(name: str, make: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Median wall seconds of the model's first choice under each set of rules."""
    calls = {
        step: checked(name, make(), 1, options=rg.BuildOptions(alignment=rules)).call for step, rules in steps().items()
    }
    return {step: median(times) for step, times in alternate(calls, seconds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of timing for each case")
    arguments = parser.parse_args()
    console = Console(width=130)
    rows: list[dict[str, Any]] = []
    for name, make in CASES.items():
        if arguments.case in name:
            times = {d: {step: predicted(make, d, rules) for step, rules in steps().items()} for d in PREDICTED}
            times["cpu"] = measured(name, make, arguments.seconds)
            rows += [{"case": name, "device": device, "seconds": one} for device, one in times.items()]
    last = list(steps())[-1]
    for device, what in (*((d, "predicted") for d in PREDICTED), ("cpu", "measured")):
        table = Table("case", *steps(), title=f"{device}: {what} time over that of all rules")
        own = [row for row in rows if row["device"] == device]
        for row in own:
            shares = [seconds / row["seconds"][last] for seconds in row["seconds"].values()]
            table.add_row(row["case"], *(f"{share:.2f}" for share in shares))
        means = [geometric_mean(row["seconds"][step] / row["seconds"][last] for row in own) for step in steps()]
        table.add_row("geometric mean", *(f"{mean:.2f}" for mean in means))
        console.print(table)
    if not arguments.case:
        console.print(f"kept in {keep('ablation', {'rows': rows})}")


if __name__ == "__main__":
    main()
