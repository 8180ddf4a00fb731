"""Every operator at full size on the GPU, its whole result held to torch's in float64: ``python benches/gpu/check.py``.

The model's first choice is compiled and called, nothing else, so that the whole list is done in minutes (`compare.py`
measures ten candidates, each through the gate, and compares the fastest as here).  Each element is compared; the
tolerance is the gate's (`rollergen.gate.tolerance`), and integers must be equal.  Where float64 does not fit the
GPU's memory, float32 is the reference, and its own rounding is allowed for.  Rows are kept in
results/gpu_correctness_<spec>.json.  Exits with 1 where one is wrong, with 3 where time ran out: call it again.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rollergen as rg
from benches.gpu import machine, predict
from benches.gpu.machine import Machine
from benches.gpu.peers import fix_precision
from benches.gpu.rows import Row, Rows
from benches.gpu.torch_calls import operator
from rollergen.bench.suites import Entry
from rollergen.emit import Source
from rollergen.errors import RollergenError
from rollergen.gate.narrowing import program_accuracies
from rollergen.gate.tolerance import CONFIDENCE, Accuracy, unit_roundoff

NAME = "correctness"
PIECE = 1 << 24
"""Elements that are compared at once."""


def row(entry: Entry, on: Machine) -> Row:
    started = time.perf_counter()
    kernel = rg.build(entry.make(), on.device, profile=False, top_k=1, cache=False)
    found = {**machine.facts_of(entry), "digest": digest_of(kernel)}
    with on.only_for_a_while():
        found |= compared(entry, kernel, on, on.inputs(kernel))
    return {**found, "seconds": round(time.perf_counter() - started, 2)}


def digest_of(kernel: rg.Kernel) -> str:
    return predict.digest(Source(kernel.source, kernel.launches, kernel.language))


def compared(entry: Entry, kernel: rg.Kernel, on: Machine, inputs: tuple[Any, ...]) -> Row:
    """The whole result of one call, with its reference's dtype."""
    got = on.tensor(kernel(*on.arrays(inputs)))
    (out,) = kernel.program.outputs
    accuracy = program_accuracies(kernel.program)[out.name]
    want, dtype = reference(entry, inputs)
    variance = accuracy.variance
    if dtype == "float32":
        variance = 2 * variance + unit_roundoff(dtype) ** 2
    wrong = wrong_elements(got, want, Accuracy(variance, math.inf, accuracy.steps), out.dtype)
    return {
        "state": "right" if not wrong else f"wrong: {wrong} of {got.numel()} elements",
        "reference": f"torch, {dtype}",
        "elements": got.numel(),
    }


def reference(entry: Entry, inputs: tuple[Any, ...]) -> tuple[Any, str]:
    """torch's result and the dtype in which it was computed."""
    import torch

    made = operator(entry)
    for dtype in ("float64", "float32"):
        try:
            return made.call(*made.prepare(*(one.to(getattr(torch, dtype)) for one in inputs))), dtype
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    raise RollergenError(f"{entry.name}: neither float64 nor float32 fits the GPU's memory beside the kernel's arrays")


def wrong_elements(got: Any, want: Any, accuracy: Accuracy, dtype: str) -> int:
    """How many elements are not acceptable: the formula of `differences.allowed_error`, over torch's arrays."""
    import torch

    if got.shape != want.shape:
        raise RollergenError(f"the result has shape {tuple(got.shape)}; expected {tuple(want.shape)}")
    pieces = list(zip(got.reshape(-1).split(PIECE), want.reshape(-1).split(PIECE), strict=True))
    squares = sum(float(w.double().square().sum()) for _, w in pieces)
    typical = math.sqrt(squares / max(1, want.numel()))
    unit, wrong = unit_roundoff(dtype), 0
    for g, w in pieces:
        if accuracy.variance == 0.0:
            wrong += int((g != w.to(g.dtype)).sum())
            continue
        size = w.double().abs()
        allowed = CONFIDENCE * math.sqrt(accuracy.variance) * size.clamp_min(typical) + unit * size
        allowed += float(torch.finfo(g.dtype).tiny) + accuracy.steps
        wrong += int((~((g.double() - w.double()).abs() <= allowed)).sum())
    return wrong


def summary(rows: list[Row]) -> Row:
    states = [one["state"] for one in rows]
    count = {start: sum(state.startswith(start) for state in states) for start in ("right", "wrong", "failed")}
    return {**count, "elements": sum(one.get("elements", 0) for one in rows)}


def main(words: list[str] | None = None) -> int:
    given = machine.parsed(machine.parser(__doc__), words)
    on, found = machine.machine(given), machine.entries(given)
    try:
        known = predict.predicted(machine.path(given.results, predict.NAME, on.device), list(found))
    except RollergenError as error:
        print(error)
        return 2
    facts = {**on.facts(), "precision": fix_precision()}
    rows = Rows(machine.path(given.results, NAME, on.device), facts, summary, predict.stamps(known))
    code = rows.fill(
        found, lambda key: row(found[key], on), machine.budget(given), again=given.again, retry=given.retry,
        alive=on.alive,
    )  # fmt: skip
    bad = [one for one in rows.all() if one["state"] != "right"]
    for one in bad:
        print(f"{one['suite']}:{one['id']}: {one['state']}")
    return code or int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
