"""Packing, padding and splitting rewrite a definition into several that compute the same."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.packing import pack_operand
from rollergen.expr.padding import pad_view
from rollergen.expr.splitting import split_reduction
from tests.definitions import evaluate_definition


@st.composite
def convolutions(draw):
    """A canonical convolution with random stride, padding, dilation, groups and odd sizes."""
    stride, dilation, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from([1, 2]))
    kh, kw = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    padding = draw(st.integers(0, 2))
    h = draw(st.integers(max(1, dilation * (kh - 1) + 1 - 2 * padding), 12))
    w = draw(st.integers(max(1, dilation * (kw - 1) + 1 - 2 * padding), 12))
    x = rg.tensor("X", (draw(st.integers(1, 2)), 2 * groups, h, w))
    filters = rg.tensor("W", (groups * draw(st.integers(1, 3)), 2, kh, kw))
    made = rg.ops.conv2d(x, filters, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return canonicalize(made).definitions[0]


def arrays_of(definition):
    random = np.random.default_rng(0)
    return {load.buffer.name: random.integers(-3, 4, load.buffer.shape) for load in definition.loads()}


def assert_same(definition, first, second):
    arrays = arrays_of(definition)
    want = evaluate_definition(definition, arrays)
    made = {**arrays, first.output.name: evaluate_definition(first, arrays)}
    assert np.array_equal(evaluate_definition(second, made).reshape(-1), want.reshape(-1))


@given(convolutions(), st.sampled_from([1, 1, 4, 16]))
@settings(max_examples=50, deadline=None)
def test_a_padded_flat_walk_computes_the_same_convolution(definition, multiple):
    for load in definition.body_loads():
        pair = pad_view(definition, load, multiple)
        if pair is not None:
            assert_same(definition, *pair)
            assert not pair[1].body_loads()[-1].guard


@given(convolutions(), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_operands_packed_along_any_axis_give_the_same_result(definition, width):
    for load in definition.body_loads():
        for axis in definition.of_role("spatial"):
            if axis.name in load.axes():
                assert_same(definition, *pack_operand(definition, load, axis.name, width))


@given(convolutions(), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_a_split_reduction_gives_the_same_result(definition, parts):
    for axis in definition.of_role("reduce"):
        pair = split_reduction(definition, axis.name, parts)
        if pair is not None:
            assert_same(definition, *pair)


def test_a_three_by_three_convolution_with_padding_has_a_padded_form():
    made = rg.ops.conv2d(rg.tensor("X", (1, 4, 9, 9)), rg.tensor("W", (5, 4, 3, 3)), padding=1)
    definition = canonicalize(made).definitions[0]
    assert any(pad_view(definition, load) for load in definition.body_loads())
