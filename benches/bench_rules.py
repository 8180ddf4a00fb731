"""What each alignment rule does to the space: ``python benches/bench_rules.py [--devices a,b] [--case TEXT]``.

For each rule and device: the tiles that are left with every rule, how many times as many there are without the rule,
the processor time of construction and the predicted time of the first choice, each over those with every rule.  Where
a rule rejects none of the tiles that it judges, the table says so: the digits that are tried imply it.  Nothing is
measured (`bench_ablation` does that for this machine's CPU).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import click
from bench_ablation import CASES
from results import keep
from rich.console import Console
from rich.table import Table

from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.hal.spec import Device
from rollergen.options import BuildOptions
from rollergen.research import planned
from rollergen.space.rules import ALIGNMENT
from rollergen.targets import resolve
from rollergen.tile.rules import AlignmentRules

BANK = "memory bank (in assembly)"
SWITCHES = {**{rule.switch: rule.name for rule in ALIGNMENT}, "bank": BANK}


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


@click.command()
@click.option("--devices", default="v100,mi50,cpu,ipu", show_default=True)
@click.option("--case", default="", help="Only cases whose name contains this text.")
def main(devices: str, case: str) -> None:
    cases = {name: make for name, make in CASES.items() if case in name}
    rows = [row(resolve(device), switch, cases) for device in devices.split(",") for switch in SWITCHES]
    table = Table("device", "rule", "tiles left", "rejected", "tiles without", "construction", "predicted, first")
    for one in rows:
        rejected = f"{one['rejected']:,}" if one["rejected"] else "none" if one["rule"] == BANK else "none: implied"
        times = [f"x{one[name]:.2f}" for name in ("times the tiles", "times the construction")]
        table.add_row(one["device"], one["rule"], f"{one['tiles']:,}", rejected, *times, f"x{one['predicted']:.4f}")
    Console(width=130).print(table)
    if not case:
        click.echo(f"kept in {keep('rules', {'rows': rows})}")


if __name__ == "__main__":
    main()
