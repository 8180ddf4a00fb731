"""Many programs of operators of every class, measured on the GPU: ``python benches/gpu/collect.py``.

As ``rollergen verify collect``: of each operator the model's best 30 and 30 drawn from the aligned space, checked and
timed; the classes take turns, the core of the list first, until ``--collect-s`` seconds of the device are spent
(default: 20 minutes, over all calls).  Records are appended to results/gpu_records_<spec>.jsonl.xz, what each operator
gave to gpu_collection_<spec>.json.  `transfer.py` says what the learned rankers make of them.  Exits with 3 where time
ran out: call it again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine
from benches.gpu.cases import Key, group, is_core
from benches.gpu.machine import Machine
from benches.gpu.rows import Row, Rows
from rollergen.bench.suites import Entry
from rollergen.runtime.executor import executor_for
from rollergen.store.record_files import append
from rollergen.verify.collect import collect
from rollergen.verify.protocol import Protocol

NAME, RECORDS = "collection", "records"
COLLECT_S = 1200.0
PROGRAMS, DRAFTED, SECONDS = 60, 30, 0.05
DRY = {"count": 3, "drafted": 2, "protocol": Protocol(samples=2, seconds=1e-6, warm_ups=1)}
"""Of a dry run."""


def in_turns(found: Mapping[Key, Entry]) -> list[Key]:
    """One operator of each class after the other; core ones first."""
    order: list[Key] = []
    for core in (True, False):
        classes: dict[str, list[Key]] = {}
        for key, entry in found.items():
            if is_core(entry) == core:
                classes.setdefault(group(entry), []).append(key)
        order += [key for turn in zip_longest(*classes.values()) for key in turn if key is not None]
    return order


def row(entry: Entry, on: Machine, records: Path) -> Row:
    started = time.perf_counter()
    how = DRY if on.dry else {"count": PROGRAMS, "drafted": DRAFTED, "protocol": Protocol(seconds=SECONDS)}
    with on.only_for_a_while():
        found = collect(entry.make(), on.device, executor_for(on.device), **how)  # type: ignore[arg-type]
    append(records, on.device, found.records)
    times = [median(one["result"]["times_ms"]) for one in found.records if one["result"]["status"] == "ok"]
    return {
        **machine.facts_of(entry), "state": "collected", "points": found.points, "programs": len(found.records),
        "right": len(times), "best_ms": min(times, default=None), "median_ms": median(times) if times else None,
        "spread": round(found.spread, 4), "drifted": found.drifted, "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def summary(rows: list[Row]) -> Row:
    return {name: sum(one.get(name, 0) for one in rows) for name in ("programs", "right", "seconds")}


def main(words: list[str] | None = None) -> int:
    parser = machine.parser(__doc__)
    parser.add_argument("--collect-s", type=float, default=COLLECT_S, help="seconds of the device over all calls")
    given = machine.parsed(parser, words)
    on, found = machine.machine(given), machine.entries(given)
    records = machine.path(given.results, RECORDS, on.device).with_suffix(".jsonl.xz")
    rows = Rows(machine.path(given.results, NAME, on.device), on.facts(), summary, lambda key: "measured")
    budget, code = machine.budget(given), 0
    for key in in_turns(found):  # those that are there count for the seconds, and take none
        if code or summary(rows.all())["seconds"] >= given.collect_s:
            break
        make = lambda key: row(found[key], on, records)
        code = rows.fill([key], make, budget, again=given.again, retry=given.retry, alive=on.alive)
    return code


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
