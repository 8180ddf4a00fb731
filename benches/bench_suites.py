"""Construction over whole suites: ``python benches/bench_suites.py [--suite NAME ...] [--device NAME ...]``.

For every operator of a suite and every device: ten candidates constructed, each checked against the program
invariants and the device's limits, each emitted; how many there are, and the time from expression to sources: on
the wall, and of the processor (which a machine shared with others leaves comparable), best of three with every
structure already seen (nothing about the operator itself is kept).  Where there are fewer than ten, ``space``
counts all that are diverse enough to be candidates.  Where a device without a backing store cannot hold the
data, the shortfall in bytes.  Rows are kept as they come, in results/suites_<cpu>_<day>.json, and not measured
again by the same code (`--again` does).  Exits with 1 where an operator has no candidate, or an aim is missed.

``--fresh``: instead, the first build of each distinct structure, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches.aims import Aim, verdict
from benches.results import begun, keep, result_path
from benches.seeds.predicted import forget
from rollergen.bench.suites import Entry, suite, suite_names
from rollergen.construct import construct
from rollergen.emit import emit_all
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.hal.probes.host import complete
from rollergen.hal.spec import Device
from rollergen.measure.candidates import paused_collector
from rollergen.program.check import check

DEVICES = ("cpu", "v100", "mi50", "ipu")
CANDIDATES = 10
JUDGED, MOST_MEAN_MS, MOST_MS = ("roller", "v100"), 20, 100
REPEATS = 3
Row = dict[str, Any]


def device(name: str) -> Device:
    return complete(load_device(name)) if name == "cpu" else load_device(name)


def build_row(entry: Entry, on: Device, repeats: int = REPEATS) -> Row:
    """One operator on one device: count, state, and milliseconds of the first and the best run."""
    row: Row = {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "device": on.name}
    runs = []
    for _ in range(repeats):
        forget()
        try:
            runs.append(_run(entry, on))
        except DoesNotFitError as error:
            return {**row, "state": "does not fit", "shortfall": _shortfall(str(error)), "candidates": 0, "space": 0}
    parts, cpu_s, programs = min(runs, key=lambda run: sum(run[0]))
    count = len(programs)
    for program in programs:
        check(program, on)
    if count < CANDIDATES:
        row["space"] = len(construct(canonicalize(entry.make()), on, top_k=50))
    return {
        **row,
        "state": "valid" if count else "empty",
        "candidates": count,
        "first_ms": round(1e3 * sum(runs[0][0]), 1),
        "ms": round(1e3 * sum(parts), 1),
        "first_cpu_ms": round(1e3 * runs[0][1], 1),
        "cpu_ms": round(1e3 * cpu_s, 1),
        "parts_ms": [round(1e3 * part, 1) for part in parts],
    }


def _run(entry: Entry, on: Device) -> tuple[tuple[float, float, float], float, list[Any]]:
    """Seconds of the three parts on the wall, all processor seconds, and the programs; the collector pauses as it
    does in `rg.build`."""
    start, cpu = time.perf_counter(), time.process_time()
    graph = canonicalize(entry.make())
    canonical = time.perf_counter()
    with paused_collector():
        programs = [one.program for one in construct(graph, on, top_k=CANDIDATES)]
        constructed = time.perf_counter()
        texts = {source.text for source in emit_all(programs, on)}
        emitted, cpu = time.perf_counter(), time.process_time() - cpu
    assert len(texts) == len(programs), f"{entry.name} on {on.name}: two candidates have the same source"
    return (canonical - start, constructed - canonical, emitted - constructed), cpu, programs


def _shortfall(message: str) -> int:
    """Bytes, from the message's last clause."""
    return int(message.rsplit("; ", 1)[1].split(" bytes too many")[0])


def structure_key(entry: Entry) -> str:
    """What two operators share when they differ in sizes only."""
    tensor_ops = canonicalize(entry.make()).tensor_ops
    reads = [[(*map(str, load.indices), len(load.guard)) for load in d.loads()] for d in tensor_ops]
    return repr([([a.role for a in d.axes], d.target, read) for d, read in zip(tensor_ops, reads, strict=True)])


