"""Convolutions and their transposes equal PyTorch's."""

import pytest

import rollergen as rg
from tests.expr.operators.oracle import F, agree, given

ops = rg.ops


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": "valid", "groups": 2},
        {"stride": (3,), "padding": (4,), "groups": 4},
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_conv1d_equals_pytorchs(settings, biased):
    shapes = (2, 4, 17), (8, 4 // settings.get("groups", 1), 5), (8,)
    tensors, arrays, others = given(*shapes[: 2 + biased])
    agree(ops.conv1d(*tensors, **settings), arrays, F.conv1d(*others, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"stride": (2, 3), "padding": (2, 0), "dilation": (1, 2)},
        {"padding": "same"},
        {"groups": 2, "padding": 1},
    ],
)
def test_conv2d_with_a_bias_equals_pytorchs(settings):
    tensors, arrays, others = given((2, 4, 9, 11), (6, 4 // settings.get("groups", 1), 3, 2), (6,))
    agree(ops.conv2d(*tensors, **settings), arrays, F.conv2d(*others, **settings))


def test_settings_of_convolutions_come_in_pytorchs_order():
    tensors, arrays, others = given((2, 4, 9, 11), (6, 2, 3, 2), (6,))
    agree(ops.conv2d(*tensors, 2, 1, 2, 2), arrays, F.conv2d(*others, 2, 1, 2, 2))
    tensors, arrays, others = given((2, 4, 5, 6), (4, 3, 3, 2), (6,))
    agree(ops.conv_transpose2d(*tensors, 3, 1, 2, 2, 1), arrays, F.conv_transpose2d(*others, 3, 1, 2, 2, 1))


@pytest.mark.parametrize(
    "settings",
    [{}, {"stride": (1, 2, 3), "padding": (0, 1, 2)}, {"padding": "same"}, {"groups": 2, "dilation": (1, 2, 1)}],
)
def test_conv3d_equals_pytorchs(settings):
    tensors, arrays, others = given((2, 2, 5, 7, 6), (4, 2 // settings.get("groups", 1), 3, 2, 3))
    agree(ops.conv3d(*tensors, **settings), arrays, F.conv3d(*others, **settings))


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": (2, 1)}])
def test_depthwise_conv2d_equals_a_grouped_one(multiplier, settings):
    tensors, arrays, others = given((2, 4, 9, 8), (4 * multiplier, 1, 3, 3), (4 * multiplier,))
    agree(ops.depthwise_conv2d(*tensors, **settings), arrays, F.conv2d(*others, **settings, groups=4))


@pytest.mark.parametrize("stride", [1, 2, (3, 2), 4])
@pytest.mark.parametrize("dilation", [1, 2, (1, 3), (4, 6)])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose2d_equals_pytorchs(stride, dilation, groups):
    tensors, arrays, others = given((2, 4, 5, 6), (4, 3, 3, 2), (3 * groups,))
    settings = {"stride": stride, "dilation": dilation, "groups": groups}
    agree(ops.conv_transpose2d(*tensors, **settings), arrays, F.conv_transpose2d(*others, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (3, 2), "padding": (1, 0), "output_padding": (2, 0)},
        {"stride": 3, "dilation": 2, "padding": 3, "output_padding": 2},
    ],
)
def test_conv_transpose2d_with_paddings_equals_pytorchs(settings):
    tensors, arrays, others = given((1, 3, 5, 7), (3, 2, 4, 3))
    agree(ops.conv_transpose2d(*tensors, **settings), arrays, F.conv_transpose2d(*others, **settings))


def test_a_transposed_convolution_multiplies_no_inserted_zeros():
    tensors, _, _ = given((1, 3, 8, 8), (3, 2, 4, 4))
    expression = ops.conv_transpose2d(*tensors, stride=2, padding=1)
    from rollergen.expr.canonical import canonicalize

    product, gather = canonicalize(expression).tensor_ops
    assert sorted(axis.extent for axis in product.axes) == [3, 2 * 4 * 4, 8 * 8]  # channels; filters and taps; pixels
    assert len(gather.loads()) == 2 * 2 and not gather.reductions  # of 4 x 4 taps, 2 x 2 reach an output


@pytest.mark.parametrize(("kernel", "terms"), [(4, 4), (6, 1)])
def test_few_products_of_an_output_are_terms_and_many_are_a_loop(kernel, terms):
    tensors, arrays, others = given((1, 3, 5, 5), (3, 2, kernel, kernel))
    expression = ops.conv_transpose2d(*tensors, stride=2)
    from rollergen.expr.canonical import canonicalize

    gather = canonicalize(expression).tensor_ops[-1]
    assert len(gather.loads()) == terms and bool(gather.reductions) == (terms == 1)
    agree(expression, arrays, F.conv_transpose2d(*others, stride=2))
