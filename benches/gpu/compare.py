"""Ours beside others, in turns: ``python benches/gpu/compare.py [--peers] [--core] [--suite NAME ...]``.

Ten candidates are built, checked by the gate and measured, as a user's build does; the fastest is compared in whole
with torch in float64, and timed beside torch's own call (cuBLAS, cuDNN); with ``--peers`` beside torch.compile, Triton
and TileLang, which take longer to compile and to tune.

float32 is float32 on all sides: TF32 is off for matrix products and for cuDNN, and cuDNN chooses by its own
benchmark.  Times are medians by the device's clock, of the call alone (`timer.py`), warm and cold, which each row
states.  Whoever competes is held to our result before it is timed.  Which of the others' kernels ran is noted,
Winograd's apart: it does fewer multiplications than the definition.  The file says who is absent and why, a row who
does not compete and why.

Predictions must be there, of the same code, and committed before as they are (`predict.py`): a row says what was
predicted for the program that won.  Rows are kept in results/gpu_timings_<spec>.json and gpu_peers_<spec>.json;
`report.py` reads them.  Exits with 3 where time ran out: call it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rollergen as rg
from benches.gpu import dry, machine, peers, predict
from benches.gpu.cases import Key
from benches.gpu.check import compared, digest_of
from benches.gpu.machine import Machine
from benches.gpu.peers import WRITTEN, compilers, fix_precision, libraries
from benches.gpu.rows import Row, Rows, key_of, rows_of
from benches.gpu.timer import STATES, Timer, Times
from benches.peers import reasons
from rollergen.bench.suites import Entry
from rollergen.errors import RollergenError

NAME, OURS = "timings", "rollergen"
LATE = "the host was slower than the GPU in every round"


@dataclass(frozen=True)
class Settings:
    """``seconds``: of turns for each operator and state of the cache; ``compile_with``: arguments of torch.compile;
    ``peers``: whether those that compile and tune compete, instead of the libraries."""

    on: Machine
    timer: Timer
    seconds: float
    compile_with: Row
    peers: bool


def build(entry: Entry, on: Machine) -> rg.Kernel:
    """Measured, and kept in the cache: who comes again finds it there.  In a dry run two candidates, of no cache."""
    few = {"top_k": 2, "cache": False} if on.dry else {}
    return rg.build(entry.make(), on.device, profile=True, **few)


def row(entry: Entry, to: Settings, predicted: Row) -> Row:
    """One operator: times of all calls in both states, and ratios (the best of the others' over ours)."""
    started, on = time.perf_counter(), to.on
    kernel = build(entry, on)
    found: Row = {**machine.facts_of(entry), "build_s": round(time.perf_counter() - started, 2)}
    with on.only_for_a_while():
        inputs = on.inputs(kernel)
        found |= compared(entry, kernel, on, inputs)
        if found["state"] == "right":
            found |= _won(kernel, predicted) | _timed(entry, kernel, inputs, to)
    return {**found, "seconds": round(time.perf_counter() - started, 2)}


def _timed(entry: Entry, kernel: rg.Kernel, inputs: tuple[Any, ...], to: Settings) -> Row:
    """The times of a kernel that is right, and of who competes."""
    arrays, (out,) = to.on.arrays(inputs), to.on.arrays([to.on.empty(kernel)])
    offered = compilers if to.peers else libraries
    calls, refused = offered(entry, inputs, to.on.tensor(kernel(*arrays)), to.compile_with)
    calls = {OURS: lambda: kernel(*arrays, out=out), **calls}
    times = {state: to.timer.alternate(calls, to.seconds, state) for state in STATES}
    late = [name for name in calls if any(each[name] is None for each in times.values())]
    kernels = {name: kernel_names(call) for name, call in calls.items() if name not in (OURS, *late)}
    found = {
        "kernels": kernels, "not competing": refused | dict.fromkeys(late, LATE), "gpu_state": to.on.state(),
        "winograd": [name for name, used in kernels.items() if any("winograd" in one.lower() for one in used)],
    }  # fmt: skip
    if OURS in late:
        return {**found, "state": f"failed: {LATE}"}
    measured = {state: {n: one for n, one in each.items() if one and n not in late} for state, each in times.items()}
    return {**found, **_ratios(measured), "state": "timed"}


def _won(kernel: rg.Kernel, predicted: Row) -> Row:
    """The predicted rank and time of the program that was the fastest; None where it was not among the predicted."""
    ranks = {digest: (rank, us) for rank, (digest, us) in enumerate(predicted["programs"])}
    rank, us = ranks.get(digest_of(kernel), (None, None))
    return {"rank": rank, "predicted_us": us}


def _ratios(times: dict[str, dict[str, Times]]) -> Row:
    found: Row = {}
    for state, each in times.items():
        found[state] = {name: one.as_dict() for name, one in each.items()}
        theirs = [one.median_us for name, one in each.items() if name != OURS]
        found[f"ratio_{state}"] = round(min(theirs) / each[OURS].median_us, 4) if theirs else None
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


def committed(path: Path, keys: Sequence[Key]) -> str:
    """The last commit of the file, whose predictions for these operators must be those of the file as it is now: it may
    have been written anew since, by code that predicts the same.

    Raises RollergenError where it is missing, or was not committed as it predicts: a prediction is made before.
    """
    if not path.exists():
        raise RollergenError(f"{path} is missing; expected it made by benches/gpu/predict.py, and committed")
    commit = _git(path, "log", "-1", "--format=%H", "--", path.name).strip()
    kept = json.loads(_git(path, "show", f"{commit}:./{path.name}"))["rows"] if commit else []
    before, now = ({key_of(one): one["programs"] for one in rows} for rows in (kept, rows_of(path)))
    others = [":".join(key) for key in keys if key not in before or before[key] != now.get(key)]
    if others:
        where = f"as of {commit[:10]}" if commit else "at all"
        raise RollergenError(
            f"{path} is not committed {where} for {', '.join(others[:5])} ({len(others)} in all); expected predictions "
            "that were there before the timings: commit it"
        )
    return commit


def _git(path: Path, *words: str) -> str:
    """What git says in the file's folder.  Raises RollergenError where it fails, or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(path.parent), *words], capture_output=True, text=True)
    except OSError as error:
        raise RollergenError(f"{error}: {_NO_GIT.format(path)}") from None
    if done.returncode:
        raise RollergenError(f"{(done.stderr.splitlines() or ['git failed'])[0]}: {_NO_GIT.format(path)}")
    return done.stdout


_NO_GIT = "git does not tell which commit has {}; where it cannot, say --predictions-commit COMMIT"


def main(words: list[str] | None = None) -> int:
    from benches.gpu.report import counted

    parser = machine.parser(__doc__)
    parser.add_argument("--peers", action="store_true", help="torch.compile, Triton and TileLang instead of torch")
    parser.add_argument("--seconds", type=float, default=0.5, help="of turns for each operator and cache state")
    parser.add_argument("--predictions", type=Path, help="the committed file; default: the one beside the results")
    parser.add_argument("--predictions-commit", help="the commit that has them, to be stated where there is no git")
    parser.add_argument("--compile-mode", default="default", help="of torch.compile: max-autotune-no-cudagraphs, ...")
    given = machine.parsed(parser, words)
    on, found = machine.machine(given), machine.entries(given)
    file = given.predictions or machine.path(given.results, predict.NAME, on.device)
    compile_with = dry.COMPILE_WITH if on.dry else {"mode": given.compile_mode, "backend": "inductor"}
    try:
        commit = given.predictions_commit or ("a dry run" if on.dry else committed(file, list(found)))
        known = predict.predicted(file, list(found))
    except RollergenError as error:
        print(error)
        return 2
    facts = {**on.facts(), "precision": fix_precision(), "torch.compile": compile_with, "predictions": commit}
    facts["absent"] = reasons([one.LIBRARY for one in WRITTEN])
    timer = Timer(on.runtime)
    to = Settings(on, timer, 0.0 if on.dry else given.seconds, compile_with, given.peers)
    path = machine.path(given.results, peers.NAME if given.peers else NAME, on.device)
    rows = Rows(path, facts, counted, predict.stamps(known))
    code = rows.fill(
        found, lambda key: row(found[key], to, known[key]), machine.budget(given), again=given.again,
        retry=given.retry, alive=on.alive,
    )  # fmt: skip
    return code or int(any(one["state"] != "timed" for one in rows.all()))


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
