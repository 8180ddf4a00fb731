"""Reductions of any length split into parts of which the last is short: all readers agree, whatever is reduced."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.reductions import combine_stage
from rollergen.construct.roles import contraction_roles
from rollergen.construct.splits import part_counts
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.splitting import split_reduction
from rollergen.gate.tolerance import accuracies
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan, ReductionPlan
from rollergen.program.assemble.reduction import reduction_stage
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_text, to_text
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.readers import assert_traffic, assert_values, device, run_opencl, small_integers

T = rg.tensor


def spread(x):
    """The sum of squares beside the mean: components (count, mean, squares) put together in pairs."""

    def both(a, b):
        count = a[0] + b[0]
        share = rg.select(count > 0, b[0] / rg.maximum(count, 1.0), 0.0)
        apart = b[1] - a[1]
        return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share

    k = rg.reduce_axis("k", x.shape[0])
    one = rg.cast(rg.select(k >= 0, 1, 0), "float32")
    return rg.compute((), lambda: rg.reduce(both, (0.0, 0.0, 0.0), (one, x[k], 0.0 * x[k]), axis=k)[2])


EXPRESSIONS = {
    "sum of rows": lambda: rg.ops.sum(T("X", (3, 2053)), axis=1),
    "sum of columns": lambda: rg.ops.sum(T("X", (1031, 33)), axis=0),
    "sum along two axes": lambda: rg.ops.sum(T("X", (7, 3, 1031)), axis=(0, 2)),
    "mean of float16": lambda: rg.ops.mean(T("X", (2053,), "float16"), axis=0),
    "largest of int8": lambda: rg.ops.amax(T("X", (1283,), "int8"), axis=0),
    "product": lambda: rg.ops.prod(T("X", (1031,)), axis=0),
    "argmax": lambda: rg.ops.argmax(T("X", (3, 2053)), axis=1),
    "argmax of columns": lambda: rg.ops.argmax(T("X", (1031, 33)), axis=0),
    "spread": lambda: spread(T("X", (1031,))),
    "matmul": lambda: rg.ops.matmul(T("A", (39, 1021)), T("B", (1021, 51))),
    "matmul and more": lambda: rg.ops.relu(
        rg.ops.sub(rg.ops.matmul(T("A", (39, 2060)), T("B", (2060, 52))), T("C", (39, 52)))
    ),
    "int8 matmul": lambda: rg.ops.matmul(T("A", (37, 1031), "int8"), T("B", (1031, 41), "int8")),
    "float16 matmul": lambda: rg.ops.matmul(T("A", (37, 1031), "float16"), T("B", (1031, 41), "float16")),
    "float16 vectors": lambda: rg.ops.matmul(T("A", (37, 2072), "float16"), T("B", (2072, 48), "float16")),
    "batch matmul": lambda: rg.ops.batch_matmul(T("A", (3, 17, 523)), T("B", (3, 523, 19))),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (1, 61, 5, 7)), T("W", (37, 61, 3, 3)), padding=1),
}  # fmt: skip
TOLERANCE = {"spread": 1e-5, "mean of float16": 2.0**-11}
"""Of results that are no whole numbers."""
ALLOWED = rg.BuildOptions(atomics=True)


def is_uneven(program: RProgram) -> bool:
    """Whether some stage's parts reach beyond the end of what is reduced, where a load is guarded."""
    bounds = [bound for stage in program.stages for load in stage.op.body_loads() for bound in load.guard]
    return any(name.endswith("_part") for bound in bounds for name in bound.index.axes())


@lru_cache(maxsize=64)
def uneven(name, on="v100", *, adds=False, matrix=False):
    """The expression and its best program in parts of which the last is short."""
    expression = EXPRESSIONS[name]()
    ranked = construct(canonicalize(expression), device(on), ALLOWED if adds else rg.BuildOptions(), top_k=50)
    programs = [one.program for one in ranked if is_uneven(one.program)]
    return expression, next(
        program
        for program in programs
        if any(stage.store.adds for stage in program.stages) == adds
        and any("mma" in stage.compute.instruction for stage in program.stages) == matrix
    )


def inputs_of(name, program):
    """Whole numbers; of a product, few that are not 1."""
    arrays = small_integers(program)
    if name != "product":
        return arrays
    return {key: np.where(np.arange(x.size) % 97, 1, -2).astype(x.dtype) for key, x in arrays.items()}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.every(11)
