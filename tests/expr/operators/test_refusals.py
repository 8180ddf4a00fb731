"""What operators refuse: the message names operator, argument, value and what is accepted."""

import re

import numpy as np
import pytest

import rollergen as rg
from rollergen import errors

ops = rg.ops
X = rg.tensor("x", (2, 4, 9, 9))
W = rg.tensor("w", (6, 4, 3, 3))
M = rg.tensor("m", (5, 7))
V = rg.tensor("v", (7,))
Q = rg.tensor("i", (5, 7), "int8")
H = rg.tensor("h", (5, 7), "float16")

CASES = {
    "stride": (lambda: ops.conv2d(X, W, stride=0), "conv2d: stride is 0; expected an integer of at least 1, or two (vertical, horizontal)"),
    "one setting for three axes": (lambda: ops.conv3d(rg.tensor("a", (1, 1, 4, 4, 4)), rg.tensor("b", (1, 1, 1, 1, 1)), stride=(1, 2)), "conv3d: stride is (1, 2); expected an integer of at least 1, or three (depth, vertical, horizontal)"),
    "rank": (lambda: ops.conv1d(X, W), "conv1d: x has shape (2, 4, 9, 9) and w (6, 4, 3, 3); expected (N, C, L) and (F, C / groups, K)"),
    "groups": (lambda: ops.conv2d(X, W, groups=3), "conv2d: groups is 3; expected a divisor of the 4 channels and 6 filters"),
    "bias of a convolution": (lambda: ops.conv2d(X, W, V), "conv2d: bias v has shape (7,); expected (6,), one for each filter of w (6, 4, 3, 3)"),
    "swapped convolution": (lambda: ops.conv2d(rg.tensor("w", (8, 1, 3, 3)), rg.tensor("x", (2, 4, 9, 9))), "1 in 1 groups, so 1 are expected; the arguments look swapped: conv2d(x, weight)"),
    "depthwise": (lambda: ops.depthwise_conv2d(X, W), "depthwise_conv2d: w has shape (6, 4, 3, 3); expected (C * M, 1, KH, KW) with the C = 4 channels of x"),
    "transposed channels": (lambda: ops.conv_transpose2d(X, W), "conv_transpose2d: w (6, 4, 3, 3) has 6 channels; x (2, 4, 9, 9) has 4"),
    "output padding": (lambda: ops.conv_transpose2d(X, rg.tensor("w", (4, 2, 3, 3)), output_padding=1), "output_padding is 1; expected less than stride or dilation, 1 and 1"),
    "padding of a transpose": (lambda: ops.conv_transpose2d(X, rg.tensor("w", (4, 2, 3, 3)), padding=9), "padding is 9; it leaves -7 outputs"),
    "padding of a pool": (lambda: ops.max_pool2d(X, 3, padding=2), "max_pool2d: padding is 2; expected at most half of the window, (1, 1)"),
    "window": (lambda: ops.avg_pool2d(X, 10), "avg_pool2d: a window of 10 (dilation 1) reaches over 10; the padded image has 9"),
    "pooled rank": (lambda: ops.max_pool2d(M, 2), "max_pool2d: m has shape (5, 7); expected (N, C, H, W)"),
    "ceil_mode": (lambda: ops.max_pool2d(X, 2, ceil_mode=1), "max_pool2d: ceil_mode is 1; expected True or False"),
    "global pool": (lambda: ops.global_avg_pool(M), "global_avg_pool: m has shape (5, 7); expected (N, C, ...)"),
    "mean of integers": (lambda: ops.mean(Q), 'mean: i has dtype int8; expected a floating dtype, e.g. rg.ops.cast(x, "float32")'),
    "inverse of integers": (lambda: ops.pow(rg.tensor("n", (3,), "int32"), -1), "** of int32 values by -1; expected an exponent of at least 0, or floats"),
    "largest of nothing": (lambda: ops.amax(rg.tensor("e", (0, 3)), 0), "amax: dim is 0 of e (0, 3); expected axes with elements"),
    "place of nothing": (lambda: ops.argmin(rg.tensor("e", (0, 3))), "argmin: dim is None of e (0, 3); expected axes with elements"),
    "keepdims": (lambda: ops.sum(M, 0, 1), "sum: keepdim is 1; expected True or False"),
    "dtype of a position": (lambda: ops.argmax(M, 0, dtype="int8"), "argmax: dtype is 'int8'; expected int64 or int32"),
    "normalized shape": (lambda: ops.layer_norm(M, 5), "layer_norm: normalized_shape is 5; expected the last extents of m (5, 7)"),
    "stride in the bias's place": (lambda: ops.conv2d(X, W, 2), "rg.ops.conv2d: bias is 2; expected a rollergen tensor"),
    "weight in the shape's place": (lambda: ops.layer_norm(M, V), "layer_norm: normalized_shape is v; expected an integer or a tuple: the last extents of m (5, 7) (the weight comes after it)"),
    "weight of a norm": (lambda: ops.layer_norm(M, (5, 7), V), "layer_norm: weight v has shape (7,); expected (5, 7)"),
    "running mean": (lambda: ops.batch_norm(X, V, V), "batch_norm: running_mean v has shape (7,); expected (4,), one for each channel of x"),
    "gelu": (lambda: ops.gelu(M, True), 'gelu: approximate is True; expected "none" or "tanh"'),
    "silu of integers": (lambda: ops.silu(Q), "silu: i has dtype int8; expected a floating dtype"),
    "slope": (lambda: ops.leaky_relu(M, V), "leaky_relu: negative_slope is v; expected a number"),
    "condition": (lambda: ops.where(M, M, 0), "condition m has dtype float32; expected bool, e.g. rg.ops.greater(x, 0)"),
    "numbers only": (lambda: ops.add(1, 2), "rg.ops.add of 1, 2; expected at least one rollergen tensor"),
    "an array": (lambda: ops.add(M, np.ones(7)), "rg.ops.add of a numpy.ndarray of shape (7,) and dtype float64; expected a rollergen tensor; rg.tensor("),
    "alpha": (lambda: ops.add(Q, Q, alpha=0.5), "add: alpha is 0.5; expected an integer for int8 values"),
    "rounding": (lambda: ops.div(M, 2, rounding_mode="down"), "div: rounding_mode is 'down'; expected None, \"floor\" or \"trunc\""),
    "several axes": (lambda: ops.max(M, (0, 1)), "max: dim is (0, 1); expected one axis, whose values and positions come as a pair; rg.ops.amax takes several axes"),
    "an axis for all": (lambda: ops.transpose(M, (1, 0)), "rg.ops.transpose(m, (1, 0)): missing a required argument: 'dim1'; expected transpose(input, dim0, dim1, *, name=None); rg.ops.permute(input, dims) takes all axes"),
    "too many arguments": (lambda: ops.slice(M, 0, 3, 2, 1, 5), "rg.ops.slice(m, 0, 3, 2, 1, 5): too many positional arguments; expected slice(input, dim=0, start=None, end=None, step=1"),
    "NumPy's index": (lambda: ops.slice(M, np.s_[1:]), "slice: dim is slice(1, None, None); expected an axis, as in slice(input, dim, start, end, step); rg.ops.getitem(input, index) takes NumPy's indices"),
    "an old name": (lambda: ops.clip(M, low=1), "rg.ops.clip has no argument 'low' any more; expected min"),
    "inplace": (lambda: ops.relu(M, True), "relu: inplace is True; expected False: the result is a new tensor"),
    "training": (lambda: ops.batch_norm(X, rg.tensor("a", (4,)), rg.tensor("b", (4,)), training=True), "batch_norm: training is True with running_mean and running_var"),
    "bool": (lambda: ops.relu(rg.tensor("b", (3,), "bool")), "relu: b has dtype bool; expected numbers"),
    "classes": (lambda: ops.one_hot(M, 3), "one_hot: m has dtype float32; expected integers"),
    "way up": (lambda: ops.arange(3, 9, -1), "arange: step is -1; expected one above 0 from 3 to 9"),
    "way down": (lambda: ops.arange(3, 0), "arange: step is 1; expected one below 0 from 3 to 0"),
    "no way": (lambda: ops.arange(3, 3, 0), "arange: step is 0; expected one other than 0 from 3 to 3"),
    "dropout": (lambda: ops.attention(M, M, M, dropout_p=0.5), "attention: dropout_p is 0.5; expected 0"),
    "no limits": (lambda: ops.clip(M), "clip: min and max are None; expected at least one limit"),
    "scale": (lambda: ops.quantize(M, 0.0), "quantize: scale is 0.0; expected a positive number"),
    "scale's shape": (lambda: ops.quantize(M, V, axis=0), "quantize: scale v has shape (7,); expected (5,), the extent of axis 0 of m (5, 7)"),
    "axis of a scale": (lambda: ops.quantize(M, V), "quantize: v has shape (7,) and axis is None; expected its axis"),
    "zero point": (lambda: ops.quantize(M, 1.0, 128), "quantize: zero_point is 128; expected an integer from -128 to 127"),
    "quantised operands": (lambda: ops.quantized_matmul(M, Q, 1.0, 1.0), "quantized_matmul: m has dtype float32; expected int8 or uint8"),
    "elements": (lambda: ops.reshape(M, (6, 6)), "reshape: m (5, 7) has 35 elements; shape (6, 6) holds 36"),
    "two unknown extents": (lambda: ops.reshape(M, (-1, -1)), "reshape: shape is (-1, -1); expected extents of at least 0, at most one of them -1"),
    "concat": (lambda: ops.concat([M, V]), "concat: v has shape (7,) and m (5, 7); expected equal extents but along axis 0"),
    "concat of one tensor": (lambda: ops.concat(M), "expected a list of at least one tensor"),
    "an extent beside 0": (lambda: ops.reshape(rg.tensor("e", (0, 3)), (0, -1)), "reshape: shape is (0, -1); beside an extent of 0, that of -1 may be any"),
    "border of nothing": (lambda: ops.pad(rg.tensor("e", (2, 0)), (1, 1), "replicate"), "pad: widths (1, 1) of an axis of 0; mode 'replicate' fills at most 0"),
    "index": (lambda: ops.getitem(M, (0, 7)), "getitem: index 1 of m (5, 7) is 7; expected a slice or -7 to 6"),
    "too many indices": (lambda: ops.getitem(M, (0, 0, 0)), "expected at most 2 indices and one ..."),
    "widths": (lambda: ops.pad(M, (1, 2, 3)), "pad: pad is (1, 2, 3); expected (before, after) of the last axis, then of the one before it, ...: at most 4 integers for m (5, 7)"),
    "mode": (lambda: ops.pad(M, (1, 1), "edge"), 'pad: mode is \'edge\'; expected "constant", "replicate", "reflect" or "circular" (\'replicate\' is what \'edge\' was)'),
    "reflected too far": (lambda: ops.pad(M, (0, 0, 5, 0), "reflect"), "pad: widths (5, 0) of an axis of 5; mode 'reflect' fills at most 4"),
    "upsampled rank": (lambda: ops.upsample_nearest(M, scale_factor=2), "upsample_nearest: m has shape (5, 7); expected (N, C, L)"),
    "linear": (lambda: ops.linear(M, W), "linear: m has shape (5, 7) and w (6, 4, 3, 3); expected (..., k) and (n, k)"),
    "attention": (lambda: ops.attention(M, M, V), "attention: query has shape (5, 7), key (5, 7) and value (7,); expected (..., M, D)"),
    "dtypes of attention": (lambda: ops.attention(M, H, M), "attention: dtypes are float32, float16 and float32; expected equal ones"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_refusal_says_what_is_wrong_and_what_is_accepted(name):
    make, text = CASES[name]
    with pytest.raises(errors.RollergenError, match=re.escape(text)):
        make()
