"""Strategies of construction side by side: ``python benches/bench_search.py [--devices a,b] [--measured]``.

For each contraction of ROLLER's 119 operators and each device: the predicted time of the first choice of grown tiles
(``search="grow"``) over that of all aligned ones (``search="all"``), and the processor time of either.  ``--measured``:
the same for the contractions of the CPU's list, each strategy's first choice measured in turns on one core.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import click
from operator_cases import CASES
from results import keep
from rich.console import Console
from rich.table import Table
from timing import alternate, checked

import rollergen as rg
from rollergen.bench.suites import suite
from rollergen.construct.choose import choice
from rollergen.construct.options import GROW, BuildOptions
from rollergen.construct.roles import CONTRACTION, kind_of
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.load import device_names
from rollergen.hal.spec import Device
from rollergen.research import planned
from rollergen.targets import resolve

SECONDS = 1.0
"""Of timing each pair of kernels, at least."""
AHEAD = 1.005
"""Times as fast as the first choice from which on a grown program is one that construction should have found."""


def contractions(device: Device) -> Iterator[tuple[str, TensorOp]]:
    for entry in suite("roller").entries:
        try:
            graph = planned(entry.make(), device, BuildOptions())
        except rg.errors.DoesNotFitError:
            continue
        yield from ((entry.id, one) for one in graph.tensor_ops if kind_of(one) == CONTRACTION)


def chosen(op: TensorOp, device: Device, search: str) -> tuple[float, float]:
    """(predicted seconds of the first choice, processor seconds of making it)."""
    choice.cache_clear()
    begin = time.process_time()
    found = choice(op, device, BuildOptions().rules, 10, None, search).candidates
    return (found[0].seconds if found else float("inf")), time.process_time() - begin


def predicted(device: Device) -> dict[str, Any]:
    """The device's line: geometric means over its contractions."""
    rows = []
    for name, op in contractions(device):
        grown, every = (chosen(op, device, search) for search in ("grow", "all"))
        rows.append((name, grown[0] / every[0], grown[1] / every[1]))
    return {
        "device": device.name,
        "contractions": len(rows),
        "predicted, grow over all": geometric_mean(row[1] for row in rows if isfinite(row[1])),
        "construction, grow over all": geometric_mean(row[2] for row in rows),
        "grown ahead": [row[0] for row in rows if row[1] < 1 / AHEAD],
        "no grown tile is aligned": [row[0] for row in rows if not isfinite(row[1])],
    }


def measured() -> list[dict[str, Any]]:
    """Each contraction of the CPU's list: times of the grown kernel over those of the first choice, in turns."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = []
    for case in CASES:
        graph = planned(case.make(), resolve("cpu"), BuildOptions())
        if not any(kind_of(one) == CONTRACTION for one in graph.tensor_ops):
            continue
        options = {search: BuildOptions(search=search) for search in ("all", "grow")}
        built = {search: checked(case.name, case.make(), 1, options=one) for search, one in options.items()}
        ratio = 1.0
        if built["all"].kernel.program != built["grow"].kernel.program:
            times = alternate({search: one.call for search, one in built.items()}, SECONDS)
            ratio = median(times["grow"]) / median(times["all"])
        rows.append({"case": case.name, "measured, grow over all": ratio})
        click.echo(f"{case.name}: {ratio:.3f}")
    return rows


@click.command()
@click.option("--devices", default=",".join(device_names()), help="Default: all built-in ones.")
@click.option("--measured", "measures", is_flag=True, help="Measure the CPU's list, too.")
def main(devices: str, measures: bool) -> None:
    rows = [predicted(resolve(device)) for device in devices.split(",") if device]
    table = Table("device", "contractions", "predicted, grow over all", "construction", f"ahead by {AHEAD}")
    for row in rows:
        figures = [f"x{row[name]:.3f}" for name in ("predicted, grow over all", "construction, grow over all")]
        table.add_row(row["device"], str(row["contractions"]), *figures, ", ".join(row["grown ahead"]) or "none")
    Console(width=130).print(table)
    if rows:
        click.echo(f"kept in {keep('search', {'rows': rows, 'search': GROW})}")
    if measures:
        found = measured()
        mean = geometric_mean(row["measured, grow over all"] for row in found)
        click.echo(f"measured, geometric mean: {mean:.3f}")
        click.echo(f"kept in {keep('search_measured', {'measured': found, 'measured, geometric mean': mean})}")


if __name__ == "__main__":
    main()
