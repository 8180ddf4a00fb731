"""Dims: expressions whose sizes are known at the call."""

import math

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ExpressionError, ShapeError
from rollergen.expr.canonical import canonicalize

S = rg.dim("S", 1, 100)


def same(tensor, other):
    return canonicalize(tensor).tensor_ops == canonicalize(other).tensor_ops


def test_a_dim_stands_wherever_an_extent_stands():
    A, B, k = rg.tensor("A", (S, 5)), rg.tensor("B", (S, 7)), rg.reduce_axis("k", S)
    made = rg.compute((5, 7), lambda i, j: rg.sum(A[k, i] * B[k, j], axis=k), name="C")
    for size in (1, 2, 100):
        a, b, q = rg.tensor("A", (size, 5)), rg.tensor("B", (size, 7)), rg.reduce_axis("k", size)
        wanted = rg.compute((5, 7), lambda i, j, a=a, b=b, q=q: rg.sum(a[q, i] * b[q, j], axis=q), name="C")
        assert same(made.at({"S": size}), wanted)


def test_operators_methods_and_arithmetic_take_dims():
    x = rg.tensor("x", (S, 6))
    made = (2 * x.reshape(S * 2, 3) + 1).relu().sum(dim=1)
    y = rg.tensor("x", (9, 6))
    assert same(made.at({"S": 9}), (2 * y.reshape(18, 3) + 1).relu().sum(dim=1))
    turned = rg.ops.roll(rg.tensor("z", (S,)), -S // 2, 0)
    assert same(turned.at({"S": 9}), rg.ops.roll(rg.tensor("z", (9,)), -9 // 2, 0))
    first, second = rg.ops.split(x, 3, 1)
    assert same((first - second).at({"S": 4}), rg.ops.sub(*rg.ops.split(rg.tensor("x", (4, 6)), 3, 1)))


def test_a_size_in_a_body_is_the_number_of_the_size_at_hand():
    made = rg.compute((S,), lambda i: rg.select(i < S - 1, 1.0, 0.0), name="C")
    assert same(made.at({"S": 8}), rg.compute((8,), lambda i: rg.select(i < 7, 1.0, 0.0), name="C"))


@pytest.mark.parametrize(
    "number",
    [
        lambda n: 1.0 / n, lambda n: n / 3, lambda n: n**-0.5, lambda n: 2.0**n, lambda n: n + 0.5, math.sqrt, lambda n: max(4, n),
        lambda n: max(n, 4), lambda n: 2 if n == 8 else 1, lambda n: 2 if n != 8 else 1, lambda n: 2 if n - 1 < 7 else 1,
    ],
)  # fmt: skip
def test_a_size_in_a_body_takes_all_arithmetic_of_numbers(number):
    x = lambda n: rg.tensor("x", (n, 3))
    made = rg.compute((S, 3), lambda i, j: x(S)[i, j] * number(S) / S, name="C")
    for n in (7, 8):
        assert same(made.at({"S": n}), rg.compute((n, 3), lambda i, j, n=n: x(n)[i, j] * number(n) / n, name="C"))


def test_shapes_say_which_extents_are_dims():
    x = rg.tensor("x", (S, 6))
    assert x.shape == (S, 6)
    assert x.dtype == "float32"
    assert rg.ops.concat((x, x)).shape[0].at({"S": 5}) == 10


def test_what_is_wrong_at_the_largest_size_is_told_where_it_is_written():
    with pytest.raises(ShapeError, match="expected equal k"):
        rg.ops.matmul(rg.tensor("x", (S, 6)), rg.tensor("w", (7, 3)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rg.dim("S", 0, 4), "low is 0; expected an integer from 1"),
        (lambda: rg.dim("S", 5, 4), "low is 5 and high is 4; expected low <= high"),
        (lambda: rg.dim("1", 1, 4), "expected an identifier"),
        (lambda: rg.dim("S", 1, 2.5), "high is 2.5; expected an integer"),
        (lambda: rg.tensor("x", (S, rg.dim("S", 1, 9))), "expected one dim of a name"),
        (lambda: range(S), "S is no number yet"), (lambda: max(S, 3), "S is no number yet"),
        (lambda: S / 2, r"S / 2 is no extent; expected integers and \+ - \* // %"), (lambda: 2**S, r"2 \*\* S is no extent"),
        (lambda: 0.5 * S, r"0.5 \* S is no extent; expected integers"),
        (lambda: rg.tensor("x", (S % 0,)), r"\(S % 0\) divides by 0 where S is"),
        (lambda: rg.tensor("x", (S, 6 // (S - 1))).at({"S": 1}), r"\(6 // \(S - 1\)\) divides by 0 where S is 1"),
        (lambda: bool(S), "neither true nor false"),
    ],
)  # fmt: skip
def test_what_is_no_dim_is_refused(make, said):
    with pytest.raises(ExpressionError, match=said):
        make()


def test_expressions_without_dims_are_ordinary_tensors():
    assert isinstance(rg.ops.relu(rg.tensor("x", (3, 4))), rg.Tensor)
    assert np.prod(rg.tensor("x", (3, 4)).shape) == 12


def test_a_number_of_dimensions_that_depends_on_a_size_is_refused():
    x = rg.tensor("x", (rg.dim("S", 1, 14), 16))
    squeezed = rg.ops.squeeze(x)
    told = "1 dimensions where S is 1, and 2 where S is 14; expected as many at all sizes"
    with pytest.raises(ExpressionError, match=f"the expression has {told}"):
        _ = squeezed.shape
    with pytest.raises(ExpressionError, match=told):
        rg.build(squeezed + 1, "v100")
    assert rg.ops.squeeze(rg.tensor("y", (rg.dim("S", 2, 14), 1, 16))).shape[1] == 16
