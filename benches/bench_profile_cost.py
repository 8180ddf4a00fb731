"""What a profiled build costs on this machine's CPU: ``python benches/bench_profile_cost.py``.

ROLLER's operators, cut to sizes of a few milliseconds here, each built twice by `rg.build` without rollergen's own
cache: with an empty compiler cache (emptied before each operator, as some share kernels), then with what the first
build left in it (nothing that construction found is kept).  Wall seconds of the whole build, and of its parts:
compiling (the compiler leaves a part of it for the first launch, which is in checking), checking, timing (all runs that
were timed), and the rest (construction, emission).  Processor seconds of this process stand beside them, for a machine
that others use too.  Rows are kept as they come, in results/profile_cost_<cpu>_<day>.json, and not measured again by
the same code (``--again`` does).  Exits with 1 where all operators are measured and an aim is missed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import click
from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.aims import Aim, verdict
from benches.bench_suites import forget
from benches.results import begun, keep, result_path
from rollergen.bench.suites import Entry, suite
from tests.agreement.cutting import cut

POINTS, BYTES = 1 << 26, 1 << 25
TARGETS_S = {"cold": 2.5, "compiled before": 0.3}
PARTS = ("compile", "check", "timing", "rest")
NAME = "profile_cost"
Row = dict[str, Any]


def built(entry: Entry) -> dict[str, float]:
    """Seconds of one build and of its parts."""
    forget()
    expression = entry.build(cut(entry, POINTS, BYTES, images=True))
    start, cpu = time.perf_counter(), time.process_time()
    kernel = rg.build(expression, "cpu", cache=False, profile=True)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    parts = {
        "compile": sum(one.compile_s or 0.0 for one in kernel.candidates),
        "check": sum(one.check_s or 0.0 for one in kernel.candidates),
        "timing": sum(sum(one.times_s) for one in kernel.candidates),
    }
    rest = wall - sum(parts.values())
    figures = {"wall": wall, "cpu": cpu, **parts, "rest": rest, "candidates": len(kernel.candidates)}
    return {name: round(value, 4) for name, value in figures.items()}


def summary(rows: list[Row]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for state, target in TARGETS_S.items():
        walls = [row[state]["wall"] for row in rows]
        total = sum(walls)
        found[state] = {
            "operators": len(rows),
            "median_s": round(median(walls), 3),
            "target_s": target,
            "met": median(walls) <= target,
            "worst_s": round(max(walls), 3),
            "median_cpu_s": round(median(row[state]["cpu"] for row in rows), 3),
            "shares": {part: round(sum(row[state][part] for row in rows) / total, 3) for part in PARTS},
        }
    return found


def aims(found: dict[str, Row]) -> tuple[Aim, ...]:
    return tuple(
        Aim(f"A build with its measurements, {one['operators']} operators, median, {state}", f"{one['median_s']} s",
            f"at most {one['target_s']} s", one["met"])
        for state, one in found.items()
    )  # fmt: skip


@click.command()
@click.option("--only", multiple=True, help="Identifiers of entries.")
@click.option("--again", is_flag=True)
def main(only: tuple[str, ...], again: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="rollergen-compiled-") as directory:
        os.environ["POCL_CACHE_DIR"] = directory  # read at the first use of OpenCL
        judged = measure(only, again, Path(directory))
    sys.exit(verdict(judged))


def emptied(compiled: Path) -> None:
    """Drops what the compiler keeps of earlier programs: PoCL's folders are named by two letters of a hash."""
    for folder in compiled.glob("[A-Z][A-Z]"):
        shutil.rmtree(folder, ignore_errors=True)


def measure(only: tuple[str, ...], again: bool, compiled: Path) -> tuple[Aim, ...]:
    """The aims, where all operators are measured."""
    before = begun(result_path(NAME)).get("rows", [])
    rows: dict[str, Row] = {} if again else {row["id"]: row for row in before}
    rg.build(rg.ops.relu(rg.tensor("x", (64,))), "cpu", cache=False)  # imports, probes, the runtime
    for entry in suite("roller").entries:
        if entry.id not in rows and (not only or entry.id in only):
            emptied(compiled)
            rows[entry.id] = {"id": entry.id, "kind": entry.kind, **{state: built(entry) for state in TARGETS_S}}
            print(rows[entry.id], file=sys.stderr, flush=True)
            load = [round(one, 1) for one in os.getloadavg()]
            listed = list(rows.values())
            found = summary(listed)
            judged = [one.headline() for one in aims(found)]
            keep(NAME, {"headlines": judged, "load_average": load, "summary": found, "rows": listed})
    table = Table("compiler cache", "operators", "median s", "target", "worst s", "median cpu s", "shares")
    found = summary(list(rows.values()))
    for state, line in found.items():
        shares = ", ".join(f"{part} {share:.0%}" for part, share in line["shares"].items())
        cells = (line[name] for name in ("operators", "median_s", "target_s", "worst_s", "median_cpu_s"))
        table.add_row(state, *map(str, cells), shares)
    Console(width=140).print(table)
    return aims(found) if all(entry.id in rows for entry in suite("roller").entries) else ()


if __name__ == "__main__":
    main()
