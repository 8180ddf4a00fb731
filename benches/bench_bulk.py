"""Operators on a bulk-synchronous machine, interpreted across all tiles: ``python benches/bench_bulk.py``.

Every operator of ROLLER's suite on the IPU, its batch (rows of a matrix product) halved until the program fits the
tiles and the work is at most a thousand million multiply-adds (`--work` asks for less, as far as halving goes).
Held: results equal the definition at up to 2,000 points (whole numbers: exactly, where sums of them are), bytes
received and sent and memory equal the closed forms on every tile and superstep, fragments are at most theirs, no tile
exceeds its memory.  Rows are kept as they come in results/bulk_<cpu>_<day>.json, and not run again by the same code
(`--again` does; without it those of a smaller limit are).  Matrix products of a tile are small: with threads of its
own, the library spends more time in waking them than in multiplying.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported

import numpy as np

from benches.results import begun, keep, result_path
from rollergen.bench.suites import Entry, suite
from rollergen.bsp.interpreter import interpret_bulk
from rollergen.bsp.model import bulk_facts
from rollergen.construct import construct
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram
from tests.agreement.suite_cases import assert_values, whole_numbers

MOST_WORK = 1_000_000_000
Row = dict[str, Any]


def fitted(entry: Entry, device: Device, most_work: int = MOST_WORK) -> tuple[Any, Tensor, RProgram]:
    """(fields, expression, program) of the operator with its first axes halved until it fits."""
    fields: Any = copy.deepcopy(dict(entry.fields))
    while True:
        expression, shape = entry.build(fields), fields["inputs"][0]["shape"]
        limit = most_work if shape[0] > 1 else MOST_WORK
        program = _program(expression, device) if canonicalize(expression).points <= limit else None
        if program is not None:
            return fields, expression, program
        if shape[0] == 1:
            points = canonicalize(expression).points
            raise DoesNotFitError(f"{entry.name}: a batch of 1 has {points} points; expected {MOST_WORK}")
        shape[0] //= 2


def _program(expression: Tensor, device: Device) -> RProgram | None:
    try:
        program = construct(canonicalize(expression), device, top_k=1)[0].program
    except DoesNotFitError:
        return None
    return program if program.tile_mappings else None


def assert_equal_to_closed_forms(program: RProgram, device: Device, got: Any) -> None:
    """Bytes and memory of every tile and superstep; tensors of these operators are dealt for their only reader."""
    facts = bulk_facts(program, device)
    for counted, form in zip(got.steps, facts.steps, strict=True):
        tiles = len(form.received)
        assert np.array_equal(counted.received[:tiles], form.received), f"{form.stage}: bytes received"
        assert np.array_equal(counted.sent[: len(form.sent)], form.sent[: len(counted.sent)]) or np.array_equal(
            counted.sent[:tiles], form.sent[:tiles]
        ), f"{form.stage}: bytes sent"
        assert np.all(counted.fragments[:tiles] <= form.fragments[:tiles]), f"{form.stage}: fragments"
    assert np.array_equal(got.live, facts.live), "memory"
    assert got.peak <= facts.capacity, "capacity"


def run_entry(entry: Entry, device: Device, most_work: int = MOST_WORK) -> Row:
    """One operator: constructed, interpreted, compared."""
    row: Row = {"id": entry.id, "kind": entry.kind, "device": device.name, "work_limit": most_work}
    start = time.process_time()
    fields, expression, program = fitted(entry, device, most_work)
    built = time.process_time()
    arrays = whole_numbers(program)
    got = interpret_bulk(program, arrays, device)
    compared = assert_values(expression, program, got.outputs, arrays, got.written)
    assert all(mask.all() for mask in got.written.values()), "every element is written"
    assert_equal_to_closed_forms(program, device, got)
    facts = bulk_facts(program, device)
    return {
        **row, "state": "right", "inputs": [list(b.shape) for b in program.inputs],
        "cut": fields != dict(entry.fields), "work": canonicalize(expression).points, "compared": compared,
        "tiles": [stage.blocks for stage in program.stages], "supersteps": len(facts.steps),
        "instruction": program.stages[0].compute.instruction, "peak_bytes": got.peak,
        "received_bytes": int(sum(step.received.sum() for step in got.steps)), "predicted_clocks": facts.clocks,
        "construct_cpu_s": round(built - start, 2), "interpret_cpu_s": round(time.process_time() - built, 2),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ipu")
    parser.add_argument("--only", nargs="+", help="identifiers of entries")
    parser.add_argument("--work", type=int, default=MOST_WORK)
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args()
    device, before = load_device(asked.device), begun(result_path("bulk")).get("rows", [])
    rows = {(row["device"], row["id"]): row for row in before}
    for entry in suite("roller").entries:
        key = device.name, entry.id
        done = key in rows and rows[key].get("work_limit", 0) >= asked.work
        if (asked.only and entry.id not in asked.only) or (done and not asked.again):
            continue
        try:
            rows[key] = run_entry(entry, device, asked.work)
        except AssertionError as error:
            rows[key] = {"id": entry.id, "kind": entry.kind, "device": device.name, "state": f"wrong: {error}"}
        except DoesNotFitError as error:
            rows[key] = {"id": entry.id, "kind": entry.kind, "device": device.name, "state": str(error)}
        print(rows[key], flush=True)
        states = [row["state"] for row in rows.values()]
        limits = sorted({row.get("work_limit", 0) for row in rows.values()})
        summary = {"operators": len(states), "right": states.count("right"), "work limits": limits}
        keep("bulk", {"summary": summary, "rows": list(rows.values())})
    return 0 if all(row["state"] == "right" for row in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
