"""Operators of a suite, cut small, executed from their CUDA text on the CPU and held to the definition."""

from __future__ import annotations

import hashlib
import time
from math import ceil, prod
from typing import Any

from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.emit import Source, emit
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.matrix import matrix_instruction
from rollergen.program.rprogram import GRID, SERIAL, RProgram, Stage
from rollergen.suites import Entry
from tests.agreement.cutting import cut
from tests.agreement.suite_cases import assert_values, whole_numbers
from tests.cuda.host import HEADER, HostError
from tests.cuda.test_programs import executed

POINTS, BYTES = 1 << 25, 1 << 23
"""What the fixture executes in seconds: loop iterations, and bytes of all tensors."""

CONTRACTIONS = ("matmul", "conv2d")
"""Kinds of the suite that matrix instructions compute."""

MATRIX = "float16"
"""The dtype of the programs with matrix instructions."""

MOST_DRAFTED = 50


def execute(
    entry: Entry, device_name: str, points: int = POINTS, most_bytes: int = BYTES, *, dtype: str = "",
    known: str = "", reverse: bool = False,
) -> dict[str, Any]:
    """What became of the operator's program: ``state`` begins with "right", "wrong", "does not fit", or is "known".

    ``dtype`` other than the entry's: of all tensors; then the program is the best one with matrix instructions.
    ``known``: the `digest` of what was executed before and is not executed again.  ``reverse``: threads and blocks
    from the last to the first.
    """
    choice.cache_clear()
    device = load_device(device_name)
    fields = cut(entry, points, most_bytes, images=True)
    expression = entry.build({**fields, "dtype": dtype} if dtype else fields)
    try:
        program = _program(expression, device, matrix=dtype == MATRIX)
    except DoesNotFitError as error:
        return {"state": f"does not fit: {error}"}
    if program is None:
        return {"state": f"wrong: none of {MOST_DRAFTED} programs has a matrix instruction"}
    source = emit(program, device, "cuda")
    digest = _digest(source, program, reverse)
    if digest == known:
        return {"state": "known"}
    start, arrays = time.perf_counter(), whole_numbers(program)
    row: dict[str, Any] = {
        "inputs": [list(b.shape) for b in program.inputs],
        "blocks": [stage.blocks for stage in program.stages],
        "tiles": tiles(program),
        "axes_with_remainders": remainders(program),
        "digest": digest,
    }
    try:
        got = executed(program, source, arrays, reverse)
        row |= {"compared": assert_values(expression, program, got, arrays), "state": "right"}
    except (AssertionError, HostError) as error:
        row["state"] = f"wrong: {error}"
    return row | {"s": round(time.perf_counter() - start, 2)}


def _program(expression: Tensor, device: Device, matrix: bool) -> RProgram | None:
    graph = canonicalize(expression)
    if not matrix:
        return construct(graph, device, top_k=1)[0].program
    for count in (10, MOST_DRAFTED):
        for one in construct(graph, device, top_k=count):
            if any(matrix_instruction(stage, device) for stage in one.program.stages):
                return one.program
    return None


def _digest(source: Source, program: RProgram, reverse: bool) -> str:
    """Of all that a run depends on: text, launches, sizes, and the header that executes it."""
    facts = (source.text, source.launches, [b.shape for b in program.inputs], reverse, HEADER.read_text())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def tiles(program: RProgram) -> dict[str, int]:
    """How many tiles lie along each axis, by stage: blocks along spatial axes, steps of the staging along reduced
    ones (iterations of their serial loops where nothing is staged)."""
    found = {}
    for stage in program.stages:
        outside = max((copy.at_loop for copy in stage.copies), default=len(stage.loops))
        for axis in stage.definition.axes:
            reduced = axis.role == "reduce"
            covered = prod(
                loop.extent for at, loop in stage.of_axis(axis.name) if not _outer(loop.kind, at, outside, reduced)
            )
            found[f"{stage.name}.{axis.name}"] = ceil(axis.extent / covered)
    return found


def _outer(kind: str, at: int, outside: int, reduced: bool) -> bool:
    return kind == GRID or (reduced and kind == SERIAL and at < outside)


def remainders(program: RProgram) -> list[str]:
    """Axes, by stage, whose loops cover more than the extent: a part of a tile lies outside."""
    return [
        f"{stage.name}.{axis.name}"
        for stage in program.stages
        for axis in stage.definition.axes
        if _covered(stage, axis.name) > axis.extent
    ]


def _covered(stage: Stage, axis: str) -> int:
    return prod(loop.extent for _, loop in stage.of_axis(axis))
