"""Pooling equals PyTorch's."""

import numpy as np
import pytest

import rollergen as rg
from tests.expr.operators.oracle import F, agree, given, torch

ops = rg.ops

WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)},
    {"kernel_size": (2, 3), "stride": 3, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": (4, 5), "stride": (3, 4), "padding": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("size", [(9, 11), (10, 8)])
@pytest.mark.parametrize("window", [*WINDOWS, {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": 1}])
def test_max_pool2d_equals_pytorchs(window, size):
    (x,), arrays, (t,) = given((2, 3, *size))
    agree(ops.max_pool2d(x, **window), arrays, F.max_pool2d(t, **window))


@pytest.mark.parametrize("size", [(9, 11), (10, 8)])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_avg_pool2d_equals_pytorchs(window, include, size):
    (x,), arrays, (t,) = given((2, 3, *size))
    agree(
        ops.avg_pool2d(x, **window, count_include_pad=include), arrays,
        F.avg_pool2d(t, **window, count_include_pad=include),
    )  # fmt: skip


@pytest.mark.parametrize("pooling", [lambda of, x: of.max_pool2d(x, (1, 4), 1, return_indices=True), lambda of, x: of.adaptive_max_pool2d(x, (1, 2), True)])
def test_the_place_of_several_nan_is_the_last_ones(pooling):
    values = np.array([[[[1, np.nan, 3, np.nan, 5, np.nan, 2, 2]]]])
    made = pooling(ops, rg.tensor("x", values.shape, "float64"))[1]
    agree(made, [values], pooling(F, torch.tensor(values))[1])


def test_a_window_that_is_larger_than_its_image_by_its_stride_is_refused():
    x = rg.tensor("x", (1, 1, 3, 3))
    assert ops.max_pool2d(x, 5, stride=3, ceil_mode=True).shape == (1, 1, 1, 1)
    with pytest.raises(rg.errors.ShapeError, match=r"a window of 5 .* reaches over 5; the padded image has 3"):
        ops.max_pool2d(x, 5, stride=2, ceil_mode=True)


def test_a_divisor_overrides_the_count():
    (x,), arrays, (t,) = given((1, 2, 7, 7))
    agree(ops.avg_pool2d(x, 3, divisor_override=5), arrays, F.avg_pool2d(t, 3, divisor_override=5))


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 5, 7), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("keepdims", [True, False])
def test_global_pooling_reduces_all_but_batch_and_channels(shape, keepdims):
    (x,), arrays, (t,) = given(shape)
    axes = tuple(range(2, len(shape)))
    agree(ops.global_avg_pool(x, keepdims), arrays, t.mean(axes, keepdim=keepdims))
    agree(ops.global_max_pool(x, keepdims), arrays, t.amax(axes, keepdim=keepdims))


def test_max_pooling_keeps_integers_and_lets_no_padding_win():
    x = rg.tensor("x", (1, 1, 3, 3), "int8")
    pooled = ops.max_pool2d(x, 2, padding=1)
    a = np.arange(-100, -91).reshape(1, 1, 3, 3)
    wanted = F.max_pool2d(torch.tensor(a, dtype=torch.float64), 2, padding=1)
    assert pooled.dtype == "int8"
    agree(pooled, [a], wanted)


def test_same_pooling_has_one_output_for_each_stride():
    (x,), arrays, _ = given((1, 1, 7, 8))
    pooled = ops.avg_pool2d(x, 3, stride=2, padding="same", count_include_pad=False)
    assert pooled.shape == (1, 1, 4, 4)
    padded = np.pad(arrays[0][0, 0], ((1, 1), (0, 1)), constant_values=np.nan)
    wanted = [[np.nanmean(padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3]) for j in range(4)] for i in range(4)]
    agree(pooled, arrays, np.array(wanted)[None, None])
