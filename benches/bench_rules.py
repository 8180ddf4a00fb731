"""What each alignment rule does to the space: ``python benches/bench_rules.py [--devices a,b] [--measured]``.

For each rule and device: the tiles that are left with every rule, how many times as many there are without the rule,
the processor time of construction and the predicted time of the first choice, each over those with every rule.  Where
a rule rejects none of the tiles that it judges, the table says so: the digits that are tried imply it.
``--measured``: for this machine's CPU also the time of the first choice without the rule over that with every rule, in
turns on one core.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import click
from bench_ablation import CASES
from results import keep
from rich.console import Console
from rich.table import Table
from timing import alternate, checked

from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.options import BuildOptions
from rollergen.hal.spec import Device
from rollergen.research import planned
from rollergen.space.rules import BANK, SWITCHES
from rollergen.targets import resolve
from rollergen.tile.rules import AlignmentRules


class Made(NamedTuple):
    """Of one case: tiles left, processor seconds, predicted seconds, tiles that each rule rejected."""

    tiles: int
    construction: float
    predicted: float
    rejected: dict[str, int]


def made(make: Any, device: Device, rules: AlignmentRules) -> Made:
    options = BuildOptions(alignment=rules)
    graph = planned(make(), device, options)
    choice.cache_clear()
    begin = time.process_time()
    first = construct(graph, device, options, 1)[0]
    spent = time.process_time() - begin
    accounts = [choice(op, device, options.rules, 10).account for op in graph.tensor_ops]
    rejected: dict[str, int] = {}
    for account in accounts:
        for name, count in account.rejections:
            rejected[name] = rejected.get(name, 0) + count
    left = sum(account.considered for account in accounts) - sum(rejected.values())
    return Made(left, spent, first.seconds, rejected)


def row(device: Device, switch: str, cases: dict[str, Any]) -> dict[str, Any]:
    """The rule's line: sums and geometric means over the cases."""
    every = [made(make, device, AlignmentRules()) for make in cases.values()]
    without = [made(make, device, AlignmentRules(**{switch: False})) for make in cases.values()]
    rejected = sum(one.rejected.get(SWITCHES[switch], 0) for one in every)
    tiles = sum(one.tiles for one in every)
    return {
        "device": device.name,
        "rule": SWITCHES[switch],
        "tiles": tiles,
        "rejected": rejected,
        "times the tiles": sum(one.tiles for one in without) / tiles,
        "times the construction": sum(one.construction for one in without) / sum(one.construction for one in every),
        "predicted": geometric_mean(b.predicted / a.predicted for a, b in zip(every, without, strict=True)),
    }


SECONDS = 1.0
"""Of timing each pair of kernels, at least."""


def measured(switch: str, cases: dict[str, Any]) -> dict[str, float]:
    """Of each case whose first choice the rule changes: time without the rule over that with every rule."""
    found = {}
    for name, make in cases.items():
        options = {off: BuildOptions(alignment=AlignmentRules(**({switch: False} if off else {}))) for off in (0, 1)}
        built = {off: checked(name, make(), 1, options=one) for off, one in options.items()}
        if built[0].kernel.program != built[1].kernel.program:
            times = alternate({str(off): one.call for off, one in built.items()}, SECONDS)
            found[name] = median(times["1"]) / median(times["0"])
    return found


@click.command()
@click.option("--devices", default="v100,mi50,cpu,ipu", show_default=True)
@click.option("--case", default="", help="Only cases whose name contains this text.")
@click.option("--measured", "measures", is_flag=True, help="Measure first choices on this machine's CPU, too.")
def main(devices: str, case: str, measures: bool) -> None:
    if measures:  # before the CPU's spec is completed: for the one core that is measured on
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cases = {name: make for name, make in CASES.items() if case in name}
    rows = [row(resolve(device), switch, cases) for device in devices.split(",") for switch in SWITCHES]
    table = Table("device", "rule", "tiles left", "rejected", "tiles without", "construction", "predicted, first")
    for one in rows:
        rejected = f"{one['rejected']:,}" if one["rejected"] else "none" if one["rule"] == BANK else "none: implied"
        times = [f"x{one[name]:.2f}" for name in ("times the tiles", "times the construction")]
        table.add_row(one["device"], one["rule"], f"{one['tiles']:,}", rejected, *times, f"x{one['predicted']:.4f}")
    Console(width=130).print(table)
    content: dict[str, Any] = {"rows": rows}
    for switch in SWITCHES if measures else ():
        own = content.setdefault("measured", {})[SWITCHES[switch]] = measured(switch, cases)
        click.echo(f"{SWITCHES[switch]}: {', '.join(f'{name} x{x:.3f}' for name, x in own.items()) or 'same programs'}")
    if not case:
        click.echo(f"kept in {keep('rules', content)}")


if __name__ == "__main__":
    main()
