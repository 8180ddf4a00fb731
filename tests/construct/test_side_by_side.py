"""Vectors of several registers, whose loads stand before their stores: in all readers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, assert_values, run_opencl, small_integers
from tests.lower.devices import AVX512

CLOSE = 1e-6
"""Relative error of a few roundings of float32 and of a function of a few units in the last place."""

TIMES = 4
"""Vectors side by side on that CPU, of 32 registers."""


def gelu(elements, dtype="float32"):
    return rg.ops.gelu(rg.tensor("X", (elements,), dtype), name="Y")


def programs(expression, lanes, times=1):
    """Those of so many lanes; each vector cut into so many."""
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    for plan in elementwise_plans(op, AVX512, AlignmentRules(), Tally()):
        if plan.lanes == lanes:
            plan = replace(plan, lanes=lanes // times, pn=plan.pn * times)
            yield RProgram(AVX512.name, graph.inputs, graph.outputs, (elementwise_stage(op, plan, AVX512),))


def sum_of(count, elements):
    """Of so many tensors."""
    return rg.compute((elements,), lambda i: sum(rg.tensor(f"X{n}", (elements,))[i] for n in range(count)), name="Y")


@pytest.mark.parametrize(
    "make",
    [gelu, lambda n: rg.ops.sigmoid(rg.tensor("X", (3, n)), name="Y"), lambda n: sum_of(3, n)],
)
def test_readers_of_vectors_side_by_side_agree(make):
    expression = make(64 * 5)  # five such vectors: blocks of four leave a shorter one
    found = list(programs(expression, 16 * TIMES))
    assert found
    for program in found:
        arrays = small_integers(program)
        interpreted = interpret(program, arrays, AVX512)
        assert_values(expression, program, interpreted.outputs, arrays, tolerance=CLOSE)
        assert_traffic(program, interpreted.traffic, AVX512, {})
        assert_values(expression, program, run_opencl(program, arrays, AVX512), arrays, tolerance=CLOSE)


@pytest.mark.parametrize("name", ["sin", "atan", "log1p", "atan2", "fmod"])
def test_the_languages_own_functions_have_vectors_of_any_width(name):
    """OpenCL C has them of up to 16 lanes: wider ones are called in halves."""
    operands = [rg.tensor(f"X{n}", (64 * 2,)) for n in range(1 + (name in ("atan2", "fmod")))]
    expression = getattr(rg.ops, name)(*operands)
    kernel = rg.build(expression, "cpu", cache=False)
    arrays = [np.linspace(0.1 + n, 3.0, 128, dtype=np.float32) for n in range(len(operands))]
    assert np.allclose(kernel(*arrays), expression.evaluate(**{f"X{n}": a for n, a in enumerate(arrays)}), rtol=1e-5)


def test_the_model_tells_them_from_single_vectors_by_their_loops_alone():
    programs_of = lambda times: programs(gelu(1 << 16), 16 * TIMES, times)
    seconds = [min(predict(p, AVX512).seconds for p in programs_of(times)) for times in (TIMES, 1)]
    assert 0.9 * seconds[0] < seconds[1] < seconds[0]


def test_no_single_vectors_compete_with_them():
    """What addresses cost that end alike shows in no measurement of other addresses."""
    assert not list(programs(sum_of(1, 64 * 5), 16))


@pytest.mark.parametrize(
    "expression",
    [
        sum_of(8, 1 << 12),
        gelu(64 * 5 + 16),
        gelu(1 << 12, "float64"),
        rg.ops.exp(rg.ops.permute(rg.tensor("X", (64, 64)), (1, 0))),
    ],
)
def test_many_tensors_uneven_ends_wide_numbers_and_strided_reads_are_taken_one_vector_at_a_time(expression):
    graph = canonicalize(expression)
    plans = elementwise_plans(graph.tensor_ops[-1], AVX512, AlignmentRules(), Tally())
    assert max(plan.lanes for plan in plans) <= 16
