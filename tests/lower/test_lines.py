"""Stores that begin on cache lines, wherever the output begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import RProgram
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules
from tests.lower.harness import numpy_dtype, runtime
from tests.lower.test_shapes import QUICK
from tests.program.hand_devices import AVX512


def transposed(rows, columns, dtype="float32", lanes=16, pm=1, pn=2):
    """A program that writes X (rows, columns) transposed, in vectors that begin on lines."""
    graph = canonicalize(rg.ops.permute(rg.tensor("X", (rows, columns), dtype), (1, 0)))
    plan = ElementwisePlan(pm=pm, pn=pn, lanes=lanes, staged=0, layer="l1", square=lanes, streaming=True, on_lines=True)
    stage = elementwise_stage(graph.tensor_ops[0], plan, AVX512)
    return RProgram("cpu", graph.inputs, graph.outputs, (stage,))


def run_at(program, x, behind):
    """What the program writes into an output that begins `behind` elements after a line, and its surroundings."""
    output = program.outputs[0]
    dtype, zone = numpy_dtype(output.dtype), 64
    raw = np.full(output.elements + 3 * zone, 99, dtype)
    start = zone + (-(raw.ctypes.data // dtype.itemsize) - zone) % (64 // dtype.itemsize) + behind
    array = raw[start : start + output.elements]
    array[...] = -1
    source, run = emit(program, AVX512), runtime()
    kernel = run.compile(source.text).kernel(source.launches[0].entry)
    buffers = {program.inputs[0].name: run.wrap(x.reshape(-1)), output.name: run.wrap(array)}
    run.set_arguments(kernel, [buffers[name] for name in source.launches[0].arguments])
    run.launch(kernel, source.launches[0].blocks, source.launches[0].threads)
    run.finish()
    untouched = (raw[:start] == 99).all() and (raw[start + output.elements :] == 99).all()
    return array.reshape(output.shape), untouched


@QUICK
@given(
    rows=st.integers(1, 6), columns=st.integers(1, 6), behind=st.integers(0, 15),
    pm=st.sampled_from([1, 2]), pn=st.sampled_from([2, 3]),
)  # fmt: skip
def test_every_element_is_written_once_wherever_the_output_begins(rows, columns, behind, pm, pn):
    program = transposed(rows * 16, columns * 16, pm=pm, pn=pn)
    x = np.random.default_rng(0).random((rows * 16, columns * 16), dtype="float32")
    if (-(-(rows * 16 + 15) // (pn * 16)) - 1) * pn * 16 >= rows * 16:
        with pytest.raises(ProgramError, match="where axis i1 ends"):
            check(program, AVX512)
        return
    check(program, AVX512)
    y, untouched = run_at(program, x, behind)
    assert untouched and (y == x.T).all()


def test_float64_rows_begin_on_lines():
    program = transposed(40, 24, "float64", lanes=8, pn=3)
    check(program, AVX512)
    x = np.random.default_rng(0).random((40, 24))
    for behind in range(8):
        y, untouched = run_at(program, x, behind)
        assert untouched and (y == x.T).all()


def test_the_interpreter_sees_an_output_that_begins_on_a_line():
    program = transposed(48, 32)
    x = np.random.default_rng(0).random((48, 32), dtype="float32")
    found = interpret(program, {program.inputs[0].name: x}, AVX512)
    (y,) = found.outputs.values()
    assert (np.asarray(y) == x.T).all()


def test_rows_that_begin_differently_are_refused():
    program = transposed(50, 32, pn=3)
    with pytest.raises(ProgramError, match="on_lines"):
        check(program, AVX512)


def test_construction_begins_on_lines_where_the_output_is_large():
    large = canonicalize(rg.ops.permute(rg.tensor("X", (4096, 4096)), (1, 0))).tensor_ops[0]
    small = canonicalize(rg.ops.permute(rg.tensor("X", (64, 64)), (1, 0))).tensor_ops[0]
    plans = [list(elementwise_plans(op, AVX512, AlignmentRules(), Tally())) for op in (large, small)]
    assert any(plan.on_lines for plan in plans[0])
    assert not any(plan.on_lines for plan in plans[1]) and any(plan.square for plan in plans[1])
