"""Packing, padding and splitting rewrite a tensor op into several that compute the same."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.packing import pack_operand, side_by_side
from rollergen.expr.padding import pad_view
from rollergen.expr.splitting import split_reduction
from tests.tensor_ops import evaluate_op


@st.composite
def convolutions(draw, most_taps=4, most_padding=2):
    """A canonical convolution with random stride, padding, dilation, groups and odd sizes."""
    stride, dilation, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from([1, 2]))
    kh, kw = draw(st.integers(1, most_taps)), draw(st.integers(1, most_taps))
    padding = draw(st.integers(0, most_padding))
    h = draw(st.integers(max(1, dilation * (kh - 1) + 1 - 2 * padding), 12))
    w = draw(st.integers(max(1, dilation * (kw - 1) + 1 - 2 * padding), 12))
    x = rg.tensor("X", (draw(st.integers(1, 2)), 2 * groups, h, w))
    filters = rg.tensor("W", (groups * draw(st.integers(1, 3)), 2, kh, kw))
    made = rg.ops.conv2d(x, filters, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return canonicalize(made).tensor_ops[0]


def arrays_of(op):
    random = np.random.default_rng(0)
    return {load.buffer.name: random.integers(-3, 4, load.buffer.shape) for load in op.loads()}


def assert_same(op, first, second):
    arrays = arrays_of(op)
    want = evaluate_op(op, arrays)
    made = {**arrays, first.output.name: evaluate_op(first, arrays)}
    assert np.array_equal(evaluate_op(second, made).reshape(-1), want.reshape(-1))


@given(convolutions(), st.sampled_from([1, 1, 4, 16]))
@settings(max_examples=50, deadline=None)
def test_a_padded_flat_walk_computes_the_same_convolution(op, multiple):
    for load in op.body_loads():
        pair = pad_view(op, load, multiple)
        if pair is not None:
            assert_same(op, *pair)
            assert not pair[1].body_loads()[-1].guard


@given(convolutions(most_taps=1, most_padding=0))
@settings(max_examples=40, deadline=None)
def test_elements_copied_side_by_side_give_the_same_result(op):
    for load in op.body_loads():
        prepared = side_by_side(op, load)
        if prepared is not None:
            (copy,) = prepared.copies
            assert_same(op, copy, prepared.op)


@pytest.mark.parametrize(("taps", "stride", "copied"), [(1, 2, True), (1, 3, True), (1, 1, False), (3, 2, False)])
def test_positions_apart_that_read_one_element_each_are_copied_side_by_side_and_are_one_axis(taps, stride, copied):
    made = rg.ops.conv2d(rg.tensor("X", (1, 4, 9, 9)), rg.tensor("W", (5, 4, taps, taps)), stride=stride)
    op = canonicalize(made).tensor_ops[0]
    found = [one for load in op.body_loads() if (one := side_by_side(op, load)) is not None]
    assert bool(found) == copied
    assert all(len(one.op.axes) == 3 for one in found)


def test_what_is_read_once_is_not_copied_side_by_side():
    x, k = rg.tensor("X", (6, 20)), rg.reduce_axis("k", 6)
    (op,) = canonicalize(rg.compute((10,), lambda i: rg.sum(x[k, 2 * i], axis=k))).tensor_ops
    assert all(side_by_side(op, load) is None for load in op.body_loads())


def test_what_lies_apart_along_the_sum_alone_is_not_copied_side_by_side():
    x, w, k = rg.tensor("X", (10, 24)), rg.tensor("W", (8, 6)), rg.reduce_axis("k", 6)
    (op,) = canonicalize(rg.compute((10, 8), lambda i, j: rg.sum(x[i, 4 * k] * w[j, k], axis=k))).tensor_ops
    assert all(side_by_side(op, load) is None for load in op.body_loads())


@st.composite
def guarded_windows(draw):
    """Windows over a part of an array; what lies outside of the part is another number than 0."""
    stride, dilation, taps, length = (draw(st.integers(1, most)) for most in (3, 2, 4, 20))
    low, high, start = draw(st.integers(-3, length)), draw(st.integers(0, length + 3)), draw(st.integers(-3, 3))
    x, k = rg.tensor("X", (3, length), "int32"), rg.reduce_axis("k", taps)

    def element(n, i):
        at = i * stride + k * dilation + start
        return rg.select((at >= max(low, 0)) & (at < min(high, length)), x[n, at], 3)

    made = rg.compute((3, draw(st.integers(1, 9))), lambda n, i: rg.sum(element(n, i), axis=k))
    return canonicalize(made).tensor_ops[0]


@given(guarded_windows(), st.sampled_from([1, 4]))
@settings(max_examples=100, deadline=None)
def test_what_a_guard_leaves_out_of_an_array_is_left_out_of_its_copies(op, multiple):
    for load in op.body_loads():
        pair = pad_view(op, load, multiple)
        if pair is not None:
            assert_same(op, *pair)
        for axis in op.of_role("spatial"):
            if axis.name in load.axes():
                assert_same(op, *pack_operand(op, load, axis.name, 4))


@given(convolutions(), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_operands_packed_along_any_axis_give_the_same_result(op, width):
    for load in op.body_loads():
        for axis in op.of_role("spatial"):
            if axis.name in load.axes():
                assert_same(op, *pack_operand(op, load, axis.name, width))


@given(convolutions(), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_a_split_reduction_gives_the_same_result(op, parts):
    for axis in op.of_role("reduce"):
        pair = split_reduction(op, axis.name, parts)
        if pair is not None:
            assert_same(op, *pair)


def test_a_three_by_three_convolution_with_padding_has_a_padded_variant():
    made = rg.ops.conv2d(rg.tensor("X", (1, 4, 9, 9)), rg.tensor("W", (5, 4, 3, 3)), padding=1)
    op = canonicalize(made).tensor_ops[0]
    assert any(pad_view(op, load) for load in op.body_loads())


@given(st.integers(2, 5000), st.integers(2, 300))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_chunks_cover_any_length_and_are_hardly_longer_than_equal_shares(length, parts):
    op = canonicalize(rg.ops.sum(rg.tensor("X", (length,)), axis=0)).tensor_ops[0]
    (k,) = op.of_role("reduce")
    share = -(-length // parts)
    split = split_reduction(op, k.name, parts)
    part, chunk = (axis.extent for axis in split[0].axes)
    assert (part - 1) * chunk < length <= part * chunk and part <= parts
    assert chunk <= share + share // 16
    assert (length % parts == 0) <= (not split[0].body_loads()[0].guard)


def test_a_split_of_equal_parts_alone_can_be_asked_for():
    op = canonicalize(rg.ops.sum(rg.tensor("X", (21,)), axis=0)).tensor_ops[0]
    (k,) = op.of_role("reduce")
    assert split_reduction(op, k.name, 4, whole=True) is None
    assert split_reduction(op, k.name, 3, whole=True) == split_reduction(op, k.name, 3)


def test_a_component_that_depends_on_itself_alone_is_reduced_alone():
    k = rg.reduce_axis("k", 11)
    x = rg.tensor("X", (11,))
    both = lambda a, b: (rg.maximum(a[0], b[0]), a[1] + b[1])
    made = rg.compute((), lambda: rg.reduce(both, (-math.inf, 0.0), (x[k], x[k]), axis=k)[1])
    op = canonicalize(made).tensor_ops[0]
    largest, total, combined = split_reduction(op, "k", 3)
    assert [one.reductions[0].combiner.name for one in (largest, total)] == ["max", "sum"]
    assert largest.body_loads()[0].fill == -math.inf
    arrays = arrays_of(op)
    for one in (largest, total):
        arrays[one.output.name] = evaluate_op(one, arrays)
    assert np.array_equal(evaluate_op(combined, arrays), evaluate_op(op, arrays))
