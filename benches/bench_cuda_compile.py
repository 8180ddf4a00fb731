"""What NVIDIA's compiler makes of our candidates, without a GPU:
``python benches/bench_cuda_compile.py [--device NAME ...] [--suite NAME ...] [--every N] [--top-k K]
[--jobs N] [--operator ID ...] [--beside] [--again]``.

For every operator and device, each candidate is compiled for the real architecture: whether it compiles; which touch
local memory, first choices apart; registers over the model's figure; whether fewer threads are resident than the
model takes for granted; shared memory as predicted; and where a disassembler reads the code, the first choice's
instructions.  Nothing is run, and nothing timed.  First choices come first.  Rows are kept as they come, in
results/cuda_compile_<cpu>_<day>.json; text that any such file has as compiled is not compiled again (`--again` does):
what has changed since is all that costs time.  ``--beside``: the first choices of `operators_beside` instead,
kept in results/cuda_compile_beside_<cpu>_<day>.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches.operators_beside import entries as entries_beside
from benches.results import begun, ever_kept, keep, result_path
from rollergen.bench.suites import suite
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import RollergenError, RuntimeUnavailableError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.nvrtc import version
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.measure.compile_report import KernelReport, compile_report, compiled_target, predicted_facts
from rollergen.program.rprogram import RProgram

NAME = "cuda_compile"
BESIDE = "beside"
CANDIDATES = 10
MOST_EXCESS = 1.2
"""Registers over the model's figure that are still as predicted."""
SECONDS_BETWEEN_WRITES = 30
Row = dict[str, Any]
Key = tuple[str, str, str]
"""Suite, operator, device."""


def operators(name: str) -> tuple[Any, ...]:
    """What is compiled of a suite, or of the operators beside them."""
    return entries_beside() if name == BESIDE else suite(name).entries


def row(suite_name: str, id_: str, device: str, top_k: int, known: Mapping[str, Row]) -> Row:
    """The `top_k` best candidates of one operator on one device.

    ``known``: candidates compiled before, by `Row` key "source".
    """
    entry = next(one for one in operators(suite_name) if one.id == id_)
    on = load_device(device)
    ranked = construct(canonicalize(entry.make()), on, getattr(entry, "options", BuildOptions()), top_k)
    candidates = [_candidate(one.program, on, rank, known) for rank, one in enumerate(ranked)]
    return {
        "suite": suite_name, "id": entry.id, "kind": entry.kind, "device": on.name, "asked": top_k,
        "candidates": candidates,
    }  # fmt: skip


def _candidate(program: RProgram, on: Device, rank: int, known: Mapping[str, Row]) -> Row:
    """Of the first choice with its instructions."""
    try:
        source = emit(program, on, "cuda")
        arch = compiled_target(on)[0].arch
        digest = hashlib.sha256(f"{arch} {version()} {rank == 0}\n{source.text}".encode()).hexdigest()[:20]
        if digest in known:
            return _predicted_anew(known[digest], program, on)
        report = compile_report(program, on, source, instructions=rank == 0)
        return {"arch": arch, "source": digest, "kernels": [_kernel(one) for one in report.kernels]}
    except RuntimeUnavailableError:
        raise
    except RollergenError as error:
        return {"error": str(error)}


def _predicted_anew(compiled: Row, program: RProgram, on: Device) -> Row:
    """The same machine code beside what the model says now."""
    pairs = zip(compiled["kernels"], predicted_facts(program, on), strict=True)
    return {**compiled, "kernels": [{**kernel, **facts} for kernel, facts in pairs]}


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
    words.add_argument("--jobs", type=int, default=1, help="processes that compile")
    words.add_argument("--operator", nargs="+", default=[], metavar="ID", help="only these")
    words.add_argument("--beside", action="store_true", help="first choices of operators that are in no suite")
    words.add_argument("--again", action="store_true", help="compile what was compiled before too")
    given = words.parse_args()
    suites, top_k = ([BESIDE], 1) if given.beside else (given.suite, given.top_k)
    entries = [(name, one.id) for name in suites for one in operators(name)][:: given.every]
    entries = [entry for entry in entries if not given.operator or entry[1] in given.operator]
    jobs = [(*entry, device) for entry in entries for device in given.device]
    file = f"{NAME}_{BESIDE}" if given.beside else NAME
    rows = begun(result_path(file)).get("rows", [])
    if given.again:
        rows = [one for one in rows if _key(one) not in jobs]
    table = Rows(file, rows, {} if given.again else compiled_before(file))
    if top_k > 1:
        table.fill([job for job in jobs if table.candidates(job) <= 1], 1, given.jobs)
    table.fill(jobs, top_k, given.jobs)
    show(table.ordered(), table.keep())


class Rows:
    """The rows as they come, one for each operator and device; kept in the file every half minute.

    ``rows``: of this code; they stay until their operator is compiled again, and serve as what is known.  ``compiled``:
    candidates of any code, which serve as no more than that.
    """

    def __init__(self, file: str, rows: list[Row], compiled: Mapping[Key, Mapping[str, Row]]) -> None:
        self._file, self._compiled = file, compiled
        self._rows = {_key(one): one for one in rows}
        self._kept = time.monotonic()

    def candidates(self, job: Key) -> int:
        """How many of a job's candidates the rows have."""
        return len(self._rows[job]["candidates"]) if job in self._rows else 0

    def fill(self, jobs: list[Key], top_k: int, processes: int) -> None:
        """`top_k` candidates of each of `jobs`: (suite, operator, device)."""
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(row, *job, top_k, self._known(job)) for job in jobs]
            for one in as_completed(waiting):
                found = one.result()
                self._rows[_key(found)] = found
                if time.monotonic() - self._kept > SECONDS_BETWEEN_WRITES:
                    self.keep()
        self.keep()

    def _known(self, job: Key) -> dict[str, Row]:
        return {**self._compiled.get(job, {}), **(_by_source(self._rows[job]) if job in self._rows else {})}

    def ordered(self) -> list[Row]:
        names = {name for name, _, _ in self._rows}
        order = {(name, one.id): n for name in names for n, one in enumerate(operators(name))}
        return sorted(self._rows.values(), key=lambda r: (r["device"], r["suite"], order[r["suite"], r["id"]]))

    def keep(self) -> dict[str, Row]:
        rows = self.ordered()
        devices = {r["device"]: None for r in rows}
        summaries = {name: summary([r for r in rows if r["device"] == name]) for name in devices}
        keep(self._file, {"compiler": f"NVRTC {version()}", "summaries": summaries, "rows": rows})
        self._kept = time.monotonic()
        return summaries


def _key(one: Row) -> Key:
    return one["suite"], one["id"], one["device"]


def _by_source(one: Row) -> dict[str, Row]:
    return {candidate["source"]: candidate for candidate in one["candidates"] if "source" in candidate}


def compiled_before(name: str) -> dict[Key, dict[str, Row]]:
    """Candidates of all files, by their operator and their text with its compiler."""
    found: dict[Key, dict[str, Row]] = {}
    for one in (row for file in ever_kept(name) for row in file["rows"]):
        found.setdefault(_key(one), {}).update(_by_source(one))
    return found


if __name__ == "__main__":
    main()
