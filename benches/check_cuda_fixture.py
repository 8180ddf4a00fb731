"""CUDA text on the CPU: ``python benches/check_cuda_fixture.py [DEVICE ...] [--only ID ...] [--again] [--jobs N]``.

Every operator of the suite of ROLLER, cut to seconds with odd extents, its first program for each device (default:
v100 and h200), and for each contraction the best program with matrix instructions (float16), executed from the emitted
CUDA text by the fixture of tests/cuda, against the float64 definition; inputs are small whole numbers, for which the
tolerance is 0 wherever sums are exact.  Where an axis of the first program has not several tiles and one that lies
partly outside, another cut or another of the ten best programs, which has most such axes, is executed too, and what
still lacks is kept with its reason.  On all devices but the first, threads and blocks run from the last to the
first.  Rows are kept as they come, in results/cuda_fixture_<cpu>_<day>.json; what was right is run again where its
text, sizes or the fixture's header are others (`--again`: always).  Exits with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import begun, ever_kept, keep, result_path
from rollergen.bench.suites import Entry, suite
from tests.cuda.operators import CONTRACTIONS, MATRIX, execute

NAME = "cuda_fixture"
STATES = ("right", "does not fit", "wrong")
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", default=["v100", "h200"])
    parser.add_argument("--only", nargs="+", help="identifiers of operators")
    parser.add_argument("--again", action="store_true", help="also what is known to be right")
    parser.add_argument("--jobs", type=int, default=2, help="operators at a time, each in a process of its own")
    arguments = parser.parse_args()
    rows = _by_key(begun(result_path(NAME)).get("rows", []))
    before = _by_key(row for file in ever_kept(NAME) for row in file["rows"])
    jobs = [
        (entry.id, device, dtype, "" if arguments.again else _known(before.get((entry.id, device, dtype))), number > 0)
        for entry, (number, device), dtype in _runs(arguments.devices)
        if not arguments.only or entry.id in arguments.only
    ]
    jobs.sort(key=lambda job: job[:3] in before)  # what was never run comes first
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(_executed, jobs):
            key = found["id"], found["device"], found["dtype"]
            rows[key] = before[key] if found["state"] == "known" else found
            print(*key, found["state"], found.get("s", ""), flush=True)
            keep(NAME, {"summary": _summary(rows.values()), "rows": list(rows.values())})
    print(json.dumps(_summary(rows.values()), indent=1))
    return 1 if any(row["state"].startswith("wrong") for row in rows.values()) else 0


def _by_key(found: Iterable[Row]) -> dict[Any, Row]:
    return {(row["id"], row["device"], row["dtype"]): row for row in found if "digest" in row}


def _runs(devices: list[str]) -> Iterator[tuple[Entry, tuple[int, str], str]]:
    for entry in suite("roller").entries:
        for device in enumerate(devices):
            for dtype in (entry.dtype, MATRIX) if entry.kind in CONTRACTIONS else (entry.dtype,):
                yield entry, device, dtype


def _known(row: Row | None) -> str:
    return row["digest"] if row and row["state"] == "right" else ""


def _executed(job: tuple[str, str, str, str, bool]) -> Row:
    """The row of one operator: (identifier, device, dtype, what is known, whether in reverse)."""
    id_, device, dtype, known, reverse = job
    entry = suite("roller").entry(id_)
    row = {"id": id_, "kind": entry.kind, "device": device, "dtype": dtype}
    try:
        return row | execute(entry, device, dtype=dtype, known=known, reverse=reverse)
    except subprocess.TimeoutExpired as error:
        return row | {"state": f"wrong: no end within {error.timeout} s"}


def _summary(rows: Any) -> dict[str, Row]:
    """By device and dtype: how many have each state; how many axes there are, how many of them have several tiles and
    one that lies partly outside, and why the others have not."""
    found: dict[str, Row] = {}
    for key in sorted({(row["device"], row["dtype"]) for row in rows}):
        own = [row for row in rows if (row["device"], row["dtype"]) == key]
        lacking = Counter(why.split(",")[0] for row in own for why in row.get("axes", {}).values())
        found[" ".join(key)] = {
            **{state: sum(row["state"].startswith(state) for row in own) for state in STATES},
            "programs": sum(len(row.get("programs", ())) for row in own),
            "axes": lacking.total(),
            "axes_of_several_tiles_and_a_remainder": lacking.pop("", 0),
            "others": dict(sorted(lacking.items())),
            "elements_compared": sum(row.get("compared", 0) for row in own),
        }
    return found


if __name__ == "__main__":
    raise SystemExit(main())
