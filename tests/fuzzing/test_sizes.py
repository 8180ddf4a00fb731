"""Expressions of which one extent is known at the call: they are drawn, and a wrong result at a size is a failure."""

from dataclasses import replace

import pytest

from rollergen.expr.dims import Sized
from tests.fuzzing.recipes import Line, Recipe, draw
from tests.fuzzing.sizes import SizedRecipe, sized
from tests.fuzzing.trial import Trials

RECIPE = Recipe((
    Line("x0", 'T("x0", (11, 8), "float32")', (11, 8), "float32"),
    Line("v1", "ops.abs(x0)", (11, 8), "float32"),
))  # fmt: skip


@pytest.fixture(scope="module")
def trials():
    trials = Trials()
    yield trials
    trials.close()


def at(output, size):
    return output.at({"S": size}) if isinstance(output, Sized) else output


def test_an_expression_with_a_dim_has_the_shapes_of_the_one_with_the_number():
    found = [one for one in (sized(draw(seed), seed) for seed in range(12)) if one is not None]
    assert len(found) > 5
    for one in found:
        assert one.at(one.known).text == one.recipe.text
        assert 'rg.dim("S"' in one.opened.text
        for size in one.sizes():
            shapes = [(tensor.shape, tensor.dtype) for tensor in one.at(size).outputs()]
            with_dims = [at(tensor, size) for tensor in one.opened.outputs()]
            assert [(tensor.shape, tensor.dtype) for tensor in with_dims] == shapes


@pytest.mark.parametrize("device", ["cpu", "mi50"])
def test_a_kernel_for_all_sizes_is_held_to_the_sizes_written_out(trials, device, monkeypatch):
    one = SizedRecipe(RECIPE, 11, 1, 12)
    assert trials.sized_failure(one, device) is None
    negated = replace(one, recipe=replace(RECIPE, lines=(*RECIPE.lines, Line("v2", "ops.neg(v1)", (11, 8), "float32"))))
    monkeypatch.setattr(SizedRecipe, "at", lambda self, size: written(negated, size))
    failure = trials.sized_failure(one, device)
    assert failure is not None and failure.kind.startswith("at a size")


written = SizedRecipe.at
