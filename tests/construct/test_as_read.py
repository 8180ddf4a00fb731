"""Whole rows that change places, written around the caches in the order in which they are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage, reading_axes
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, assert_values, run_opencl, small_integers
from tests.lower.devices import AVX512


def permuted(shape, order):
    return rg.ops.permute(rg.tensor("X", shape), order, name="Y")


def axes(expression):
    return reading_axes(canonicalize(expression).tensor_ops[-1])


@pytest.mark.parametrize(
    ("shape", "order"), [((7, 6, 32), (1, 0, 2)), ((3, 5, 4, 32), (0, 2, 1, 3)), ((2, 3, 5, 40), (2, 1, 0, 3))]
)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_readers_of_rows_in_the_order_of_reading_agree(shape, order, rows):
    expression = permuted(shape, order)
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    plan = ElementwisePlan(pm=rows, pn=-(-shape[-1] // 16), lanes=16, streaming=True, as_read=True)
    stage = elementwise_stage(op, plan, AVX512)
    assert stage.loops != elementwise_stage(op, replace(plan, as_read=False), AVX512).loops
    program = RProgram(AVX512.name, graph.inputs, graph.outputs, (stage,))
    arrays = small_integers(program)
    found = interpret(program, arrays, AVX512)
    assert_values(expression, program, found.outputs, arrays)
    assert_traffic(program, found.traffic, AVX512, {})
    assert_values(expression, program, run_opencl(program, arrays, AVX512), arrays)
    assert predict(program, AVX512).seconds > 0


def test_large_permutations_of_rows_are_written_as_they_are_read():
    best = construct(canonicalize(permuted((512, 128, 64), (1, 0, 2))), AVX512, top_k=1)[0].program.stages[0]
    assert best.store.streaming and best.loops[0].extent == 512


@pytest.mark.parametrize(
    "expression",
    [
        rg.ops.relu(rg.tensor("X", (8, 8, 32)), name="Y"),
        permuted((8, 8, 32), (0, 2, 1)),
        rg.ops.add(permuted((8, 4, 32), (1, 0, 2)), rg.tensor("Z", (4, 8, 32)), name="S"),
    ],
)
def test_other_maps_have_no_order_of_reading_of_their_own(expression):
    assert axes(expression) is None


def test_small_outputs_stay_in_the_caches():
    (op,) = canonicalize(permuted((7, 6, 32), (1, 0, 2))).tensor_ops
    assert not any(plan.as_read for plan in elementwise_plans(op, AVX512, AlignmentRules(), Tally()))
