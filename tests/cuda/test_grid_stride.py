"""Elementwise kernels whose blocks stride over the tensor: all readers agree, wherever the last stride ends."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.rprogram import RProgram
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import assert_traffic, assert_values, device, small_integers
from tests.cuda.host import compiler, seeded
from tests.cuda.test_programs import executed

V100 = device("v100")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def strided(expression, plan):
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    program = RProgram("v100", graph.inputs, graph.outputs, (elementwise_stage(op, plan, V100),))
    check(program, V100)
    return program


# A block's tile is 64 or 128 elements here, and 3 or 5 blocks stride: whole strides, a part of one block's tile left,
# less than half of the blocks left, and vectors.
CASES = {
    "whole strides": (3 * 64 * 4, ElementwisePlan(tn=32, un=2, strides=3)),
    "a part of a tile left": (3 * 64 * 4 + 17, ElementwisePlan(tn=32, un=2, strides=3)),
    "one block more": (5 * 128 * 2 + 128, ElementwisePlan(tn=32, vector=4, strides=5)),
    "all but one block": (5 * 128 * 3 - 128 - 4, ElementwisePlan(tn=32, vector=4, strides=5)),
}


def relu(n):
    return rg.ops.relu(rg.tensor("X", (n,)))


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_text_interpreter_and_closed_forms_agree(case):
    n, plan = CASES[case]
    program, arrays = strided(relu(n), plan), small_integers(strided(relu(n), plan))
    assert program.stages[0].blocks == plan.strides
    got = executed(program, emit(program, V100, "cuda"), arrays, reverse=n % 2 == 1)
    assert_values(relu(n), program, got, arrays)
    counted = interpret(program, arrays, V100)
    assert_values(relu(n), program, counted.outputs, arrays)
    assert counted.written["relu" if "relu" in counted.written else program.outputs[0].name].all()
    assert_traffic(program, counted.traffic, V100, {})


@needs_compiler
def test_strides_within_planes():
    """The other axes keep blocks of their own."""
    expression = rg.ops.bias_add(rg.tensor("X", (2, 3, 520)), rg.tensor("b", (3,)), axis=1)
    program = strided(expression, ElementwisePlan(tn=32, vector=4, strides=2))
    arrays = small_integers(program)
    got = executed(program, emit(program, V100, "cuda"), arrays)
    assert_values(expression, program, got, arrays)


@needs_compiler
def test_a_stride_of_the_wrong_length_is_found():
    n, plan = CASES["a part of a tile left"]
    program = strided(relu(n), plan)
    broken = seeded(emit(program, V100, "cuda"), r"X_at\[i02\*192", "X_at[i02*128")
    arrays = small_integers(program)
    with pytest.raises(AssertionError):
        assert_values(relu(n), program, executed(program, broken, arrays), arrays)


def test_the_model_sees_the_same_bytes_as_with_a_block_for_each_tile():
    stages = [
        strided(relu(1 << 24), ElementwisePlan(tn=256, un=2, vector=4, strides=strides)).stages[0]
        for strides in (0, 640)
    ]
    predicted = [predict_stage(stage, V100) for stage in stages]
    bytes_ = [dict(one.traffic_bytes)["dram"] for one in predicted]
    assert np.isclose(*bytes_, rtol=1e-3)
    assert predicted[1].seconds <= 1.01 * predicted[0].seconds


def test_construction_offers_strides_unless_they_are_switched_off():
    graph = canonicalize(relu(1 << 24))
    variants = lambda shapes: {one.variants for one in construct(graph, V100, BuildOptions(shapes=shapes), top_k=10)}
    assert ("grid stride",) in variants(CodeShapes())
    assert ("grid stride",) not in variants(CodeShapes(grid_stride=False))
