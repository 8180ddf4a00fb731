"""Products whose columns fill vectors of half the lanes better, on cores whose pipes are no wider than these."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from tests.agreement.readers import assert_values, run_opencl, small_integers
from tests.lower.devices import AVX512

_one_a_clock = tuple([replace(one, per_clock=1) for one in AVX512.instructions])
HALVES = replace(AVX512, instructions=_one_a_clock, costs=(*AVX512.costs, ("vector_pipes", 2)))
WIDE = replace(AVX512, costs=(*AVX512.costs, ("vector_pipes", 2)))


def lanes(n, device, m=49, k=32):
    expression = rg.ops.matmul(rg.tensor("A", (16, m, k)), rg.tensor("B", (16, k, n)))
    found = construct(canonicalize(expression), device, top_k=1)[0].program
    return expression, found, next(loop.extent for loop in found.stages[-1].loops if loop.kind == "lane")


@pytest.mark.parametrize(("n", "halves"), [(49, 8), (40, 8), (24, 8), (64, 16), (48, 16), (47, 16), (100, 16)])
def test_columns_that_leave_half_of_the_last_vector_take_narrower_ones(n, halves):
    assert lanes(n, HALVES)[2] == halves
    assert lanes(n, WIDE)[2] == 16  # two whole vectors a clock


def test_readers_of_narrower_vectors_agree():
    expression, program, width = lanes(37, HALVES, m=21, k=24)
    assert width == 8
    arrays = small_integers(program)
    assert_values(expression, program, interpret(program, arrays, HALVES).outputs, arrays)
    assert_values(expression, program, run_opencl(program, arrays, HALVES), arrays)
