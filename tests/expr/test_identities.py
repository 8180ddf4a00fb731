"""A user's identity that changes what it is combined with is refused, with an element that shows it."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ExpressionError

K = 6
NEVER = float("-inf")


def reduced(combine, identity, body, dtype="float32", component=None):
    """`combine` over rows of x; ``body(x, i, k)``."""
    x, k = rg.tensor("x", (4, K), dtype), rg.reduce_axis("k", K)
    made = lambda i: rg.reduce(combine, identity, body(x, i, k), axis=k)
    return rg.compute((4,), made if component is None else lambda i: made(i)[component])


def element(x, i, k):
    return x[i, k]


def largest_size(a, b):
    return rg.maximum(rg.abs(a), rg.abs(b))


def joined(a, b):
    """Welford: count, mean, squared distances."""
    count = a[0] + b[0]
    delta = b[1] - a[1]
    return count, a[1] + delta * b[0] / count, a[2] + b[2] + delta * delta * a[0] * b[0] / count


REFUSED = {
    "no identity over all numbers": (largest_size, 0, element, "float32", "largest_size: combine"),
    "a bound that is none": (lambda a, b: rg.maximum(a, b), 0, element, "float32", "expected -"),
    "a limit of integers too small": (lambda a, b: rg.minimum(a, b), 50, element, "int32", r"combine\(50, 100\) gives 50"),
    "zero for a product": (lambda a, b: a * b, 0, element, "float32", r"gives -?0\.0"),
    "on one side only": (lambda a, b: a - b, 0, element, "float32", r"combine\(0, "),
    "one component of two": (lambda a, b: (a[0] + b[0], rg.maximum(a[1], b[1])), (0, 0),
                             lambda x, i, k: (x[i, k], x[i, k]), "float32", r"identity \(0, 0\) is none"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_identity_that_changes_an_operand_is_refused_with_an_example(case):
    combine, identity, body, dtype, text = REFUSED[case]
    component = 0 if isinstance(identity, tuple) else None
    with pytest.raises(ExpressionError, match=text) as caught:
        reduced(combine, identity, body, dtype, component)
    assert str(caught.value).startswith("rg.reduce: identity ")
    assert str(caught.value).endswith("as an identity leaves every operand unchanged")


def test_the_refusal_names_combiner_identity_and_element():
    with pytest.raises(ExpressionError) as caught:
        reduced(largest_size, 0, element)
    assert str(caught.value) == (
        "rg.reduce: identity 0 is none of largest_size: combine(0, -1000.0) gives 1000.0; expected -1000.0, "
        "as an identity leaves every operand unchanged"
    )


TAKEN = {
    "of sizes": (largest_size, 0, lambda x, i, k: rg.abs(x[i, k])),
    "of what another tensor makes positive": (lambda a, b: rg.maximum(a, b), 0, lambda x, i, k: rg.ops.relu(x)[i, k]),
    "of constants": (joined, (0, 0, 0), lambda x, i, k: (rg.cast(1, "float32"), x[i, k], rg.cast(0, "float32"))),
    "of an exponential's scale": (
        lambda a, b: (
            rg.maximum(a[0], b[0]),
            a[1] * rg.exp(a[0] - rg.maximum(a[0], b[0])) + b[1] * rg.exp(b[0] - rg.maximum(a[0], b[0])),
        ),
        (NEVER, 0), lambda x, i, k: (x[i, k], rg.cast(1, "float32")),
    ),
    "of a maximum and its place": (
        lambda a, b: (
            rg.select((a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), a[0], b[0]),
            rg.select((a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), a[1], b[1]),
        ),
        (NEVER, 2**31 - 1), lambda x, i, k: (x[i, k], k),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_an_identity_of_what_is_reduced_is_taken_though_it_is_none_of_other_numbers(case):
    combine, identity, body = TAKEN[case]
    several = isinstance(identity, tuple)
    x = np.random.default_rng(0).standard_normal((4, K)).astype(np.float32)
    assert np.isfinite(reduced(combine, identity, body, component=0 if several else None).evaluate(x)).all()


def test_an_identity_that_no_element_meets_the_wrong_way_may_be_one_among_finite_numbers():
    assert reduced(lambda a, b: rg.maximum(a, b), -3e38, element).shape == (4,)
