"""Every operator x dtype x size for every built-in device, built and not run: ``python benches/bench_sweep.py
[DEVICE ...] [--only OPERATOR ...] [--jobs N] [--again]``.

The cases are those of `sweep_cases`: whatever the language accepts has a kernel on every device, and no candidate of it
is dropped on the way; what the language refuses is in a list, with the words of the refusal.  What is wrong is listed
in full.  Results are kept as they come, in results/sweep_<cpu>_<day>.json: what is there is not done again by the same
code, but for what was wrong.  Exits with 1 where anything is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import begun, keep, result_path
from benches.sweep_cases import DTYPES, OPERATORS, SIZES, cases, refusals, wrong
from rollergen.hal.load import device_names

NAME = "sweep"
Row = dict[str, Any]


def swept(job: tuple[str, str]) -> Row:
    """One operator on one device, in every dtype, size and variant: counts, and what is wrong by name."""
    device, operator = job
    row: Row = {"device": device, "operator": operator, "built": 0, "refused": 0, "wrong": {}}
    for case in cases([operator]):
        text = wrong(case, device)
        if text:
            row["wrong"][case.name] = text
        else:
            row["refused" if refusals(case) else "built"] += 1
    return row


def summary(rows: Iterable[Row]) -> Row:
    every = list(rows)
    return {
        "devices": sorted({row["device"] for row in every}),
        "operators": len({row["operator"] for row in every}),
        "dtypes": list(DTYPES),
        "sizes": [list(size) for size in SIZES],
        **{state: sum(row[state] for row in every) for state in ("built", "refused")},
        "wrong": sum(len(row["wrong"]) for row in every),
    }


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("devices", nargs="*", default=device_names())
    words.add_argument("--only", nargs="+", default=list(OPERATORS), help="operators")
    words.add_argument("--jobs", type=int, default=2, help="processes")
    words.add_argument("--again", action="store_true")
    given = words.parse_args()
    kept = [] if given.again else begun(result_path(NAME)).get("rows", [])
    rows = {(row["device"], row["operator"]): row for row in kept}
    todo = [job for job in product(given.devices, given.only) if job not in rows or rows[job]["wrong"]]
    with ProcessPoolExecutor(given.jobs) as pool:
        for row in pool.map(swept, todo):
            rows[row["device"], row["operator"]] = row
            for name, text in row["wrong"].items():
                print(f"{row['device']}: {name}\n  {text}", flush=True)
            keep(NAME, {"summary": summary(rows.values()), "rows": list(rows.values())})
    print(summary(rows.values()))
    return 1 if any(row["wrong"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
