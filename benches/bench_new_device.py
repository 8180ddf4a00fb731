"""A device that nobody has described, the guide's way, timed: ``python benches/bench_new_device.py [--only ID ...]``.

Every command of devices/README.md in order, each a process of its own as a user would run it: an NVIDIA L40S begun
from public figures, checked, compared with the L4, asked what matters, built for.  Then all operators of ROLLER's
suite are constructed for the file (every prediction positive and finite), and where NVIDIA's compiler is installed the
first choice of one operator of each class is compiled for the architecture that the file names.  Nothing is run: no
such card is needed.  Kept in results/new_device_<cpu>_<day>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from math import isfinite
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import keep
from rollergen.bench.suites import Entry, suite
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.nvrtc import is_installed
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.measure.compile_report import compile_report, compiled_target
from rollergen.program.rprogram import RProgram

NAME = "new_device"
GUIDE = Path(__file__).resolve().parent.parent / "devices" / "README.md"
FILE = "l40s.json"
Row = dict[str, Any]


def commands() -> list[str]:
    """The lines of the guide that a user types, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def typed(line: str, folder: Path) -> Row:
    """One command of the guide: how it ended, its last line, seconds on the clock and of the processor."""
    words = shlex.split(line)
    if words[0] != "rollergen":
        raise ValueError(f"{GUIDE.name} has the command {line!r}; expected one of rollergen")
    start, before = time.perf_counter(), _of_children()
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    told = (done.stdout + done.stderr).strip().splitlines()
    return {
        "command": " ".join(words[1:3]), "exit": done.returncode, "s": round(seconds, 2),
        "cpu_s": round(_of_children() - before, 2), "told": told[-1] if told else "",
    }  # fmt: skip


def _of_children() -> float:
    """Processor seconds of all processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def constructed(entry: Entry, device: Device) -> tuple[Row, RProgram]:
    """The operator at full size: candidates, the first one's prediction, seconds on the clock and of the processor."""
    start, before = time.perf_counter(), time.process_time()
    ranked = construct(canonicalize(entry.make()), device, top_k=10)
    seconds, cpu = time.perf_counter() - start, time.process_time() - before
    times = [one.seconds for one in ranked]
    right = bool(times) and all(isfinite(one) and one > 0 for one in times)
    row = {
        "id": entry.id, "kind": entry.kind, "state": "right" if right else f"predicted {times}",
        "candidates": len(ranked), "predicted_ms": times[0] * 1e3, "s": round(seconds, 2), "cpu_s": round(cpu, 2),
    }  # fmt: skip
    return row, ranked[0].program


def compiled(program: RProgram, device: Device) -> Row:
    """What NVIDIA's compiler makes of a first choice."""
    report = compile_report(program, device, emit(program, device, "cuda"))
    return {
        "arch": compiled_target(device)[0].arch,
        "spill_bytes": sum(one.spill_bytes for one in report.kernels),
        "registers": [one.registers for one in report.kernels],
    }


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--only", nargs="+", help="identifiers of operators")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steps = [typed(line, Path(folder)) for line in commands()]
        for step in steps:
            print(step, flush=True)
        spec = json.loads((Path(folder) / FILE).read_text())
        device = load_device(Path(folder) / FILE)
    rows, seen = [], set[str]()
    for entry in suite("roller").entries:
        if asked.only and entry.id not in asked.only:
            continue
        row, program = constructed(entry, device)
        if is_installed() and entry.kind not in seen:
            row["compiled"] = compiled(program, device)
        seen.add(entry.kind)
        rows.append(row)
        print(row, flush=True)
    summary = {
        "commands": len(steps), "commands that failed": sum(step["exit"] != 0 for step in steps),
        "operators": len(rows), "constructed": sum(row["state"] == "right" for row in rows),
        **{f"commands_{unit}": round(sum(step[unit] for step in steps), 1) for unit in ("s", "cpu_s")},
        **{f"construct_{unit}": round(sum(row[unit] for row in rows), 1) for unit in ("s", "cpu_s")},
        "compiled": sum("compiled" in row for row in rows),
        "compiled with spills": sum(row.get("compiled", {}).get("spill_bytes", 0) > 0 for row in rows),
    }  # fmt: skip
    print(summary)
    if not asked.only:
        keep(NAME, {"summary": summary, "steps": steps, "operators": rows, "spec": spec})
    return 0 if summary["constructed"] == len(rows) and not summary["commands that failed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
