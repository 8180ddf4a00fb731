"""Transposes through a block's layer, stored in vectors: in all readers, with tails."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import RProgram
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.readers import assert_traffic, assert_values, device, run_opencl, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed
from tests.lower.devices import AVX512

V100 = device("v100")


def transposed(shape, dtype="float32"):
    return rg.ops.permute(rg.tensor("X", shape, dtype), (1, 0))


def turning(expression):
    """A program for each plan that turns a tile and stores it in vectors."""
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    for plan in elementwise_plans(op, V100, AlignmentRules(), Tally()):
        if plan.staged >= 0 and plan.um * plan.vector > 1:
            yield RProgram("v100", graph.inputs, graph.outputs, (elementwise_stage(op, plan, V100),))


@pytest.mark.parametrize(("shape", "dtype"), [((64, 96), "float32"), ((44, 37), "float32"), ((40, 50), "float16")])
def test_readers_of_turned_tiles_agree(shape, dtype):
    expression = transposed(shape, dtype)
    programs = list(turning(expression))
    assert programs
    for program in programs:
        assert program.stages[0].store.vector > 1
        arrays = small_integers(program)
        found = interpret(program, arrays, V100)
        assert_values(expression, program, found.outputs, arrays)
        assert_traffic(program, found.traffic, V100, {})
        assert_values(expression, program, run_opencl(program, arrays, V100), arrays)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_cuda_text_of_turned_tiles_gives_the_definition():
    expression = transposed((44, 37))
    program = next(turning(expression))
    arrays = small_integers(program)
    assert_values(expression, program, executed(program, emit(program, V100, "cuda"), arrays), arrays)


def test_rows_that_do_not_begin_on_vectors_are_stored_element_by_element():
    assert not list(turning(transposed((45, 64))))


def test_the_model_prefers_vectors_and_they_can_be_switched_off():
    graph = canonicalize(transposed((4096, 4096)))
    best = construct(graph, V100, top_k=1)[0]
    assert best.variants == ("transposed",) and best.program.stages[0].store.vector == 4
    plain = construct(graph, V100, BuildOptions(shapes=CodeShapes(transposed_vectors=False)), top_k=10)
    assert all(one.program.stages[0].store.vector == 1 for one in plain if one.variants == ("transposed",))


NARROW = ("float16", "bfloat16", "int8", "bool")


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(("shape", "order"), [((4, 8), (1, 0)), ((32, 48), (1, 0)), ((2, 24, 16), (0, 2, 1))])
@pytest.mark.parametrize("name", ["cpu", "cortex-a53"])
def test_every_plan_of_a_narrow_transpose_for_vectors_is_a_program_that_gives_the_definition(name, shape, order, dtype):
    spec, expression = device(name), rg.ops.permute(rg.tensor("X", shape, dtype), order)
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    for plan in elementwise_plans(op, spec, AlignmentRules(), Tally()):
        program = RProgram(name, graph.inputs, graph.outputs, (elementwise_stage(op, plan, spec),))
        check(program, spec)
        arrays = small_integers(program)
        assert_values(expression, program, interpret(program, arrays, spec).outputs, arrays)


@pytest.mark.parametrize("dtype", NARROW)
def test_source_of_a_narrow_transpose_through_padded_rows_gives_the_definition(dtype):
    spec, expression = device("cpu"), transposed((64, 96), dtype)
    padded = [one for one in construct(canonicalize(expression), spec, top_k=50) if one.program.stages[0].copies]
    program = max((one.program for one in padded), key=lambda p: p.stages[0].copies[0].padding)
    (copy,) = program.stages[0].copies
    assert copy.padding and copy.vector > 1
    arrays = small_integers(program)
    assert_values(expression, program, run_opencl(program, arrays, spec), arrays)


@pytest.mark.parametrize(
    ("shape", "dtype", "side"),
    [
        ((64, 8), "float32", 8),
        ((70, 10), "float32", 8),
        ((33, 6), "float32", 4),
        ((40, 12), "float16", 8),
        ((24, 5), "uint8", 4),
        ((20, 7), "float64", 4),
        ((50, 20), "float32", 16),
    ],
)
def test_readers_of_squares_as_short_as_the_rows_agree(shape, dtype, side):
    """Squares are of half or a quarter of a vector where rows are shorter than it, and the last ones overlap."""
    expression = transposed(shape, dtype)
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    plans = [plan for plan in elementwise_plans(op, AVX512, AlignmentRules(), Tally()) if plan.square]
    assert {plan.square for plan in plans} == {side}
    for plan in plans[::3]:
        program = RProgram(AVX512.name, graph.inputs, graph.outputs, (elementwise_stage(op, plan, AVX512),))
        check(program, AVX512)
        arrays = small_integers(program)
        found = interpret(program, arrays, AVX512)
        assert_values(expression, program, found.outputs, arrays)
        assert_traffic(program, found.traffic, AVX512, {})
        assert_values(expression, program, run_opencl(program, arrays, AVX512), arrays)


def test_rows_below_the_smallest_square_are_not_turned():
    (op,) = canonicalize(transposed((64, 3))).tensor_ops
    assert not any(plan.square for plan in elementwise_plans(op, AVX512, AlignmentRules(), Tally()))
