"""Operators of suites, held to the definition: at full size in the interpreter, and through PoCL.

The interpreter executes sampled blocks of every edge class of the full-size program, values and traffic; PoCL
executes the whole source of the program constructed for the operator cut to a few seconds' work.  Inputs are
small whole numbers, for which most sums are exact: the tolerance is 0 then, else derived from the computation.
"""

from __future__ import annotations

import time
from math import prod
from typing import Any

import numpy as np

from rollergen.bench.suites import Entry
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.options import BuildOptions
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.reference import evaluate_at
from rollergen.gate.differences import differences
from rollergen.gate.tolerance import accuracies, exact_magnitude
from rollergen.hal.spec import Device
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import RProgram
from rollergen.tile.rules import CodeShapes
from tests.agreement import readers
from tests.agreement.cutting import cut
from tests.agreement.slicing import sliced
from tests.sampling import sample_blocks

POINTS, BYTES = 200_000_000, 1 << 27
"""What PoCL executes in seconds in the shape of a GPU program: loop iterations, and bytes of all tensors."""

INTERPRETED_POINTS = 2_000_000_000
"""Loop iterations that the interpreter executes in ten seconds."""

MOST_POINTS = 10 * INTERPRETED_POINTS

OPENCL = BuildOptions(shapes=CodeShapes(matrix_instructions=False))

_PERIOD = 1_000_003
"""A prime, so that equal inputs never lie a row apart."""


def whole_numbers(program: RProgram) -> dict[str, np.ndarray]:
    """Inputs from -3 to 3 (-1 to 1 where only these are exact), quickly made however large."""
    most = min(3, exact_magnitude(tuple(s.op for s in program.stages), program.inputs) or 3)
    arrays = {}
    for number, buffer in enumerate(program.inputs):
        block = np.random.default_rng(number).integers(-most, most + 1, _PERIOD)
        arrays[buffer.name] = np.resize(block.astype(numpy_dtype(buffer.dtype)), buffer.shape)
    return arrays


def assert_values(expression: Tensor, program: RProgram, got: Any, arrays: Any, written: Any = None) -> int:
    """`got` is the definition's value at up to 2,000 of the written points; how many were compared."""
    (out,) = program.outputs
    where = np.flatnonzero(written[out.name]) if written is not None else np.arange(out.elements)
    assert len(where), "nothing was written"
    if len(where) > 2000:
        where = np.random.default_rng(1).choice(where, 2000, replace=False)
    points = np.unravel_index(where, out.shape)
    want = np.asarray(evaluate_at(expression, [arrays[b.name] for b in program.inputs], points), np.float64)
    tensor_ops = tuple(stage.op for stage in program.stages)
    exact = exact_magnitude(tensor_ops, program.inputs) is not None
    one = accuracies(tensor_ops, program.inputs)[out.name]
    wrong = differences(np.asarray(got[out.name][points]), want, one.variance, out.dtype, exact, one.steps)
    assert not np.any(wrong), f"{np.sum(wrong)} of {len(where)} elements are wrong"
    return len(where)


def run_interpreter(entry: Entry, device: Device) -> dict[str, Any]:
    """Full size, sampled blocks: values and traffic.

    The best program whose sampled blocks are executed in seconds; a CPU's blocks, each a core's share of the whole,
    are `sliced` where they are maps; where all ten have larger blocks still, the one with the smallest.
    """
    expression = entry.make()
    try:
        ranked = construct(canonicalize(expression), device, top_k=10)
    except DoesNotFitError as error:
        return {"state": f"does not fit: {str(error).rsplit('; ', 1)[1]}"}
    programs = [sliced(one.program) for one in ranked]
    rank, blocks, points = _interpretable(programs)
    if points > MOST_POINTS:
        return {"state": f"not run: the smallest sample of blocks is {points:.2g} iterations"}
    program = programs[rank]
    check(program, device)
    start = time.perf_counter()
    arrays = whole_numbers(program)
    result = interpret(program, arrays, device, blocks)
    compared = assert_values(expression, program, result.outputs, arrays, result.written)
    readers.assert_traffic(program, result.traffic, device, blocks)
    ran = [f"{len(blocks[s.name])} of {s.blocks}" for s in program.stages]
    return {
        "state": "right", "rank": rank, "blocks": ran, "sliced": program != ranked[rank].program, "compared": compared,
        "s": round(time.perf_counter() - start, 2),
    }  # fmt: skip


def _interpretable(programs: list[RProgram]) -> tuple[int, dict[str, tuple[int, ...]], float]:
    """Rank, sampled blocks and loop iterations of the program to interpret."""
    found = []
    for rank, program in enumerate(programs):
        blocks = sample_blocks(program)
        points = _iterations(program, blocks)
        # More blocks of each class where they are small.
        if points * 8 <= INTERPRETED_POINTS // 8:
            blocks = sample_blocks(program, per_class=8)
            points = _iterations(program, blocks)
        if points <= INTERPRETED_POINTS:
            return rank, blocks, points
        found.append((points, rank, blocks))
    points, rank, blocks = min(found, key=lambda one: one[:2])
    return rank, blocks, points


def _iterations(program: RProgram, blocks: dict[str, tuple[int, ...]]) -> float:
    whole = {s.name: prod(axis.extent for axis in s.op.axes) for s in program.stages}
    return sum(whole[s.name] * len(blocks[s.name]) / s.blocks for s in program.stages)


def run_pocl(entry: Entry, device: Device) -> dict[str, Any]:
    """Cut where it must be; the whole source, between guard zones; without matrix instructions, for which OpenCL C has
    no words (their CUDA text is executed by `benches/check_cuda_fixture.py`)."""
    fields = cut(entry, POINTS, BYTES)
    expression = entry.build(fields)
    try:
        program = construct(canonicalize(expression), device, OPENCL, top_k=1)[0].program
    except DoesNotFitError as error:
        return {"state": f"does not fit: {str(error).rsplit('; ', 1)[1]}"}
    start = time.perf_counter()
    arrays = whole_numbers(program)
    got = readers.run_opencl(program, arrays, device, optimised=True)
    compared = assert_values(expression, program, got, arrays)
    shapes = [list(b.shape) for b in program.inputs]
    return {
        "state": "right", "cut": fields != dict(entry.fields), "inputs": shapes, "compared": compared,
        "s": round(time.perf_counter() - start, 2),
    }  # fmt: skip


READERS = {"interpreter": run_interpreter, "pocl": run_pocl}


def run_entry(entry: Entry, device: Device, reader: str) -> dict[str, Any]:
    """What one of the `READERS` found."""
    choice.cache_clear()
    try:
        return READERS[reader](entry, device)
    except AssertionError as error:
        return {"state": f"wrong: {error}"}
