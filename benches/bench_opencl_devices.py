"""The operators of a suite on one OpenCL implementation: ``python benches/bench_opencl_devices.py PLATFORM:DEVICE``.

Each operator of ROLLER's 119 (`--suite` names another) is cut to `--points` loop iterations at most, images too, with
odd remainders on every axis, constructed for the device as its driver describes it, and built: the gate checks the
source as emitted, on copies between guard zones.  ``right``: it passed; ``refused``: the compiler, the driver or the
device's limits took it not, with the reason; ``ended``: this process ended with it, or (`--isolate`) one of its own
did, or was too slow; ``wrong``: anything else.  Rows are kept as they come in
results/opencl_<implementation>_<cpu>_<day>.json; the same code goes on there, behind what ended it.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.results import begun, keep, result_path
from rollergen.bench.suites import Entry, suite, suite_names
from rollergen.errors import MeasurementWarning, RollergenError
from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.probes.opencl_facts import base_of, told
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import chosen
from rollergen.hal.runtimes.opencl_platforms import present_devices
from rollergen.hal.spec import Device
from tests.agreement.cutting import NeverSmallError, cut

NAME = "opencl"
STATES = ("right", "refused", "ended", "wrong")
_REFUSED = ("BuildError", "not launched", "DoesNotFit", "use of type", "LogicError")
_ENDED = ("ended after", "ended itself after", "was ended by", "ended with status")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", metavar="PLATFORM:DEVICE", help="numbers or parts of names")
    parser.add_argument("--suite", choices=suite_names(), default="roller")
    parser.add_argument("--only", nargs="+", default=(), help="identifiers of entries")
    parser.add_argument("--points", type=int, default=1 << 20, help="loop iterations of an operator, at most")
    parser.add_argument("--isolate", action="store_true", help="a process for each operator, of a minute for each run")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MeasurementWarning)  # what is asked is whether they are right
    try:
        spec, description = _spec(arguments.device)
    except RuntimeUnavailableError as error:
        raise SystemExit(str(error)) from None
    name = f"{NAME}_{re.sub('[^a-z0-9]+', '-', arguments.device.partition(':')[0].lower())}"
    rows = {row["id"]: row for row in begun(result_path(name)).get("rows", [])}
    for entry in suite(arguments.suite).chosen(arguments.only):
        if entry.id not in rows or rows[entry.id]["state"] == "wrong":
            for last in (False, True):  # what ends this process has left a row
                rows[entry.id] = _row(entry, spec, arguments) if last else _base(entry) | {"state": "ended"}
                content = {"device": description, "points": arguments.points, "summary": [_summary(rows)]}
                keep(name, content | {"rows": list(rows.values())})
            print(entry.id, rows[entry.id], file=sys.stderr, flush=True)
    table = Table(*STATES, title=description)
    table.add_row(*(str(_summary(rows)[state]) for state in STATES))
    Console(width=140).print(table)
    return 1 if _summary(rows)["wrong"] else 0


def _spec(which: str) -> tuple[Device, str]:
    found = dict(present_devices())
    facts = chosen(which, list(found))
    runtime = BufferRuntime(facts, found[facts])
    return told(runtime, base_of(runtime), "device"), runtime.description


def _base(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "kind": entry.kind}


def _row(entry: Entry, spec: Device, arguments: argparse.Namespace) -> dict[str, Any]:
    start, row = time.perf_counter(), _base(entry)
    try:
        fields = cut(entry, arguments.points, 16 * arguments.points, images=True)
    except NeverSmallError:
        return {**row, "state": "refused", "why": f"never of {arguments.points} loop iterations, however it is cut"}
    expression = entry.build(fields)
    options = rg.BuildOptions(isolate=arguments.isolate, run_limit_s=60.0, time_budget_s=1.0)
    try:
        kernel = rg.build(expression, spec, top_k=1, profile=True, cache=False, options=options)
    except RollergenError as error:
        row |= {"state": _state(str(error)), "why": str(error)[-400:]}
    else:
        (one,) = kernel.candidates
        shapes = [list(buffer.shape) for buffer in kernel.program.inputs]
        took = None if one.wall_s is None else round(one.wall_s * 1e6, 2)
        row |= {"state": "right", "inputs": shapes, "compared": one.compared, "measured_us": took}
    return {**row, "s": round(time.perf_counter() - start, 1)}


def _state(why: str) -> str:
    if any(word in why for word in _ENDED):
        return "ended"
    return "refused" if any(word in why for word in _REFUSED) else "wrong"


def _summary(rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    count = Counter(row["state"] for row in rows.values())
    return {"operators": len(rows), **{state: count[state] for state in STATES}}


if __name__ == "__main__":
    sys.exit(main())
