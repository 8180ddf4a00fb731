"""Sums that share a factor in one pass (gated products): all readers agree, and the factor is read once."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.roles import contraction_roles
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.values import Partial, transform
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.rprogram import UNROLL, RProgram
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_traffic, assert_values, device, run_opencl, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed
from tests.lower.devices import AVX512

ops = rg.ops


@lru_cache(maxsize=64)
def T(name, shape, dtype="float32", constant=False):
    """The given tensor of that name: the same one in every product."""
    return rg.tensor(name, shape, dtype, constant=constant)


def linear(name, m, n, k, dtype="float32", constant=False):
    """A product with the common factor x."""
    return ops.linear(T("x", (m, k), dtype), T(name, (n, k), dtype, constant))


def matmul(name, m, n, k, dtype="float32"):
    return ops.matmul(T("x", (m, k), dtype), T(name, (k, n), dtype))


def image(name, m, n, k):
    x, w = T("x", (1, k, 5, 9)), T(name, (n, k, 3, 3))
    return ops.conv2d(x, w, padding=1)


def batched(name, m, n, k):
    return ops.batch_matmul(T("x", (3, m, k)), T(name, (3, k, n)))


def halves(m, n, k):
    """The gate and what it lets through are the halves of one product."""
    gate, value = ops.chunk(linear("w", m, 2 * n, k), 2, 1)
    return ops.mul(ops.relu(gate), value)


def cell(m, n, k):
    """As the state of an LSTM cell, of the quarters of one product."""
    i, f, g, o = ops.chunk(linear("w", m, 4 * n, k), 4, 1)
    state = ops.add(ops.mul(ops.relu(f), T("state", (m, n))), ops.mul(i, ops.relu(g)))
    return ops.sub(ops.minimum(state, 1000), ops.relu(o))


def narrow(m, n, k, dtype):
    return ops.mul(ops.relu(linear("g", m, n, k, dtype)), linear("u", m, n, k, dtype))


GATES = {
    "gate": lambda *s: ops.mul(ops.relu(linear("g", *s)), linear("u", *s)),
    "products": lambda *s: ops.mul(ops.relu(matmul("g", *s)), matmul("u", *s)),
    "layouts": lambda *s: ops.sub(matmul("g", *s), linear("u", *s)),
    "three": lambda *s: ops.add(ops.mul(linear("a", *s), linear("b", *s)), linear("c", *s)),
    "residual": lambda m, n, k: ops.add(
        ops.mul(ops.relu(ops.add(linear("g", m, n, k), T("bias", (n,)))), linear("u", m, n, k)),
        T("residual", (m, n)),
    ),
    "common weights": lambda m, n, k: ops.mul(
        ops.linear(T("x", (m, k)), T("w", (n, k))),
        ops.linear(T("y", (m, k)), T("w", (n, k))),
    ),
    "constant weights": lambda *s: ops.mul(linear("g", *s, constant=True), linear("u", *s, constant=True)),
    "float16": lambda *s: narrow(*s, "float16"),
    "int8": lambda *s: narrow(*s, "int8"),
    "halves": halves,
    "cell": cell,
    "batches": lambda *s: ops.mul(ops.relu(batched("g", *s)), batched("u", *s)),
    "images": lambda *s: ops.mul(ops.relu(image("g", *s)), image("u", *s)),
}  # fmt: skip
COMPONENTS = {"three": 3, "cell": 4}
SHAPES = st.tuples(st.integers(2, 70), st.integers(2, 70), st.integers(2, 130))
ROUNDED = {"float16": 2.0**-10}
"""Of products of sums that the output's dtype does not hold."""


def fused(name, shape, on) -> tuple[rg.Tensor, list[RProgram]]:
    """The expression and the programs in which its sums are components of one reduction."""
    expression = GATES[name](*shape)
    graph = canonicalize(expression)
    assert [op.components for op in graph.tensor_ops] == [COMPONENTS.get(name, 2)]
    return expression, [one.program for one in construct(graph, device(on), top_k=6)]


def arrays_of(name, program):
    """Whole numbers whose results are exact; in float16 so few that are not 0 that no sum is too large."""
    arrays = small_integers(program)
    if name not in ("float16", "int8"):
        return arrays
    return {
        key: np.sign(x) * (np.arange(x.size).reshape(x.shape) % 3 == 0).astype(x.dtype) for key, x in arrays.items()
    }


@lru_cache(maxsize=64)
def best(name, on, shape=(37, 51, 67)):
    expression, programs = fused(name, shape, on)
    return expression, programs[0]


