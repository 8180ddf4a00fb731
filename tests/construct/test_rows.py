"""Rows whose values are kept until their result is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import row_limits
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.one_stage import RowLimits
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import THREAD
from tests.agreement import readers
from tests.program.hand_devices import AVX512


def softmax_program(dtype="float32"):
    graph = canonicalize(rg.ops.softmax(rg.tensor("X", (64, 300), dtype)))
    return construct(graph, AVX512, top_k=1)[0].program


def test_exponentials_wait_in_the_output():
    (stage,) = softmax_program().stages
    assert [kept_row.layer for kept_row in stage.kept_rows] == [AVX512.backing.name]


def test_a_narrower_output_keeps_nothing():
    (stage,) = softmax_program("float16").stages
    assert all(kept_row.layer != AVX512.backing.name for kept_row in stage.kept_rows)


def test_two_values_cannot_wait_in_one_output():
    program = softmax_program()
    (stage,) = program.stages
    first = stage.kept_rows[0]
    both = (first, replace(first, name="another"))
    with pytest.raises(ProgramError, match="the output's"):
        check(replace(program, stages=(replace(stage, kept_rows=both),)), AVX512)


STRIDED = [((3, 21, 70), 1), ((40, 33), 0), ((5, 7, 3, 11), 1), ((2, 130, 9), 1)]


@pytest.mark.parametrize("name", ["v100", "mi50"])
@pytest.mark.parametrize(("shape", "axis"), STRIDED)
def test_a_row_whose_elements_lie_apart_is_one_stage(name, shape, axis):
    target = readers.device(name)
    x = rg.tensor("X", shape)
    graph = canonicalize(rg.ops.softmax(x, axis), rows=row_limits(target))
    program = construct(graph, target, top_k=1)[0].program
    (stage,) = program.stages
    assert stage.op.axes[-1].role == "spatial"
    array = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    want = rg.ops.softmax(x, axis).evaluate(array)
    interpreted = interpret(program, {"X": array}, target)
    np.testing.assert_allclose(interpreted.outputs["out"].reshape(shape), want, rtol=2e-6, atol=1e-9)
    run = readers.run_opencl(program, {"X": array}, target)
    np.testing.assert_allclose(np.asarray(run["out"]).reshape(shape), want, rtol=2e-6, atol=1e-9)
    readers.assert_traffic(program, interpreted.traffic, target, {})


def test_neighbouring_threads_take_neighbouring_rows_where_rows_are_many():
    graph = canonicalize(rg.ops.softmax(rg.tensor("X", (8, 21, 64, 64)), 1), rows=RowLimits(apart=21))
    stage = construct(graph, readers.device("v100"), top_k=1)[0].program.stages[0]
    last = stage.op.axes[-1].name
    assert max(loop.extent for loop in stage.loops if loop.axis == last and loop.kind == THREAD) >= 16


def test_long_rows_that_lie_apart_are_cut_and_a_cpu_reads_them_in_passes():
    long = canonicalize(rg.ops.softmax(rg.tensor("X", (5000, 64)), 0), rows=row_limits(readers.device("v100")))
    assert len(long.tensor_ops) == 3
    assert "rows of 5000 elements that lie apart exceed the limit of 4096" in " ".join(long.cuts)
    assert row_limits(readers.device("cpu")).apart == 0


@pytest.mark.parametrize("name", ["h200", "mi50"])
def test_a_thread_keeps_no_more_of_a_row_of_several_axes_than_its_registers_hold(name):
    device, y = load_device(name), rg.ops.layer_norm(rg.tensor("x", (10966,)), (10966,))
    halved = rg.compute((10966,), lambda i: rg.select(i < 1, y[i // 2], y[i]))
    for ranked in construct(canonicalize([halved]), device, top_k=5):
        launches = emit(ranked.program, device, "opencl").launches
        assert max(launch.private_bytes for launch in launches) <= 4 * device.limits.registers_per_thread
