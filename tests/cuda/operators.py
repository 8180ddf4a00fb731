"""Operators of a suite, cut small, executed from their CUDA text on the CPU and held to the definition."""

from __future__ import annotations

import time
from typing import Any

from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.emit import emit
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.rprogram import RProgram
from rollergen.suites import Entry
from tests.agreement.cutting import cut
from tests.agreement.suite_cases import assert_values, whole_numbers
from tests.cuda.host import HostError
from tests.cuda.test_programs import executed

POINTS, BYTES = 1_000_000, 1 << 22
"""What the fixture executes in seconds: loop iterations, and bytes of all tensors."""


def execute(entry: Entry, device_name: str, points: int = POINTS, most_bytes: int = BYTES) -> dict[str, Any]:
    """What became of the first choice for the operator: ``state`` begins with "right", "wrong" or "does not fit"."""
    choice.cache_clear()
    device = load_device(device_name)
    expression = entry.build(cut(entry, points, most_bytes, images=True))
    try:
        program = construct(canonicalize(expression), device, top_k=1)[0].program
    except DoesNotFitError as error:
        return {"state": f"does not fit: {error}"}
    start, arrays = time.perf_counter(), whole_numbers(program)
    row: dict[str, Any] = {
        "inputs": [list(b.shape) for b in program.inputs],
        "blocks": [stage.blocks for stage in program.stages],
        "axes_with_remainders": remainders(program),
    }
    try:
        got = executed(program, emit(program, device, "cuda"), arrays)
        row |= {"compared": assert_values(expression, program, got, arrays), "state": "right"}
    except (AssertionError, HostError) as error:
        row["state"] = f"wrong: {error}"
    return row | {"s": round(time.perf_counter() - start, 2)}


def remainders(program: RProgram) -> list[str]:
    """Axes, by stage, whose loops cover more than the extent: a part of a tile lies outside."""
    found = []
    for stage in program.stages:
        for axis in stage.definition.axes:
            covered = 1
            for loop in stage.loops:
                covered *= loop.extent if loop.axis == axis.name else 1
            if covered > axis.extent:
                found.append(f"{stage.name}.{axis.name}")
    return found
