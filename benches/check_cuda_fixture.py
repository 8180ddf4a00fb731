"""CUDA text executed on the CPU: ``python benches/check_cuda_fixture.py [DEVICE ...] [--only ID ...] [--again]``.

Every operator of the suite of ROLLER, cut to seconds with odd extents, its first program for each device (default:
v100 and h200) executed from the emitted CUDA text by the fixture of tests/cuda, against the float64 definition; inputs
are small whole numbers, for which the tolerance is 0 wherever sums are exact.  Rows are kept as they come; what is
there and right is not run again.  Exits with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import keep, result_path
from rollergen.suites import suite
from tests.cuda.operators import execute

NAME = "cuda_fixture"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", default=["v100", "h200"])
    parser.add_argument("--only", nargs="+", help="identifiers of operators")
    parser.add_argument("--again", action="store_true", help="also what is known to be right")
    arguments = parser.parse_args()
    path = result_path(NAME)
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    rows: dict[Any, Any] = {(row["id"], row["device"]): row for row in before}
    for entry in suite("roller").entries:
        for device in arguments.devices:
            key = entry.id, device
            if arguments.only and entry.id not in arguments.only:
                continue
            if arguments.again or key not in rows or rows[key]["state"].startswith("wrong"):
                rows[key] = {"id": entry.id, "kind": entry.kind, "device": device, **_executed(entry, device)}
                print(*key, rows[key]["state"], rows[key].get("s", ""), flush=True)
                keep(NAME, {"summary": _summary(rows.values()), "rows": list(rows.values())})
    print(json.dumps(_summary(rows.values()), indent=1))
    return 1 if any(row["state"].startswith("wrong") for row in rows.values()) else 0


def _executed(entry: Any, device: str) -> dict[str, Any]:
    try:
        return execute(entry, device)
    except subprocess.TimeoutExpired as error:
        return {"state": f"wrong: no end within {error.timeout} s"}


def _summary(rows: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        states = found.setdefault(row["device"], {"right": 0, "does not fit": 0, "wrong": 0})
        states[next(state for state in states if row["state"].startswith(state))] += 1
    return found


if __name__ == "__main__":
    raise SystemExit(main())
