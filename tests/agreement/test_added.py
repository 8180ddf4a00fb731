"""Parts of a sum added atomically to the output: model, interpreter and both languages agree; off unless allowed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ArgumentError, ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.gate.gate import Gate
from rollergen.gate.tolerance import accuracies
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import GRID, Store
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_traffic, assert_values, device, run_opencl, small_integers
from tests.sampling import sample_blocks

T = rg.tensor
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(T("A", (39, 1024)), T("B", (1024, 51))),
    "int8 matmul": lambda: rg.ops.matmul(T("A", (37, 2048), "int8"), T("B", (2048, 41), "int8")),
    "sum of rows": lambda: rg.ops.sum(T("X", (3, 1 << 15)), axis=1),
    "sum of columns": lambda: rg.ops.sum(T("X", (4096, 33)), axis=0),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (1, 64, 5, 7)), T("W", (37, 64, 3, 3)), padding=1),
}  # fmt: skip
ALLOWED = rg.BuildOptions(atomics=True)


@lru_cache(maxsize=8)
def added(name):
    """The expression and its best program that adds parts up."""
    expression = EXPRESSIONS[name]()
    ranked = construct(canonicalize(expression), device("v100"), ALLOWED, top_k=50)
    return expression, next(one.program for one in ranked if any(stage.store.adds for stage in one.program.stages))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_interpreter_computes_the_definition_and_counts_the_predicted_transactions(name):
    expression, program = added(name)
    check(program, device("v100"))
    arrays = small_integers(program)
    found = interpret(program, arrays, device("v100"))
    assert_values(expression, program, found.outputs, arrays, None, 0.0)
    assert_traffic(program, found.traffic, device("v100"), {})


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_opencl_text_computes_the_definition(name):
    expression, program = added(name)
    arrays = small_integers(program)
    assert_values(expression, program, run_opencl(program, arrays, device("v100")), arrays, None, 0.0)


def test_nothing_is_added_up_unless_the_user_allows_it():
    for expression in EXPRESSIONS.values():
        for one in construct(canonicalize(expression()), device("v100"), top_k=50):
            assert not any(stage.store.adds for stage in one.program.stages)


def test_an_option_that_is_no_bool_is_refused():
    with pytest.raises(ArgumentError, match="atomics is 1; expected True or False"):
        rg.BuildOptions(atomics=1)


def test_sampled_blocks_hold_whole_sums():
    expression, program = added("matmul")
    blocks, arrays = sample_blocks(program), small_integers(program)
    sums = program.stages[-1]
    found = interpret(program, arrays, device("v100"), blocks)
    written = found.written[program.outputs[0].name]
    assert len(blocks[sums.name]) % max(loop.extent for _, loop in sums.of_kind(GRID) if "_part" in loop.axis) == 0
    assert_values(expression, program, found.outputs, arrays, {program.outputs[0].name: written}, 0.0)


def test_the_l2_is_asked_for_each_part_and_the_memory_for_the_output_once():
    _, program = added("matmul")
    zeros, sums = predict(program, device("v100")).stages
    plain = predict(replace(program, stages=(program.stages[0], _stored(program))), device("v100")).stages[1]
    assert dict(sums.traffic_bytes)["l2"] > dict(plain.traffic_bytes)["l2"]
    assert sums.seconds > plain.seconds
    assert zeros.seconds >= device("v100").launch_us * 1e-6


def _stored(program):
    """The stage of the parts as if it stored them."""
    return replace(program.stages[-1], store=Store())


def test_the_parts_of_a_sum_must_be_added():
    _, program = added("matmul")
    with pytest.raises(ProgramError, match=r"share a place of the output; expected store\.adds"):
        check(replace(program, stages=(program.stages[0], _stored(program))))


def test_sums_that_nothing_begins_are_refused():
    _, program = added("matmul")
    with pytest.raises(ProgramError, match=r"adds to .*; expected an earlier stage to write it"):
        check(replace(program, stages=program.stages[1:]))


def test_a_result_that_is_more_than_a_sum_is_not_added_up():
    biased = rg.ops.relu(EXPRESSIONS["matmul"]())
    for one in construct(canonicalize(biased), device("v100"), ALLOWED, top_k=50):
        assert not any(stage.store.adds for stage in one.program.stages)


def test_the_tolerance_knows_all_parts_of_a_sum():
    _, program = added("matmul")
    sums = program.stages[-1]
    parts = next(axis.extent for axis in sums.op.axes if axis.name == "k_part")
    found = accuracies([s.op for s in program.stages], program.inputs, 2)[program.outputs[0].name]
    assert found.magnitude == 1024 * 2 * 2
    assert found.variance == pytest.approx((1 + 1024 // parts + parts) * 2.0**-48)  # a product, its part's sum, theirs


def test_programs_that_add_are_read_back_as_they_were():
    _, program = added("matmul")
    assert from_text(to_text(program)) == program


def test_cuda_adds_by_its_own_function():
    _, program = added("matmul")
    text = emit(program, device("v100"), "cuda").text
    assert "atomicAdd(" in text and "atomic_cmpxchg" not in text


@pytest.mark.parametrize(("size", "refused"), [(1e-7, False), (1e-2, True)])
def test_the_gate_lets_the_last_bits_of_what_is_added_up_differ_from_run_to_run(size, refused):
    _, program = added("matmul")
    name = program.outputs[0].name

    def oracle(arrays, output, points):
        return np.einsum("pk,kp->p", arrays["A"].astype(float)[points[0]], arrays["B"].astype(float)[:, points[1]])

    def run(arrays):
        runs.append(1)
        with np.errstate(invalid="ignore"):
            np.matmul(arrays["A"], arrays["B"], out=arrays[name])
        if len(runs) == 2:  # of the same inputs as the first
            arrays[name][5, 6] += np.float32(size) * np.abs(arrays[name]).max()

    runs = []
    unsteady = [text for text in Gate(program, oracle).check(program, run).problems if "two runs" in text]
    assert bool(unsteady) == refused