def test_the_interpreter_computes_the_definition_and_counts_the_predicted_transactions(name):
    expression, program = uneven(name)
    check(program, device("v100"))
    arrays = inputs_of(name, program)
    found = interpret(program, arrays, device("v100"))
    assert_values(expression, program, found.outputs, arrays, None, TOLERANCE.get(name, 0.0))
    assert_traffic(program, found.traffic, device("v100"), {})


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.every(11)
def test_the_opencl_text_computes_the_definition(name):
    on = ("v100", "mi50")[list(EXPRESSIONS).index(name) % 2]
    expression, program = uneven(name, on)
    arrays = inputs_of(name, program)
    got = run_opencl(program, arrays, device(on))
    assert_values(expression, program, got, arrays, None, TOLERANCE.get(name, 0.0))


@pytest.mark.parametrize("name", ["matmul", "sum of rows", "int8 matmul"])
def test_parts_that_are_added_up_agree(name):
    expression, program = uneven(name, adds=True)
    arrays = inputs_of(name, program)
    found = interpret(program, arrays, device("v100"))
    assert_traffic(program, found.traffic, device("v100"), {})
    for got in (found.outputs, run_opencl(program, arrays, device("v100"))):
        assert_values(expression, program, got, arrays, None, 0.0)


@pytest.mark.parametrize("on", ["v100", "a100"])
def test_parts_of_matrix_instructions_agree(on):
    expression, program = uneven("float16 matmul", on, matrix=True)
    arrays = small_integers(program)
    found = interpret(program, arrays, device(on))
    assert_values(expression, program, found.outputs, arrays, None, 0.0)
    assert_traffic(program, found.traffic, device(on), {})


def test_places_of_the_largest_are_the_first_of_equals_in_whatever_part():
    _, program = uneven("argmax")
    x = np.zeros(program.inputs[0].shape, np.float32)
    x[0, 2052], x[1, [700, 1900]], x[2, [3, 2051]] = 1, 2, np.nan
    found = interpret(program, {"X": x}, device("v100")).outputs[program.outputs[0].name]
    assert found.tolist() == [2052, 700, 3]


def test_what_lies_beyond_the_end_is_the_identity_also_where_all_is_the_worst():
    _, program = uneven("argmax")
    x = np.full(program.inputs[0].shape, -np.inf, np.float32)
    assert not interpret(program, {"X": x}, device("v100")).outputs[program.outputs[0].name].any()


def ends_early(stage):
    """The stage of a product's parts with guards that end one element early."""
    reduction = stage.op.reductions[0]
    early = lambda load: replace(load, guard=tuple(replace(b, high=b.high - 1) for b in load.guard))
    body = replace(reduction.bodies[0], a=early(reduction.bodies[0].a), b=early(reduction.bodies[0].b))
    return replace(stage, op=replace(stage.op, reductions=(replace(reduction, bodies=(body,)),)))


def test_a_part_without_its_end_is_found():
    expression, program = uneven("matmul")
    broken = replace(program, stages=(ends_early(program.stages[0]), *program.stages[1:]))
    arrays = {key: np.ones_like(x) for key, x in small_integers(program).items()}
    got = interpret(broken, arrays, device("v100")).outputs
    with pytest.raises(AssertionError):
        assert_values(expression, program, got, arrays, None, 0.0)


def test_vectors_that_the_end_does_not_cut_stay_vectors():
    _, program = uneven("matmul and more", "a100")
    assert [copy.vector for copy in program.stages[0].copies if copy.along == "k" and copy.to_layer == "shared"] == [4]


def test_vectors_that_the_end_cuts_are_refused():
    _, program = uneven("matmul and more", "a100")
    partial = program.stages[0]
    with pytest.raises(ProgramError, match="of one guard"):
        check(replace(program, stages=(ends_early(partial), *program.stages[1:])), device("a100"))


