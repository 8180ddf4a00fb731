"""Places of the best element are found by terms in order: the first of equals and the first NaN, as by the definition."""

from math import prod

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.positions import combiner_in_order, operations_in_a_row
from rollergen.kernel import Kernel
from rollergen.program.loops import in_order
from tests.program.hand_devices import AVX512

FLOATS, INTEGERS = ("float32", "float64", "float16"), ("int32", "int8")


def kernels(expression, count=8):
    """A kernel of each of the first candidates."""
    built = rg.build(expression, "cpu", profile=False, top_k=count, cache=False)
    return [Kernel(built.device, built.candidates, one) for one in built.candidates]


def rows(shape, axis, dtype):
    """Few different numbers, so that there are equals; rows of one number, of the least one, of NaN, with NaN."""
    rng = np.random.default_rng(shape[axis])
    x = np.moveaxis(rng.integers(-3, 4, shape).astype(dtype), axis, -1)
    x[0] = 2
    if dtype in FLOATS:
        x[1], x[2], x[3], x[4] = -np.inf, np.inf, np.nan, -np.inf
        x[4, -1] = np.nan
        for row in range(5, x.shape[0], 3):
            x[row, rng.integers(0, x.shape[1], 2)] = np.nan
        x[6, 1:], x[7, :-1] = -np.inf, np.inf
    else:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        x[1], x[2], x[3, 1:], x[4, :-1] = least, most, least, most
    return np.ascontiguousarray(np.moveaxis(x, -1, axis))


@pytest.mark.every(11)
@pytest.mark.parametrize("how", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize(("shape", "axis"), [((20, 10), 1), ((33, 64), 1), ((16, 333), 1), ((24, 1000), 1), ((70, 40), 0)])
def test_the_first_of_equals_and_the_first_nan_are_found(how, dtype, shape, axis):
    x = rows(shape, axis, dtype)
    expression = getattr(rg.ops, how)(rg.tensor("X", shape, dtype), axis, name="Y")
    want = getattr(np, how)(x, axis)
    found = kernels(expression)
    reductions = [one.program.stages[0] for one in found if len(one.program.stages) == 1]
    assert any(in_order(stage, stage.op.reductions[0]) for stage in reductions)
    for kernel in found:
        np.testing.assert_array_equal(kernel(x), want)
        np.testing.assert_array_equal(kernel.interpret(x), want)


def test_a_long_row_in_parts_is_found_as_a_whole():
    x = np.full((1, 100_003), -np.inf, np.float32)
    expression = rg.ops.argmax(rg.tensor("X", x.shape), 1, name="Y")
    for kernel in kernels(expression):
        assert kernel(x) == 0
        for at in (0, 17, 50_000, 100_002):
            spoilt = x.copy()
            spoilt[0, at] = 1
            assert kernel(spoilt) == at


def reduction_of(expression):
    (op,) = canonicalize(expression).tensor_ops
    return op.reductions[0]


def test_only_places_along_one_axis_come_in_order():
    x = rg.tensor("X", (4, 5, 6))
    assert combiner_in_order(reduction_of(rg.ops.argmax(x, 2)))
    assert not combiner_in_order(reduction_of(rg.ops.argmax(x, (0, 2))))
    assert not combiner_in_order(reduction_of(rg.ops.amax(x, 2)))
    k = rg.reduce_axis("k", 6)

    def larger(a, b):
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return rg.select(first, a[0], b[0]), rg.select(first, a[1], b[1])

    backwards = lambda i, j: rg.reduce(larger, (float("-inf"), 2**31 - 1), (x[i, j, k], 5 - k), axis=k)[1]
    assert not combiner_in_order(reduction_of(rg.compute((4, 5), backwards)))


@pytest.mark.parametrize(("dtype", "count"), [("float32", 3), ("int32", 2)])
def test_a_term_of_a_place_waits_for_a_comparison_and_a_choice(dtype, count):
    x = rg.tensor("X", (4, 500), dtype)
    assert operations_in_a_row(reduction_of(rg.ops.argmax(x, 1))) == count  # of floats NaN is looked for too
    assert all(operations_in_a_row(reduction_of(of(x, 1))) == 1 for of in (rg.ops.amax, rg.ops.sum))


@pytest.mark.parametrize("columns", [250, 1000, 4096])
def test_places_in_long_rows_are_found_by_several_accumulators(columns):
    (best,) = construct(canonicalize(rg.ops.argmax(rg.tensor("X", (128, columns)), 1)), AVX512, top_k=1)
    (stage,) = best.program.stages
    assert prod(stage.loops[p].extent for p in stage.accumulator.separate) >= 2
