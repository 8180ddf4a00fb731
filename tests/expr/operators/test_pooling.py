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
