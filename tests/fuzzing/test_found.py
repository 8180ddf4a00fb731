"""What the fuzzer has found, each with the seed that showed it."""

import pytest

from tests.fuzzing.recipes import Line, Recipe
from tests.fuzzing.trial import Trials


@pytest.fixture(scope="module")
def trials():
    trials = Trials()
    yield trials
    trials.close()


def recipe(*lines):
    """The last target is the expression; shapes and dtypes are those that the lines give."""
    made = [line.partition(" = ") for line in lines]
    return Recipe(tuple(Line(target, text, (), "") for target, _, text in made))


def test_a_quotient_of_the_innermost_axis_is_not_copied_as_a_vector(trials):
    """Seed 1070: construction asked for vectors of two elements where the program's own check allows one."""
    found = recipe(
        'x = T("x", (5, 14, 4, 6), "float32")', "s = ops.sum(x, (2,), keepdims=False)", "y = ops.reshape(s, (70, 6))"
    )
    for device in ("k80", "v100", "mi50", "cpu"):
        assert trials.failure(found, device) is None


def test_an_infinite_factor_of_a_sum_is_not_tried(trials):
    """Seed 59: infinity times a sum is not the sum of infinities of either sign; the oracle's order is one of many."""
    found = recipe(
        'x = T("x", (8, 13), "float64")', 'y = T("y", (19, 13, 2), "float64")', 'v = rg.einsum("ba,yaz->yza", x, y)'
    )
    assert trials.failure(found, "mi50") is None