@given(st.sampled_from(sorted(GATES)), st.sampled_from(("cpu", "v100", "mi50", "a100")), SHAPES, st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_the_interpreter_computes_the_definition_and_counts_the_closed_forms(name, on, shape, rank):
    expression, programs = fused(name, shape, on)
    program = programs[rank % len(programs)]
    check(program, device(on))
    arrays = arrays_of(name, program)
    found = interpret(program, arrays, device(on))
    assert_values(expression, program, found.outputs, arrays, None, ROUNDED.get(name, 0.0))
    assert_traffic(program, found.traffic, device(on), {})
    assert from_text(to_text(program)) == program


@pytest.mark.parametrize("name", GATES)
@pytest.mark.every(7)
def test_the_opencl_text_computes_the_definition(name):
    for on in ("cpu", "mi50"):
        expression, program = best(name, on)
        arrays = arrays_of(name, program)
        got = run_opencl(program, arrays, device(on))
        assert_values(expression, program, got, arrays, None, ROUNDED.get(name, 0.0))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", GATES)
@pytest.mark.every(7)
def test_the_cuda_text_computes_the_definition(name):
    on = ("v100", "h200")[sorted(GATES).index(name) % 2]
    expression, program = best(name, on)
    arrays = arrays_of(name, program)
    got = executed(program, emit(program, device(on), "cuda"), arrays, reverse=on == "h200")
    assert_values(expression, program, got, arrays, None, ROUNDED.get(name, 0.0))


def staged(op, on, **sizes):
    """One stage of the tiles given, as a program."""
    roles = next(contraction_roles(op))
    stage = contraction_stage(op, roles, ContractionPlan(**sizes), device(on))
    buffers = tuple({load.buffer.name: load.buffer for load in op.loads()}.values())
    return RProgram(on, buffers, (op.output,), (stage,))


ON_DEVICES = pytest.mark.parametrize(("on", "sizes"), [
    ("cpu", {"rm": 4, "rn": 1, "lanes": 16, "pm": 2, "pn": 2, "kc": 40}),
    ("v100", {"rm": 4, "vm": 4, "rn": 4, "vn": 4, "tm": 4, "tn": 8, "kc": 8, "staged": (0, 1, 2)}),
])  # fmt: skip


def both_and_one(*shape):
    """The tensor ops of two products with a common factor, and of one."""
    return [canonicalize(made).tensor_ops[0] for made in (GATES["products"](*shape), matmul("g", *shape))]


@ON_DEVICES
def test_the_common_factor_is_read_as_often_as_by_one_of_the_products(on, sizes):
    counted = []
    for op in both_and_one(50, 70, 40):
        program = staged(
            op, on, **{**sizes, "staged": tuple(n for n in sizes.get("staged", ()) if n < len(op.loads()))}
        )
        found = interpret(program, small_integers(program), device(on))
        counted.append({op.loads()[one.load].buffer.name: one.transactions for one in found.traffic if one.load >= 0})
    assert counted[0]["x"] == counted[1]["x"]
    assert counted[0] == {**counted[1], "u": counted[1]["g"]}


@ON_DEVICES
def test_the_model_counts_the_multiply_adds_accumulators_and_registers_of_every_component(on, sizes):
    target = AVX512 if on == "cpu" else device(on)  # 16 accumulators of each product are too many for AVX2
    sizes, ops = {**sizes, "staged": ()}, both_and_one(4096, 4096, 40)  # so large that either takes every unit
    both, one = (predict_stage(staged(op, on, **sizes).stages[0], target) for op in ops)
    clocks = [{limiter.name: limiter.clocks for limiter in each.limiters}["multiply-adds"] for each in (both, one)]
    assert clocks[0] == pytest.approx(2 * clocks[1], rel=0.05)  # what follows differs by a multiplication and a maximum
    accumulators = sizes["rm"] * sizes["rn"]
    assert both.registers - one.registers >= accumulators


def test_no_register_tile_has_more_accumulators_than_a_unit_has_registers():
    on = device("cpu")
    for ranked in construct(canonicalize(GATES["products"](512, 512, 512)), on, top_k=10):
        stage = ranked.program.stages[-1]
        tile = [x.extent for x in stage.loops if x.kind == UNROLL and stage.op.axis(x.axis).role == "spatial"]
        assert prod(tile) * stage.op.components < on.limits.registers_per_thread


def test_components_that_are_exchanged_are_found():
    expression, program = best("gate", "v100")
    stage = program.stages[-1]
    other = lambda node: replace(node, component=1 - node.component) if isinstance(node, Partial) else None
    exchanged = replace(stage, op=replace(stage.op, result=transform(stage.op.result, other)))
    arrays = small_integers(program)
    got = interpret(replace(program, stages=(*program.stages[:-1], exchanged)), arrays, device("v100")).outputs
    with pytest.raises(AssertionError):
        assert_values(expression, program, got, arrays)
