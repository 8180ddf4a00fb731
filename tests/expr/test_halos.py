"""Tensors inside zeros: padding them with zeros reads what lies around them, and no other padding does."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.halos import inner_part

WHOLE, HALO = (2, 3, 9, 11), ((0, 0), (0, 0), (1, 2), (2, 2))


def pair(dtype="float32"):
    """(the tensor inside, one of its shape that stands for itself)."""
    return inner_part(rg.tensor("x", WHOLE, dtype), HALO), rg.tensor("x", (2, 3, 6, 7), dtype)


def weight(*kernel):
    return rg.tensor("w", (4, 3, *kernel))


WITHIN = {
    "3 x 3": lambda x: rg.ops.conv2d(x, weight(3, 3), padding=1),
    "1 x 5": lambda x: rg.ops.conv2d(x, weight(1, 5), padding=(0, 2)),
    "strides": lambda x: rg.ops.conv2d(x, weight(3, 3), stride=2, padding=1),
    "after alone": lambda x: rg.ops.conv2d(x, weight(3, 3), padding=((0, 2), (0, 2))),
    "groups": lambda x: rg.ops.depthwise_conv2d(x, rg.tensor("w", (3, 1, 3, 3)), padding=1),
    "means": lambda x: rg.ops.avg_pool2d(x, 3, 1, 1),
    "columns": lambda x: rg.ops.unfold(x, 3, padding=1),
    "a border": lambda x: rg.ops.pad(x, (2, 1, 1, 0)),
    "a cut": lambda x: rg.ops.pad(x, (-1, 2, 1, -2)),
}
BEYOND = {
    "too wide": lambda x: rg.ops.conv2d(x, weight(5, 5), padding=2),
    "another border": lambda x: rg.ops.pad(x, (1, 1), value=1.0),
    "largest": lambda x: rg.ops.max_pool2d(x, 3, 1, 1),
    "mirrored": lambda x: rg.ops.pad(x, (1, 1), "reflect"),
    "something else between": lambda x: rg.ops.conv2d(rg.ops.exp(x), weight(3, 3), padding=1),
}


def guarded(expression):
    return any(load.guard for op in canonicalize(expression).tensor_ops for load in op.loads())


def value(expression, x, whole):
    given = {one.name: np.random.default_rng(1).integers(-3, 4, one.shape) for one in canonicalize(expression).inputs}
    return expression.evaluate(**{**given, "x": whole if given["x"].shape == WHOLE else x})


@pytest.mark.parametrize("name", [*WITHIN, *BEYOND])
def test_the_result_is_that_of_the_tensor_inside(name):
    inner, plain = pair()
    x = np.random.default_rng(0).integers(-3, 4, plain.shape).astype(np.float32)
    made = {**WITHIN, **BEYOND}[name]
    np.testing.assert_array_equal(value(made(inner), x, np.pad(x, HALO)), value(made(plain), x, None))


@pytest.mark.parametrize("name", WITHIN)
def test_padding_with_zeros_is_read_where_it_lies(name):
    inner, plain = pair()
    assert guarded(WITHIN[name](plain)) and not guarded(WITHIN[name](inner))


@pytest.mark.parametrize("name", ["too wide", "another border", "largest"])
def test_other_padding_is_not(name):
    assert guarded(BEYOND[name](pair()[0]))


def test_bits_have_halos_too():
    inner, plain = pair("bool")
    x = np.random.default_rng(0).integers(0, 2, plain.shape).astype(bool)
    made = lambda x: rg.ops.unfold(x, 3, padding=1)
    assert not guarded(made(inner))
    np.testing.assert_array_equal(value(made(inner), x, np.pad(x, HALO)), value(made(plain), x, None))
