"""The largest element of a row is found without looking for NaN only where NaN shows in the result all the same."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.rows import without_nan_checks

SHAPE = (6, 200)


def tensor():
    return rg.tensor("X", SHAPE)


def largest(expression):
    (op,) = canonicalize(expression).tensor_ops
    return op, op.reductions[0]


@pytest.mark.parametrize("operator", [rg.ops.softmax, rg.ops.log_softmax])
def test_softmax_needs_no_checks_because_its_sum_is_nan(operator):
    op, reduction = largest(operator(tensor(), axis=-1))
    assert without_nan_checks(op, reduction) != reduction
    total = op.reductions[1]
    assert without_nan_checks(op, total) == total


def test_a_maximum_alone_keeps_its_checks():
    op, reduction = largest(rg.ops.amax(tensor(), 1))
    assert without_nan_checks(op, reduction) == reduction


def test_a_result_that_may_hide_nan_keeps_the_checks():
    x = tensor()
    k, most = rg.reduce_axis("k", SHAPE[1]), rg.ops.amax(x, 1)
    total = rg.compute((SHAPE[0],), lambda i: rg.sum(rg.exp(x[i, k] - most[i]), axis=k))
    hidden = rg.compute(SHAPE, lambda i, j: rg.select(total[i] > 0.0, total[i], 0.0) * x[i, j], name="Y")
    for op in canonicalize(hidden).tensor_ops:
        for reduction in op.reductions:
            assert without_nan_checks(op, reduction) == reduction


@pytest.mark.parametrize("operator", [rg.ops.softmax, rg.ops.log_softmax])
def test_one_nan_makes_its_row_nan_and_no_other(operator):
    kernel = rg.build(operator(tensor(), axis=-1), "cpu", profile=False, top_k=1, cache=False)
    x = np.random.default_rng(0).normal(0, 3, SHAPE).astype(np.float32)
    x[:, 0] += 120  # a NaN behind it makes the largest be forgotten
    want = kernel.interpret(x)
    for column in (0, 1, 16, 63, 64, 130, 199):
        spoilt = x.copy()
        spoilt[column % SHAPE[0], column] = np.nan
        rows = np.arange(SHAPE[0]) != column % SHAPE[0]
        got = kernel(spoilt)
        assert np.isnan(got[~rows]).all()
        np.testing.assert_allclose(got[rows], want[rows], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(kernel.interpret(spoilt)))


def test_infinities_in_a_row_are_as_in_numpy():
    kernel = rg.build(rg.ops.softmax(tensor(), axis=-1), "cpu", profile=False, top_k=1, cache=False)
    x = np.random.default_rng(1).normal(0, 3, SHAPE).astype(np.float32)
    x[0, 5], x[1, 7], x[2, :], x[3, :199] = -np.inf, np.inf, -np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - x.max(1, keepdims=True))
        want = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(kernel(x), want, rtol=2e-6, atol=1e-30)
