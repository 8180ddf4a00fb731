"""Reductions equal NumPy's and PyTorch's, over any axes."""

import numpy as np
import pytest

import rollergen as rg
from tests.expr.operators.oracle import agree, given, torch

ops = rg.ops
AXES = [None, 0, -1, (0, 2), (1,), (2, 1)]
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min, "prod": np.prod}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_plain_reductions_equal_numpys(name, axis, keepdims):
    (x,), arrays, _ = given((3, 5, 7))
    found = getattr(ops, name)(x, axis, keepdims)
    agree(found, arrays, REDUCTIONS[name](arrays[0], axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod", "var", "std", "argmax", "logsumexp"])
def test_axes_may_be_named_as_in_pytorch(name):
    (x,), arrays, _ = given((3, 5, 7))
    operator = getattr(ops, name)
    agree(operator(x, dim=1, keepdim=True), arrays, operator(x, 1, keepdims=True).evaluate(*arrays))
    agree(ops.softmax(x, dim=1), arrays, ops.softmax(x, axis=1).evaluate(*arrays))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("correction", [0, 1, 3])
def test_variance_and_deviation_equal_pytorchs(axis, correction):
    (x,), arrays, (t,) = given((3, 5, 7))
    dim = tuple(range(3)) if axis is None else axis
    for keepdims in (False, True):
        if correction < (3 if axis == 0 else 4):
            if correction == 3 and axis == 0:
                continue
            agree(ops.var(x, axis, correction=correction, keepdims=keepdims), arrays, t.var(dim, correction=correction, keepdim=keepdims))
            agree(ops.std(x, axis, correction=correction, keepdims=keepdims), arrays, t.std(dim, correction=correction, keepdim=keepdims))


@pytest.mark.parametrize("axis", AXES)
def test_logsumexp_equals_pytorchs_and_survives_large_values(axis):
    (x,), (a,), (t,) = given((3, 5, 7))
    dim = tuple(range(3)) if axis is None else axis
    agree(ops.logsumexp(x, axis), [a], torch.logsumexp(t, dim))
    agree(ops.logsumexp(x, axis, keepdims=True), [a * 1e4], torch.logsumexp(t * 1e4, dim, keepdim=True))


def test_logsumexp_of_infinities_is_infinite():
    a = np.array([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 1]])
    assert ops.logsumexp(rg.tensor("x", (3, 2)), 1).evaluate(a).tolist() == [-np.inf, np.inf, 1]


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_positions_of_extremes_equal_numpys_ties_included(axis, keepdims, dtype):
    a = np.random.default_rng(1).integers(-3, 4, (3, 5, 7))
    x = rg.tensor("x", a.shape, dtype)
    agree(ops.argmax(x, axis, keepdims), [a], np.argmax(a, axis, keepdims=keepdims))
    agree(ops.argmin(x, axis, keepdims), [a], np.argmin(a, axis, keepdims=keepdims))


def test_positions_over_several_axes_are_row_major():
    (x,), (a,), _ = given((3, 5, 7))
    agree(ops.argmax(x, (0, 2)), [a], np.argmax(a.transpose(1, 0, 2).reshape(5, 21), 1))


def test_the_first_nan_is_both_extremes_and_infinities_have_places():
    a = np.array([[1, np.nan, np.inf, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf], [np.inf, np.inf, 1, 2]])
    x = rg.tensor("x", a.shape)
    assert ops.argmax(x, 1).evaluate(a).tolist() == np.argmax(a, 1).tolist() == [1, 0, 0]
    assert ops.argmin(x, 1).evaluate(a).tolist() == np.argmin(a, 1).tolist() == [1, 0, 2]


def test_positions_have_the_dtype_asked_for():
    (x,), _, _ = given((3, 5))
    assert ops.argmax(x, 1).dtype == "int64" and ops.argmin(x, 1, dtype="int32").dtype == "int32"
