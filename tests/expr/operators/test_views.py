"""Views equal NumPy's."""

import numpy as np
import pytest

import rollergen as rg
from tests.expr.operators.oracle import F, agree, given

ops = rg.ops


@pytest.mark.parametrize("shape", [(35,), 35, (7, 5), (5, -1), (1, 35, 1), (-1,)])
def test_reshape_equals_numpys(shape):
    (x,), (a,), _ = given((5, 7))
    agree(ops.reshape(x, shape), [a], a.reshape(shape))


def test_reshape_across_axes_equals_numpys():
    (x,), (a,), _ = given((4, 9, 1, 5))
    agree(ops.reshape(x, (6, 30)), [a], a.reshape(6, 30))
    agree(ops.reshape(ops.t(ops.reshape(x, (36, 5))), (12, 15)), [a], a.reshape(36, 5).T.reshape(12, 15))


def test_expand_equals_broadcasting():
    (x,), (a,), _ = given((5, 1))
    agree(ops.expand(x, (3, 5, 7)), [a], np.broadcast_to(a, (3, 5, 7)))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_equals_numpys(axis):
    shapes = [(4, 6), (1, 6), (3, 6)] if axis == 0 else [(4, 1), (4, 6), (4, 2)]
    tensors, arrays, _ = given(*shapes)
    agree(ops.concat(tensors, axis), arrays, np.concatenate(arrays, axis))


@pytest.mark.parametrize(
    "index",
    [
        np.s_[2], np.s_[1:4], np.s_[::2, 1:], np.s_[..., -1], np.s_[-3:, ..., ::-1], np.s_[4, 5, 2], np.s_[5:1:-2, :, 1],
        np.s_[...], np.s_[:100, -2:],
    ],
)  # fmt: skip
def test_slice_equals_numpys_basic_indexing(index):
    (x,), (a,), _ = given((6, 7, 8))
    agree(ops.getitem(x, index), [a], a[index])


NUMPYS = {"constant": "constant", "replicate": "edge", "reflect": "reflect", "circular": "wrap"}


@pytest.mark.parametrize("mode", NUMPYS)
@pytest.mark.parametrize("widths", [((2, 2), (2, 2)), ((1, 3), (1, 3)), ((0, 0), (2, 1)), ((1, 0), (0, 4))])
def test_pad_of_all_axes_equals_numpys(mode, widths):
    (x,), (a,), _ = given((5, 6))
    agree(ops.pad(x, [*widths[1], *widths[0]], mode), [a], np.pad(a, widths, NUMPYS[mode]))


def test_pad_with_a_value_and_without_widths():
    (x,), (a,), _ = given((5, 6))
    agree(ops.pad(x, (0, 2, 1, 0), value=2.5), [a], np.pad(a, ((1, 0), (0, 2)), constant_values=2.5))
    for mode in ("constant", "replicate"):
        agree(ops.pad(x, (0, 0), mode), [a], a)


@pytest.mark.parametrize("value", [0, False, True])
def test_conditions_are_padded_with_what_numpy_takes_for_them(value):
    x = np.array([[True, False, True]])
    padded = rg.ops.pad(rg.tensor("x", (1, 3), "bool"), (1, 1, 1, 1), value=value)
    assert padded.dtype == "bool" and np.array_equal(padded.evaluate(x), np.pad(x, 1, constant_values=value))


@pytest.mark.parametrize(("shape", "factor"), [((2, 3, 5), 3), ((2, 3, 4, 5), 2), ((2, 1, 4, 5), (1, 3)), ((1, 2, 3, 2, 3), 2)])
def test_upsample_nearest_equals_pytorchs(shape, factor):
    (x,), arrays, (t,) = given(shape)
    agree(ops.upsample_nearest(x, scale_factor=factor), arrays, F.interpolate(t, scale_factor=factor, mode="nearest"))


def test_a_scalar_is_taken_from_as_a_vector_of_one():
    x, at = rg.tensor("x", ()), rg.tensor("at", (1,), "int64")
    assert ops.gather(x, 0, at).evaluate(5.0, [0]).tolist() == [5.0]
    assert ops.index_select(x, 0, at).evaluate(5.0, [0]) == 5.0
