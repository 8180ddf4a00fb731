"""float32 functions that CUDA text takes from the language: their values, and NaN where it belongs."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from tests.agreement.readers import device
from tests.cuda.host import compiler, seeded
from tests.cuda.test_programs import executed

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
V100 = device("v100")


def program_of(expression):
    return construct(canonicalize(expression), V100, top_k=1)[0].program


def result_of(expression, x, change=lambda source: source):
    program = program_of(expression)
    return executed(program, change(emit(program, V100, "cuda")), {"X": x})[program.outputs[0].name]


@needs_compiler
def test_rows_far_from_zero_and_wide_ones_have_their_softmax():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(c, s, 300) for c, s in ((0, 1), (1e4, 3), (-1e4, 3), (0, 80))]).astype(np.float32)
    x[0, :3] = -np.inf
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True).astype(np.float64))
    want = wide / wide.sum(1, keepdims=True)
    got = result_of(rg.ops.softmax(rg.tensor("X", x.shape), axis=-1), x)
    assert np.abs(got - want).max() < 2.0**-23 * want.max()
    assert np.all(got[0, :3] == 0)
    near = want > 1e-6
    assert np.abs(got / np.where(near, want, 1) - 1)[near].max() < 2e-6


@needs_compiler
def test_nan_in_a_row_is_nan_in_all_of_it_and_nowhere_else():
    x = np.random.default_rng(0).normal(0, 1, (9, 130)).astype(np.float32)
    for row, column in ((0, 0), (3, 129), (7, 77)):
        x[row, column] = np.nan
    for operator in (rg.ops.softmax, lambda t, axis: rg.ops.amax(t, axis=axis), lambda t, axis: rg.ops.amin(t, axis=axis)):
        got = result_of(operator(rg.tensor("X", x.shape), axis=-1), x).reshape(9, -1)
        assert np.array_equal(np.isnan(got).all(1), np.isnan(x).any(1)) and np.isnan(got).any(1).sum() == 3


@needs_compiler
def test_a_largest_element_that_loses_nan_is_found():
    x = np.full((2, 128), np.nan, np.float32)
    x[1] = 1
    lossy = lambda source: seeded(source, r"return a != a \? a : \(a > b \? a : b\);", "return a > b ? a : b;")
    expression = lambda: rg.ops.amax(rg.tensor("X", x.shape), axis=-1)
    assert np.isnan(result_of(expression(), x)[0])
    x[0, 1:] = 0
    assert np.isnan(result_of(expression(), x)[0]) and not np.isnan(result_of(expression(), x, lossy)[0])


def test_only_differences_to_the_largest_of_the_row_take_the_short_exponential():
    text = lambda expression: emit(program_of(expression), V100, "cuda").text
    x = rg.tensor("X", (64, 256))
    assert "exp2_approx(" in text(rg.ops.softmax(x, axis=-1)) and "expf(" not in text(rg.ops.softmax(x, axis=-1))
    assert "expf(" in text(rg.ops.exp(x)) and "exp2_approx" not in text(rg.ops.exp(x))
    k = rg.reduce_axis("k", 256)
    shifted = rg.compute((64, 256), lambda i, j: x[i, j] - rg.tensor("m", (64,))[i])
    assert "exp2_approx" not in text(rg.compute((64,), lambda i: rg.sum(rg.exp(shifted[i, k]), axis=k)))


def test_the_model_prices_both_exponentials_as_they_are_written():
    (stage,) = program_of(rg.ops.softmax(rg.tensor("X", (64, 256)), axis=-1)).stages
    names = [dict(phase.operations) for phase in facts_of(stage.op, stage.kept_rows).phases]
    assert names[1].get("exp_below") == 1 and not any("exp" in one for one in names)
    costs = costs_of(V100)
    assert costs.operation("exp_below") < costs.operation("exp")
    other = costs_of(device("mi50"))
    assert other.operation("exp_below") == other.operation("exp"), "its language has no short one"
