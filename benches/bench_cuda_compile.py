"""What NVIDIA's compiler makes of our candidates, without a GPU:
``python benches/bench_cuda_compile.py [--device NAME ...] [--suite NAME ...] [--every N] [--top-k K] [--again]``.

For every operator and device, each candidate is compiled for the real architecture: whether it compiles; which touch
local memory, first choices apart; registers over the model's figure; whether fewer threads are resident than the
model takes for granted; shared memory as predicted; and where a disassembler reads the code, the first choice's
instructions.  Nothing is run, and nothing timed.  Rows are kept as they come, in results/cuda_compile_<cpu>_<day>.json,
and not compiled again (`--again` does).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches.results import keep, result_path
from rollergen.compile_report import CompileReport, KernelReport, compile_report
from rollergen.construct import construct
from rollergen.errors import RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.hal.nvrtc import version
from rollergen.hal.spec import Device
from rollergen.suites import Entry, suite

NAME = "cuda_compile"
CANDIDATES = 10
MOST_EXCESS = 1.2
"""Registers over the model's figure that are still as predicted."""
Row = dict[str, Any]


def row(entry: Entry, on: Device, top_k: int) -> Row:
    """One operator on one device."""
    found: Row = {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "device": on.name, "candidates": []}
    for ranked in construct(canonicalize(entry.make()), on, top_k=top_k):
        try:
            found["candidates"].append(_candidate(compile_report(ranked.program, on)))
        except RollergenError as error:
            found["candidates"].append({"error": str(error)})
    return found


def _candidate(report: CompileReport) -> Row:
    return {"arch": report.arch, "kernels": [_kernel(one) for one in report.kernels]}


def _kernel(one: KernelReport) -> Row:
    facts = asdict(one)
    counts = facts.pop("instructions")
    return facts if counts is None else {**facts, "instructions": counts}


def summary(rows: list[Row]) -> Row:
    """Shares over all candidates of one device."""
    candidates = [(r["id"], rank, c) for r in rows for rank, c in enumerate(r["candidates"])]
    good = [(name, rank, kernels) for name, rank, c in candidates if (kernels := c.get("kernels")) is not None]
    local = [f"{name} #{rank}" for name, rank, kernels in good if any(k["stack_bytes"] for k in kernels)]
    excess = [max(k["registers"] / max(1, k["predicted_registers"]) for k in kernels) for _, _, kernels in good]
    less = [max(k["predicted_occupancy"] - k["occupancy"] for k in kernels) > 1e-9 for _, _, kernels in good]
    shared = [all(k["shared_bytes"] == k["predicted_shared_bytes"] for k in kernels) for _, _, kernels in good]
    return {
        "operators": len(rows),
        "candidates": len(candidates),
        "refused": [f"{name} #{rank}: {c['error'][:300]}" for name, rank, c in candidates if "error" in c],
        "local_memory": local,
        "local_memory_in_first_choices": [name for name in local if name.endswith(" #0")],
        "registers_over_model_median": sorted(excess)[len(excess) // 2] if excess else None,
        "registers_over_model_most": max(excess, default=None),
        "beyond_model_by_a_fifth": sum(e > MOST_EXCESS for e in excess),
        "occupancy_below_predicted": sum(less),
        "shared_not_as_predicted": len(shared) - sum(shared),
    }


def show(rows: list[Row], summaries: dict[str, Row]) -> None:
    table = Table("device", "operator", "candidates", "local memory", "registers, model (first)", "occupancy, model")
    for one in rows:
        kernels = [c["kernels"] for c in one["candidates"] if "kernels" in c]
        first = max(kernels[0], key=lambda k: k["registers"]) if kernels else None
        table.add_row(
            one["device"], f"{one['id']} {one['kind']}", f"{len(kernels)} of {len(one['candidates'])}",
            str(sum(any(k["stack_bytes"] for k in each) for each in kernels)),
            f"{first['registers']}, {first['predicted_registers']:.0f}" if first else "-",
            f"{first['occupancy']:.2f}, {first['predicted_occupancy']:.2f}" if first else "-",
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print_json(json.dumps(summaries))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", nargs="+", default=["v100", "a100", "h200"])
    words.add_argument("--suite", nargs="+", default=["roller"])
    words.add_argument("--every", type=int, default=1, help="only every Nth operator")
    words.add_argument("--top-k", type=int, default=CANDIDATES)
    words.add_argument("--again", action="store_true", help="compile what today's file already has")
    given = words.parse_args()
    path = result_path(NAME)
    rows: list[Row] = json.loads(path.read_text())["rows"] if path.exists() and not given.again else []
    done = {(r["suite"], r["id"], r["device"]) for r in rows}
    for name in given.device:
        on = load_device(name)
        for entry in [e for one in given.suite for e in suite(one).entries][:: given.every]:
            if (entry.suite, entry.id, on.name) not in done:
                rows.append(row(entry, on, given.top_k))
                _keep(rows)
    show(rows, _keep(rows))


def _keep(rows: list[Row]) -> dict[str, Row]:
    summaries = {name: summary([r for r in rows if r["device"] == name]) for name in {r["device"]: 0 for r in rows}}
    keep(NAME, {"compiler": f"NVRTC {version()}", "summaries": summaries, "rows": rows})
    return summaries


if __name__ == "__main__":
    main()
