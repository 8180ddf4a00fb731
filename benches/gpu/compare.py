"""Ours beside torch, torch.compile, Triton, TileLang, in turns: ``python benches/gpu/compare.py [--suite NAME ...]``.

float32 is float32 on all sides: TF32 is off for matrix products and for cuDNN, and cuDNN chooses by its own
benchmark.  Times are medians by the GPU's events, of the call alone (`timer.py`), warm and cold, which each row
states.  torch writes into an array that is there wherever it can; weights that ours may pack are packed before.  Which
of the others' kernels ran is noted, Winograd's apart: it does fewer multiplications than the definition.  Triton's and
TileLang's are of matrix products (Triton's also of relu and sums), tuned and checked before they are timed; the file
says why one of the two is absent, a row why one does not compete.

Predictions must be there, of the same code, and committed, before (`predict.py`): a row says what was predicted for
the program that won.  Rows are kept in results/gpu_timings_<spec>.json; `summary.py` reads them.  Exits with 3 where
time ran out: call it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine, predict
from benches.gpu.check import build, digest_of
from benches.gpu.machine import Machine, gpu_state
from benches.gpu.peers import WRITTEN, fix_precision, peers, written
from benches.gpu.rows import Row, Rows, of_other_code
from benches.gpu.timer import STATES, Timer, Times
from benches.peers import reasons
from rollergen.errors import RollergenError
from rollergen.suites import Entry

NAME, OURS = "timings", "rollergen"


def row(entry: Entry, on: Machine, timer: Timer, predicted: Row, seconds: float, compile_with: Row) -> Row:
    """One operator: times of all calls in both states, and ratios (the best of the others' over ours)."""
    found: Row = {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "dtype": entry.dtype}
    try:
        kernel = build(entry, on)
    except RollergenError as error:
        return {**found, "state": f"failed: {error}"}
    with on.only_for_a_while():
        inputs, out, other = on.inputs(kernel), on.empty(kernel), on.empty(kernel)
        calls = {OURS: lambda: kernel(*inputs, out=out), **peers(entry, inputs, other, compile_with)}
        more, refused = written(entry, inputs, calls["torch"]())
        calls |= more
        times = {state: timer.alternate(calls, seconds, state) for state in STATES}
        kernels = {name: kernel_names(call) for name, call in calls.items() if name != OURS}
    programs = {one["digest"]: (rank, one) for rank, one in enumerate(predicted["programs"])}
    rank, program = programs.get(digest_of(kernel), (None, {}))
    found |= {"predicted_us": program.get("us"), "rank": rank, "kernels": kernels, "gpu_state": gpu_state()}
    found["not competing"] = refused
    found["winograd"] = [name for name, used in kernels.items() if any("winograd" in one.lower() for one in used)]
    return {**found, **_ratios(times), "state": "timed" if _all_timed(times) else "failed: every round came late"}


def _all_timed(times: dict[str, dict[str, Times | None]]) -> bool:
    return all(one is not None for each in times.values() for one in each.values())


def _ratios(times: dict[str, dict[str, Times | None]]) -> Row:
    found: Row = {}
    for state, each in times.items():
        found[state] = {name: one and one.as_dict() for name, one in each.items()}
        ours, theirs = each[OURS], [one.median_us for name, one in each.items() if name != OURS and one]
        found[f"ratio_{state}"] = round(min(theirs) / ours.median_us, 4) if ours and theirs else None
    return found


def kernel_names(call: Callable[[], object]) -> list[str]:
    """Names of the GPU's kernels that one call launches."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CUDA] if torch.cuda.is_available() else [ProfilerActivity.CPU]
    with profile(activities=activities) as made:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return sorted({str(one.name) for one in made.events() if one.device_type == DeviceType.CUDA})


def committed(path: Path) -> str:
    """The commit that last changed the file.

    Raises RollergenError where it is missing, or has changes that are not committed: a prediction is made before.
    """
    if not path.exists():
        raise RollergenError(f"{path} is missing; expected it made by benches/gpu/predict.py, and committed")
    git = ["git", "-C", str(path.parent)]
    changed = subprocess.run([*git, "status", "--porcelain", "--", path.name], capture_output=True, text=True)
    log = subprocess.run([*git, "log", "-1", "--format=%H", "--", path.name], capture_output=True, text=True)
    if changed.returncode or changed.stdout.strip() or not log.stdout.strip():
        raise RollergenError(f"{path} is not committed; expected predictions that were there before the timings")
    return log.stdout.strip()


def predictions(path: Path) -> dict[Any, Row]:
    return {machine.key(one): one for one in json.loads(path.read_text())["rows"]}


def main(words: list[str] | None = None, where: str = "cuda") -> int:
    from benches.gpu.summary import summary

    parser = machine.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="of turns for each operator and cache state")
    parser.add_argument("--predictions", type=Path, help="the committed file; default: the one under benches/results")
    parser.add_argument("--predictions-commit", help="the commit that has them, to be stated where there is no git")
    parser.add_argument("--compile-mode", default="default", help="of torch.compile: max-autotune-no-cudagraphs, ...")
    parser.add_argument("--compile-backend", default="inductor", help="of torch.compile")
    given = parser.parse_args(words)
    on, found = Machine(machine.spec(given.device), where), machine.entries(given)
    file = given.predictions or machine.path(machine.RESULTS, predict.NAME, on.device)
    compile_with = {"mode": given.compile_mode} if given.compile_backend == "inductor" else {}
    compile_with["backend"] = given.compile_backend
    try:
        commit = given.predictions_commit or committed(file)
        facts = {**on.facts(), "precision": fix_precision(), "torch.compile": compile_with, "predictions": commit}
        facts["absent"] = reasons([one.LIBRARY for one in WRITTEN])
        known = predictions(file)
        missing = [":".join(key) for key in found if key not in known]
        if any(map(of_other_code, known.values())):
            again = "benches/gpu/predict.py makes it anew, and it is to be committed"
            raise RollergenError(f"{file} is of other code than this checkout's: {again}")
        if missing:
            raise RollergenError(f"{file} has no prediction for {', '.join(missing[:5])} ({len(missing)} in all)")
    except RollergenError as error:
        print(error)
        return 2
    timer = Timer(on.runtime, on.device.clock_mhz)
    make = lambda key: row(found[key], on, timer, known[key], given.seconds, compile_with)
    rows = Rows(machine.path(given.results, NAME, on.device), machine.key, facts, summary)
    code = rows.fill(found, make, machine.budget(given), given.again)
    return 1 if any(one["state"] != "timed" for one in rows.all()) else code


if __name__ == "__main__":
    raise SystemExit(main())