def test_parts_may_be_as_many_as_keep_every_unit_busy():
    on = device("v100")
    counts = lambda k, device, rules=AlignmentRules(): part_counts(*long(k), 64, 1 << 20, device, rules)
    assert counts(10_000 * 64, on) == [4, 16, on.units // 4, on.units // 2, 64, on.units, 256, 1024, 4096]
    assert counts(17 * 64, on) == [4, 16]
    assert counts(4 * 64, replace(on, units=1)) == [4]
    assert counts(17 * 64, on, AlignmentRules(shapes=CodeShapes(split_reductions=False))) == []


def test_parts_that_crowd_the_units_are_not_tried():
    on = device("v100")
    assert part_counts(*long(1 << 20), 64, 1 << 10, on, AlignmentRules()) == [4, 16, 20]


def long(k):
    """A product of 64 x 64 results, and its reduce axis."""
    op = canonicalize(rg.ops.matmul(rg.tensor("A", (64, k)), rg.tensor("B", (k, 64)))).tensor_ops[0]
    return op, op.of_role("reduce")[0].name


@pytest.mark.parametrize(("odd", "even"), [((64, 16381), (64, 16384)), ((1, 1000003), (1, 1 << 20))])
def test_an_odd_length_takes_about_as_long_as_its_even_neighbour(odd, even):
    def seconds(rows, length):
        if rows == 1:
            expression = rg.ops.sum(T("X", (length,)), axis=0)
        else:
            expression = rg.ops.matmul(T("A", (rows, length)), T("B", (length, rows)))
        (best,) = construct(canonicalize(expression), device("v100"), top_k=1)
        return float(predict(best.program, device("v100")).seconds)

    assert seconds(*odd) < 1.1 * seconds(*even)


@pytest.mark.parametrize("name", ["argmax", "largest of int8", "matmul"])
def test_whole_numbers_are_known_to_be_exact_in_parts_too(name):
    _, program = uneven(name)
    found = accuracies([stage.op for stage in program.stages], program.inputs, 2)
    assert found[program.outputs[0].name].magnitude < 2**14


def test_programs_in_uneven_parts_are_read_back_as_they_were():
    _, program = uneven("spread")
    assert from_text(to_text(program)) == program


REDUCED = {
    "sum": lambda x: rg.ops.sum(x, axis=1),
    "max": lambda x: rg.ops.amax(x, axis=1),
    "min": lambda x: rg.ops.amin(x, axis=1),
    "argmin": lambda x: rg.ops.argmin(x, axis=1),
    "argmax": lambda x: rg.ops.argmax(x, axis=1),
}


def in_parts(graph, axis, parts, stage_of):
    """The program of `parts` parts, each partial result by ``stage_of`` its definition; None where it has none."""
    (op,) = graph.tensor_ops
    split = split_reduction(op, axis, parts)
    if split is None:
        return None
    *partials, combined = split
    stages = [stage_of(one, f"partial{number}") for number, one in enumerate(partials)]
    stages.append(combine_stage(combined, device("v100"), AlignmentRules()))
    return RProgram("v100", graph.inputs, graph.outputs, tuple(stages), tuple(one.output for one in partials))


def assert_readers_agree(expression, program):
    check(program, device("v100"))
    arrays = small_integers(program)
    found = interpret(program, arrays, device("v100"))
    assert_values(expression, program, found.outputs, arrays, None, 0.0)
    assert_traffic(program, found.traffic, device("v100"), {})


@given(
    st.sampled_from(sorted(REDUCED)), st.sampled_from(["float32", "float16", "bfloat16", "int8", "int32"]),
    st.integers(1, 3), st.integers(3, 700) | st.sampled_from([251, 521, 691]), st.integers(2, 40),
    st.sampled_from([1, 2, 4]), st.sampled_from([1, 4]),
)  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_reduction_in_any_number_of_parts_agrees(name, dtype, rows, length, parts, vector, chains):
    expression = REDUCED[name](T("X", (rows, length), dtype))
    graph = canonicalize(expression)
    axis = graph.tensor_ops[0].of_role("reduce")[-1].name
    plan = ReductionPlan(1, 1, 32, vector, 1, chains)
    made = lambda one, stage: reduction_stage(one, plan, device("v100"), stage)
    program = in_parts(graph, axis, parts, made)
    if program is not None and not (name == "sum" and dtype == "bfloat16" and length > 80):  # sums it can hold
        assert_readers_agree(expression, program)


@given(
    st.sampled_from(["float32", "float16", "int8"]), st.integers(1, 21), st.integers(1, 21), st.integers(3, 200),
    st.integers(2, 12), st.sampled_from([4, 8, 16]), st.sampled_from([1, 2]),
)  # fmt: skip
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_product_in_any_number_of_parts_agrees(dtype, m, n, k, parts, step, depth):
    expression = rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype))
    graph = canonicalize(expression)
    roles = next(contraction_roles(graph.tensor_ops[0]), None)
    if roles is None or roles.m is None:
        return

    def made(one, stage):
        own = replace(roles, batch=(one.axes[0].name, *roles.batch))
        plan = ContractionPlan(2, 2, 1, 4, 8, kc=min(step, one.axis(roles.k).extent), vm=2, vn=2, unroll=1,
                               staged=(0, 1), depth=depth)  # fmt: skip
        return contraction_stage(one, own, plan, device("v100"), AlignmentRules(), stage)

    program = in_parts(graph, roles.k, parts, made)
    if program is not None:
        assert_readers_agree(expression, program)