def fresh_rows(entries: list[Entry], names: list[str]) -> list[Row]:
    """The first build of each structure, timed in a process that has built nothing."""
    distinct = {(entry.kind, structure_key(entry)): entry for entry in reversed(entries)}
    rows = []
    for entry in sorted(distinct.values(), key=lambda e: e.name):
        for name in names:
            words = [sys.executable, __file__, "--one", entry.suite, entry.id, name]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def summary(rows: list[Row]) -> list[Row]:
    found = []
    for key in dict.fromkeys((row["suite"], row["device"]) for row in rows):
        own = [row for row in rows if (row["suite"], row["device"]) == key]
        times = [row["ms"] for row in own if row["state"] == "valid"]
        found.append({
            "suite": key[0], "device": key[1], "operators": len(own),
            "valid": sum(row["state"] == "valid" for row in own),
            "with ten": sum(row["candidates"] == CANDIDATES for row in own),
            "fewer than the space has": sum(row["candidates"] < row.get("space", CANDIDATES) for row in own),
            "do not fit": sum(row["state"] == "does not fit" for row in own),
            "mean ms": round(mean(times), 1) if times else None, "worst ms": max(times, default=None),
            "mean cpu ms": round(mean(r["cpu_ms"] for r in own if r["state"] == "valid"), 1) if times else None,
        })  # fmt: skip
    return found


def aims(found: list[Row]) -> tuple[Aim, ...]:
    """Of a `summary`: on the wall, as the aim is meant; the processor's mean stands beside it."""
    return tuple(
        Aim(f"From expression to ten sources, {one['valid']} operators of {one['suite']}, {one['device']}",
            f"{one['mean ms']} ms in the mean ({one['mean cpu ms']} of the processor), {one['worst ms']} ms at most",
            f"{MOST_MEAN_MS} ms in the mean, {MOST_MS} ms at most",
            one["mean ms"] <= MOST_MEAN_MS and one["worst ms"] <= MOST_MS)
        for one in found if (one["suite"], one["device"]) == JUDGED and one["valid"]
    )  # fmt: skip


def is_judged(rows: Container[tuple[str, str, str]]) -> bool:
    """Whether all of `JUDGED` is there: an aim is for whole suites."""
    name, on = JUDGED
    return all((name, entry.id, on) in rows for entry in suite(name).entries)


def show(rows: list[Row], title: str) -> None:
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=150).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", nargs="+", default=list(suite_names()), choices=suite_names())
    parser.add_argument("--device", nargs="+", default=list(DEVICES))
    parser.add_argument("--only", nargs="+", help="identifiers of entries")
    parser.add_argument("--again", action="store_true", help="measure what was measured before too")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of which the best counts")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, identifier, device_name = asked.one
        print(json.dumps(build_row(suite(name).entry(identifier), device(device_name), repeats=1)))
        return 0
    entries = [e for name in asked.suite for e in suite(name).entries if not asked.only or e.id in asked.only]
    if asked.fresh:
        rows = fresh_rows(entries, asked.device)
        print(keep("suites_first_build", {"rows": rows}))
        return 0 if all(row["state"] != "empty" for row in rows) else 1
    before = begun(result_path("suites")).get("rows", [])
    rows = {(row["suite"], row["id"], row["device"]): row for row in before}
    for name in asked.device:
        on = device(name)
        for entry in entries:
            key = (entry.suite, entry.id, on.name)
            if key in rows and not asked.again:
                continue
            rows[key] = build_row(entry, on, asked.repeats)
            print(rows[key], file=sys.stderr, flush=True)
            listed = list(rows.values())
            found = summary(listed)
            judged = [one.headline() for one in aims(found)]
            keep("suites", {"headlines": judged, "summary": found, "rows": listed})
    found = summary(list(rows.values()))
    if not found:
        raise SystemExit(f"no operator of {', '.join(asked.suite)} is named {', '.join(asked.only)}")
    show(found, "expression to sources")
    missed = verdict(aims(found)) if is_judged(rows) else 0
    if empty := [f"{row['suite']}:{row['id']} on {row['device']}" for row in rows.values() if row["state"] == "empty"]:
        print(f"without a candidate: {', '.join(empty)}")
    return 1 if empty else missed


if __name__ == "__main__":
    raise SystemExit(main())
