"""Operators take the arguments of their torch namesakes, and mean the same by them.

`CALLS` holds calls as they stand in a program that uses torch: a shape stands for a tensor of it.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.reads import given_tensors
from tests.expr.operators.oracle import F, torch

ops = rg.ops

OWN = {
    "batch_matmul", "bias_add", "cast", "depthwise_conv2d", "dequantize", "dynamic_quantize", "equal", "getitem",
    "global_avg_pool", "global_max_pool", "quantize", "quantized_conv2d", "quantized_matmul", "resize",
}  # fmt: skip
"""Without a namesake of torch's, or with a meaning of their own: `equal` compares elements, as torch's `eq` does."""

ONLY_TORCHS = {"out", "_stacklevel", "generator", "implicit"}
"""Arguments of torch's that have no counterpart: where a result is stored, and torch's own bookkeeping."""


class S(tuple):
    """The shape of a tensor of random numbers; ``dtype`` is torch's name."""

    dtype = "float64"


def s(*shape: int, dtype: str = "float64") -> S:
    made = S(shape)
    made.dtype = dtype
    return made


def i8(*shape: int) -> S:
    return s(*shape, dtype="int8")


def mask(*shape: int) -> S:
    return s(*shape, dtype="bool")


V, M, X3, X4 = s(5), s(3, 5), s(2, 3, 5), s(2, 4, 6, 7)
UNARY = ("acos", "asin", "atan", "cos", "sin", "tan", "erfc", "expm1", "log1p", "exp", "tanh", "erf", "sigmoid", "floor", "abs", "neg", "round")

FLOATING = ("softsign", "logsigmoid", "tanhshrink", "mish", "hardsigmoid", "hardswish", "selu", "elu", "celu", "softplus",
            "hardtanh", "hardshrink", "softshrink", "frac")  # fmt: skip
REAL = ("sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "reciprocal")
KEPT = ("square", "ceil", "trunc", "sign")

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (x,), {}) for name in UNARY for x in (M, s(), i8(4))),
    *((name, (s(3, 5, dtype=dtype),), {}) for name in FLOATING for dtype in ("float64", "float32", "float16", "bfloat16")),
    *((name, (x,), {}) for name in REAL for x in (M, s(4, dtype="float32"), s(4, dtype="bfloat16"), i8(4))),
    *((name, (x,), {}) for name in KEPT for x in (M, s(4, dtype="float16"), i8(4))), ("relu6", (i8(9),), {}),
    *((name, (x,), {}) for name in ("isnan", "isinf", "isfinite") for x in (M, i8(4))), ("logical_not", (i8(9),), {}), ("logical_not", (mask(9),), {}),
    *((name, (i8(5), x), {}) for name in ("logical_and", "logical_or", "logical_xor") for x in (i8(5), mask(5), V)),
    *((f"bitwise_{name}", (x, x), {}) for name in ("and", "or", "xor") for x in (i8(5), mask(5))), ("bitwise_not", (i8(5),), {}), ("bitwise_not", (mask(5),), {}),
    *((name, (i8(4, 5), 3), {}) for name in ("fmod", "remainder", "bitwise_left_shift", "bitwise_right_shift")), ("fmod", (i8(4, 5), -2), {}), ("remainder", (i8(4, 5), -2), {}),
    *((name, x, {}) for name in ("fmod", "remainder") for x in ((M, V), (M, -0.3), (s(4, dtype="float16"), s(4, dtype="float16")), (s(4, dtype="float32"), 0.25))),
    ("bitwise_and", (i8(5, 7), i8(7)), {}), ("bitwise_and", (i8(5, 7), 6), {}),
    ("fmax", (M, V), {}), ("fmax", (mask(5), mask(5)), {}), ("atan2", (M, V), {}), ("atan2", (i8(5), V), {}), ("softplus", (M, 2.0, 3.0), {}), ("softplus", (M,), {"beta": 0.5}),
    ("elu", (M, 0.5, False), {}), ("celu", (M,), {"alpha": 2.0}), ("hardtanh", (M, -0.5), {"max_val": 2}), ("hardtanh", (i8(9), -0.5, 2.5), {}), ("relu6", (M,), {"inplace": False}),
    ("hardshrink", (M, 0.7), {}), ("softshrink", (M,), {"lambd": 0.2}), ("threshold", (M, 0.1, 20), {}), ("threshold", (i8(9), 1, 2), {}), ("softsign", (i8(9),), {}), ("tanhshrink", (i8(9),), {}),
    ("prelu", (s(2, 5, 3), s(5)), {}), ("prelu", (M, s(1)), {}), ("prelu", (s(2, 5, 3, dtype="float16"), s(dtype="float16")), {}),
    ("abs", (), {"input": M}), ("sigmoid", (mask(4),), {}),
    ("round", (M,), {"decimals": 2}), ("round", (M,), {"decimals": -1}),
    *((name, (M, V), {}) for name in ("add", "sub", "mul", "div", "maximum", "minimum", "less", "greater_equal")),
    *((name, (i8(3, 5), V), {}) for name in ("add", "mul", "div", "maximum", "less", "equal")),
    *((name, (i8(5), 2), {}) for name in ("add", "sub", "mul", "div", "less")),
    *((name, (i8(5), 0.5), {}) for name in ("add", "mul", "div", "less")),
    *((name, (mask(5), mask(5)), {}) for name in ("add", "mul", "maximum", "minimum", "less", "not_equal")),
    ("add", (s(3, dtype="float32"), s()), {}), ("add", (i8(3), s(dtype="float32")), {}),
    ("add", (s(3, dtype="float16"), s(3, dtype="bfloat16")), {}), ("mul", (mask(5), 2), {}),
    ("add", (M, V), {"alpha": 0.5}), ("sub", (s(5, dtype="uint8"), s(5, dtype="uint8")), {"alpha": -3}), ("sub", (M, V), {"alpha": 2}), ("sub", (), {"input": M, "other": V, "alpha": 3}),
    ("div", (M, V), {"rounding_mode": "floor"}), ("div", (M, V), {"rounding_mode": "trunc"}),
    ("div", (i8(7), 3), {"rounding_mode": "floor"}), ("div", (i8(7), 3), {"rounding_mode": "trunc"}),
    ("add", (mask(5), mask(5)), {"alpha": False}), ("square", (mask(5),), {}), ("sign", (mask(5),), {}),
    ("pow", (s(3, 5, dtype="int32"), s(5, dtype="int32")), {}), ("pow", (i8(9), 5), {}),
    ("pow", (M, 2), {}), ("pow", (2.0, M), {}), ("pow", (), {"input": M, "exponent": 3}),
    ("clip", (M, -0.5, 0.5), {}), ("clip", (M,), {"min": 0}), ("clip", (M,), {"max": 0.1}), ("clip", (M, 0.5, -0.5), {}),
    ("clip", (M, V), {"max": V}), ("clamp", (i8(5),), {"min": 0}),
    ("where", (mask(3, 1), M, V), {}), ("where", (mask(5), V, 0.5), {}), ("where", (mask(5), i8(5), V), {}),
    ("where", (mask(5), 1.5, 0.0), {}), ("where", (mask(5), 1, V), {}),
    *((name, (X3, *more), {}) for name in ("sum", "mean") for more in ((), (1,), ((0, 2),), (-1, True))),
    *((name, (X3, 1), {}) for name in ("amax", "amin", "argmax", "argmin", "logsumexp", "prod", "var", "std")),
    *((name, (s(),), {}) for name in ("sum", "mean", "prod", "amax", "argmax")),
    *((name, (i8(3, 4), 1), {}) for name in ("sum", "prod", "amax", "logsumexp")),
    *((name, (X3, dim), {}) for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp") for dim in (0, -1)),
    *((name, (s(), 0), {}) for name in ("cumsum", "cummax")), *((name, (i8(3, 4), 1), {}) for name in ("cumsum", "cummin")),
    ("cumsum", (mask(3, 4), 1), {}), ("cumprod", (M,), {"dim": 0, "dtype": torch.float64}), ("cummax", (mask(3, 4), 1), {}),
    ("sum", (mask(3, 4),), {}), ("amax", (mask(3, 4), 1), {}), ("sum", (M,), {"axis": 0, "keepdims": True}),
    ("sum", (), {"x": M, "dim": 0}), ("sum", (s(3, 4, dtype="float32"), 1), {"dtype": torch.float64}),
    ("sum", (M, 1), {"dtype": torch.float32}), ("sum", (M, ()), {}), ("mean", (i8(3, 4),), {"dtype": torch.float32}),
    ("prod", (M, 1, True), {}), ("prod", (i8(2, 3), 1), {"dtype": torch.float32}),
    ("max", (M,), {}), ("max", (M, 1), {}), ("max", (M, 1, True), {}), ("max", (M, V), {}), ("min", (M,), {"dim": 0}),
    ("min", (i8(3, 4), 0), {}), ("argmax", (M,), {"dim": 1, "keepdim": True}), ("argmin", (M,), {}),
    ("logsumexp", (X3, (1, 2), True), {}),
    ("var", (M, 1, False), {}), ("var", (M, False), {}), ("std", (M,), {"unbiased": False}),
    ("std", (M, 1), {"correction": 0, "keepdim": True}), ("var", (M, (0, 1)), {"correction": 0.5}),
    ("std", (M, 1, True, True), {}),
    ("softmax", (M, 1), {}), ("softmax", (s(3, 5, dtype="float32"), 0), {"dtype": torch.float64}), ("softmax", (i8(4), 0), {"dtype": torch.float32}),
    ("softmax", (s(), 0), {}), ("log_softmax", (M,), {"dim": -1, "dtype": torch.float32}),
    ("layer_norm", (X3, (3, 5), M, M, 1e-3), {}), ("layer_norm", (X3, [5]), {}), ("rms_norm", (X3, (5,)), {}),
    ("rms_norm", (s(3, 5, dtype="float32"), (5,)), {"eps": 0.1}),
    ("batch_norm", (X3, s(3), s(3), s(3), s(3), False, 0.1, 30.0), {}), ("batch_norm", (X4, None, None, s(4)), {"training": True}),
    ("relu", (M,), {}), ("relu", (M, False), {}), ("leaky_relu", (M, 0.2, False), {}), ("silu", (M,), {"inplace": False}),
    ("gelu", (M,), {"approximate": "tanh"}),
    ("matmul", (M, s(5, 4)), {}), ("matmul", (V, V), {}), ("matmul", (V, s(5, 4)), {}), ("matmul", (M, V), {}),
    ("matmul", (s(2, 1, 3, 5), s(4, 5, 6)), {}), ("matmul", (X3, V), {}), ("matmul", (s(3), X3), {}), ("matmul", (M, s(4, 5, 2)), {}),
    ("mm", (M, s(5, 4)), {}), ("bmm", (X3, s(2, 5, 4)), {}), ("mm", (), {"input": M, "mat2": s(5, 2)}),
    ("linear", (X3, s(4, 5), s(4)), {}), ("linear", (X3, s(5)), {}), ("linear", (V, s(4, 5)), {"bias": s(4)}),
    ("conv1d", (s(2, 4, 9), s(6, 4, 3), s(6), 2, 1), {}), ("conv1d", (s(4, 9), s(6, 2, 3)), {"groups": 2, "padding": "same"}),
    ("conv2d", (X4, s(3, 4, 2, 3), None, (1, 2), (1,), 1, 1), {}), ("conv2d", (s(4, 6, 7), s(8, 1, 3, 3), s(8)), {"groups": 4}),
    ("conv3d", (s(2, 4, 5, 6), s(3, 2, 2, 3, 2)), {"padding": (1, 0, 1)}), ("conv2d", (X4, s(3, 4, 2, 2)), {"padding": "valid", "dilation": 2}),
    ("conv_transpose1d", (s(2, 4, 5), s(4, 3, 3), s(3), 2, 1, 1), {}), ("conv_transpose1d", (s(4, 5), s(4, 3, 2)), {}),
    ("conv_transpose2d", (s(4, 5, 6), s(4, 3, 3, 2)), {"stride": (2, 1), "groups": 2, "dilation": 2}),
    ("conv_transpose3d", (s(1, 2, 3, 4, 3), s(2, 3, 2, 3, 2), s(3)), {"stride": 2, "padding": 1}),
    ("conv_transpose3d", (s(1, 2, 3, 4, 3), s(2, 3, 2, 3, 2)), {}),
    ("max_pool2d", (X4, 3, 2, 1, 1, True), {}), ("max_pool2d", (s(4, 6, 7), (2, 3)), {"return_indices": True}),
    ("max_pool2d", (X4, 3), {"padding": 1, "dilation": 2, "return_indices": True}), ("max_pool2d", (X4, 2, ()), {}),
    ("max_pool1d", (s(2, 3, 9), 3, 2, 1), {}), ("max_pool3d", (s(1, 2, 5, 6, 7), 2), {"stride": (1, 2, 2), "return_indices": True}),
    ("avg_pool1d", (s(3, 9), 3, 2, 1, True, False), {}), ("avg_pool2d", (X4, 3, 2, 1, False, False), {}), ("avg_pool2d", (X4, 2), {"divisor_override": 3}),
    ("avg_pool3d", (s(1, 2, 5, 6, 7), (2, 3, 2)), {"ceil_mode": True, "padding": (0, 1, 1)}),
    ("max_pool1d", (s(2, 3, 4), 5, 2), {"ceil_mode": True}), ("avg_pool2d", (s(2, 2, 4), 3, 3, (0, 1), True), {"count_include_pad": False}),
    ("interpolate", (s(1, 2, 3),), {"scale_factor": 1.3, "mode": "linear"}), ("interpolate", (s(1, 2, 6, 2),), {"scale_factor": (0.5, 1.3), "mode": "bilinear"}),
    ("interpolate", (s(1, 2, 2, 6),), {"scale_factor": (1.3, 0.5), "mode": "bicubic"}),
    ("pad", (M, (1, 2)), {}), ("pad", (M, (1, 2, 3, 0), "constant", 2.5), {}), ("pad", (X3, (1, 2)), {"mode": "reflect"}),
    ("pad", (X4, [1, 2, 3, 0], "replicate"), {}), ("pad", (X4, (1, 2, 3, 0)), {"mode": "circular"}), ("pad", (M, (-1, 2)), {}),
    ("pad", (X3, (-1, 2)), {"mode": "reflect"}), ("pad", (X4, (-1, 1, -2, 1), "circular"), {}),
    ("transpose", (X3, 0, -1), {}), ("transpose", (X3,), {"dim0": 1, "dim1": 2}), ("t", (M,), {}), ("t", (V,), {}),
    ("permute", (X3, (2, 0, 1)), {}), ("permute", (X3,), {"dims": (-1, 0, 1)}),
    ("flatten", (X3,), {}), ("flatten", (X3, 1), {}), ("flatten", (X3,), {"start_dim": -2, "end_dim": -1}), ("flatten", (s(),), {}),
    ("squeeze", (s(1, 3, 1),), {}), ("squeeze", (s(1, 3, 1), -1), {}), ("squeeze", (s(1, 3, 1),), {"dim": (0, 1)}), ("squeeze", (s(), 0), {}),
    ("unsqueeze", (X3, 0), {}), ("unsqueeze", (X3,), {"dim": -1}), ("unsqueeze", (s(), -1), {}),
    ("reshape", (X3, (5, -1)), {}), ("reshape", (X3,), {"shape": (30,)}), ("reshape", (s(), (1, 1)), {}),
    ("expand", (s(3, 1), (2, -1, 4)), {}), ("expand", (s(3, 1), (3, 4)), {}),
    ("concat", ([M, M],), {}), ("cat", ((M, s(3, 2)), 1), {}), ("concat", ([i8(3), V],), {"dim": -1}), ("concat", ([M, M],), {"axis": 1}),
    ("slice", (X3, 2, 1, 4, 2), {}), ("slice", (X3,), {"dim": -1, "start": -3}), ("slice", (V, 0, 1), {}),
    ("upsample_nearest", (X3,), {"scale_factor": 2}), ("upsample_nearest", (X4, (9, 5)), {}), ("upsample_nearest", (X3, 7), {}), ("upsample_nearest", (X4,), {"scale_factor": 1.5}),
    ("interpolate", (X4,), {"size": (9, 4), "mode": "bilinear"}), ("interpolate", (X4,), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
    ("interpolate", (X3, 11, None, "linear", False), {}), ("interpolate", (X3, 7, None, "nearest-exact"), {}),
    ("interpolate", (s(1, 2, 3, 4, 5),), {"scale_factor": (2, 1.5, 0.5), "mode": "trilinear"}), ("interpolate", (X4, 1, None, "bilinear", True), {}),
    ("interpolate", (X4,), {"scale_factor": 0.6, "mode": "bilinear", "recompute_scale_factor": True}),
    *(("interpolate", (X4, size, None, "bicubic", corners), {}) for size in ((9, 4), 3) for corners in (False, True)), ("interpolate", (s(1, 2, 4, 5, dtype="float16"), 7, None, "bicubic"), {}),
    ("interpolate", (X4, (9, 4), None, "area"), {}), ("interpolate", (X3,), {"scale_factor": 0.6, "mode": "area"}),
    *(("nll_loss", (s(5, 6), s(5, dtype="class"), *more), named) for more in ((), (s(6),)) for named in ({}, {"reduction": "sum"}, {"ignore_index": 3, "reduction": "none"})),
    ("nll_loss", (s(2, 5, 3), s(2, 3, dtype="class")), {}), ("nll_loss", (s(5), s(dtype="class")), {"size_average": False}), ("nll_loss", (s(4, 6), s(4, dtype="class"), s(6)), {"reduce": False}),
    *(("cross_entropy", (s(5, 6), s(5, dtype="class"), *more), named) for more in ((), (s(6),)) for named in ({"label_smoothing": 0.1}, {"ignore_index": 2}, {"reduction": "none", "label_smoothing": 0.3, "ignore_index": 4})),
    *(("cross_entropy", (s(4, 5, 3), s(4, 5, 3), s(5)), {"reduction": how, "label_smoothing": 0.2}) for how in ("none", "mean", "sum")),
    ("cross_entropy", (s(5), s(dtype="class")), {}), ("cross_entropy", (s(4, 5, dtype="float16"), s(4, dtype="class")), {"reduction": "none"}), ("cross_entropy", (s(3, 0), s(3, 0)), {"reduction": "none", "label_smoothing": 0.1}),
    *((name, (M, s(3, 5, dtype=kind), *more), named) for name, kind in (("mse_loss", "float64"), ("l1_loss", "float64"), ("kl_div", "positive"), ("smooth_l1_loss", "float64"), ("soft_margin_loss", "float64"))
      for more, named in (((), {}), ((None, None, "sum"), {}), ((), {"reduction": "none"}), ((False,), {}))),
    *((name, (M, M), {"reduction": how, "weight": s(3, 5)}) for name in ("mse_loss", "l1_loss", "huber_loss") for how in ("none", "sum", "mean")), ("mse_loss", (M, V), {}), ("l1_loss", (s(), s()), {}),
    ("smooth_l1_loss", (M, M), {"beta": 0.3}), ("smooth_l1_loss", (M, M), {"beta": 0}), ("huber_loss", (M, M, "none", 0.4), {}), ("huber_loss", (M, M), {}), ("mse_loss", (s(3, 5, dtype="float16"), s(3, 5, dtype="float16"), None, False), {}),
    ("kl_div", (M, M), {"log_target": True}), ("kl_div", (M, s(3, 5, dtype="positive")), {"reduction": "batchmean"}),
    *((name, (s(3, 5, dtype="share"), s(3, 5, dtype="share"), *more), {"reduction": how}) for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits") for more in ((), (s(5),), (s(3, 5),)) for how in ("none", "mean")),
    ("binary_cross_entropy_with_logits", (M, s(3, 5, dtype="share")), {"pos_weight": s(5, dtype="positive")}),
    *((name, (x, *more), {}) for name in ("any", "all") for x in (mask(3, 5), M, s(3, 5, dtype="uint8"), i8(3, 5)) for more in ((), (1,), ((0, 1), True), (-1, True))),
    *((name, (x, ()), {}) for name in ("any", "all", "sum", "amax") for x in (M, s(), s(0, 3)) if name != "amax" or 0 not in x),
    *(("logsumexp", (x, ()), {}) for x in (s(), s(0, 3))),
    ("einsum", ("...ik,...kj->ij", s(2, 3, 4), s(2, 4, 5)), {}), ("einsum", ("...ij->...", [s(2, 3, 4, 5)]), {}), ("einsum", ("iji->j", i8(3, 4, 3)), {}),
    ("instance_norm", (X4, s(4), s(4, dtype="positive"), s(4)), {"use_input_stats": False}),
    ("group_norm", (X4, 2, s(4), s(4), 0.1), {}), ("group_norm", (s(2, 6, 5), 3), {}), ("group_norm", (s(2, 6, dtype="float16"), 3), {}),
    ("instance_norm", (X4,), {}), ("instance_norm", (X3, None, None, s(3), s(3)), {"eps": 0.1}),
    ("local_response_norm", (X4, 3), {}), ("local_response_norm", (X3, 2, 0.5, 0.6, 2.0), {}),
    ("adaptive_avg_pool1d", (s(2, 3, 7), 3), {}), ("adaptive_avg_pool1d", (s(3, 6), (4,)), {}), ("adaptive_avg_pool2d", (X4, (4, 3)), {}), ("adaptive_avg_pool2d", (s(1, 2, 5, 7), 3), {}),
    ("adaptive_avg_pool2d", (X4, (None, 9)), {}), ("adaptive_avg_pool3d", (s(1, 2, 5, 6, 4), 3), {}), ("adaptive_max_pool1d", (s(2, 3, 7), 3), {}),
    ("adaptive_max_pool2d", (s(4, 6, 7), (4, 3)), {}), ("adaptive_max_pool3d", (s(1, 2, 5, 6, 4), (2, 3, None)), {}),
    ("adaptive_max_pool1d", (s(2, 3, 7), 3, True), {}), ("adaptive_max_pool2d", (X4, (4, None)), {"return_indices": True}), ("adaptive_max_pool3d", (s(2, 5, 6, 4), 3, True), {}),
    ("split", (X3, 2, 2), {}), ("split", (X3, [1, 4], -1), {}), ("chunk", (X3, 2, 2), {}), ("chunk", (s(7),), {"chunks": 3}),
    ("stack", ([M, M],), {}), ("stack", ((M, M), -1), {}), ("stack", ([V, V],), {"dim": 1}),
    ("tile", (M, (2,)), {}), ("tile", (V, (2, 3)), {}), ("repeat", (M, (2, 1, 3)), {}),
    ("flip", (X3, (0, -1)), {}), ("flip", (X3,), {"dims": (1,)}), ("roll", (X3, 1, 0), {}), ("roll", (X3, (2, -1), (0, 2)), {}), ("roll", (X3, 7), {}),
    ("select_scatter", (s(3, 5), s(3), 1, -2), {}), ("select_scatter", (s(3, 5), s(5)), {"dim": 0, "index": 2}),
    ("slice_scatter", (s(6, 4), s(6, 4)), {}), ("slice_scatter", (s(6, 4), s(2, 4), 0, -3, -1), {}), ("slice_scatter", (s(3, 11), s(3, 4), 1), {"start": 1, "end": 9, "step": 2}),
    ("tril", (X3,), {}), ("tril", (X3, -1), {}), ("triu", (X3,), {"diagonal": 1}), ("triu", (mask(3, 4),), {}),
    *(("arange", call, {}) for call in ((5,), (2, 9, 3), (9, 2, -3), (0, 1, 0.1), (5, 0, -1.5), (0,), (3, 3))), ("arange", (1, 4), {"step": 2}),
    *(("linspace", call, {}) for call in ((0, 1, 5), (3, -2, 7), (0, 1, 1), (0, 1, 0), (2, 2, 4))), ("linspace", (s(), 9, 6), {"device": "cpu"}), ("linspace", (-3, 8, 7), {"dtype": torch.int32}),
    ("arange", (-2, 3.5, 0.75), {"dtype": torch.int32}), ("arange", (False, True), {"dtype": torch.int64, "requires_grad": False}), *(("eye", call, {}) for call in ((3,), (2, 4), (0,), (3, 0))),
    *(("full", call, {}) for call in (((2, 3), 7), ((2,), 1.5), ((), True), ((0, 3), 2), ([2], -1))),
    *(("meshgrid", call, {"indexing": how}) for call in ((V, s(3), s(4)), (V, s(3)), (V,), (V, s()), ([V, s(2)],)) for how in ("ij", "xy")),
    ("one_hot", (s(3, 2, dtype="class"), 5), {}), ("pixel_shuffle", (s(2, 8, 3, 5), 2), {}), ("pixel_unshuffle", (s(3, 4, 6), 2), {}),
    ("embedding", (s(3, 2, dtype="class"), s(7, 4)), {}), ("embedding", (s(dtype="class"), s(5, 4), 1), {"scale_grad_by_freq": True}),
    ("index_select", (s(3, 6), 1, s(4, dtype="class")), {}), ("index_select", (X3, -1, s(dtype="class")), {}), ("index_select", (i8(5),), {"dim": 0, "index": s(9, dtype="class")}),
    ("gather", (s(3, 6), 1, s(2, 9, dtype="class")), {}), ("gather", (X3, -1, s(2, 1, 4, dtype="class")), {"sparse_grad": True}),
    ("take_along_dim", (s(6, 2), s(4, 1, dtype="class"), 0), {}), ("take_along_dim", (s(1, 7), s(3, 2, dtype="class")), {"dim": -1}), ("take_along_dim", (X3, s(4, dtype="class")), {}),
    ("unfold_copy", (X3, 1, 2, 1), {}), ("unfold_copy", (s(), 0, 1, 3), {}), ("unfold_copy", (X3,), {"dimension": -1, "size": 4, "step": 3}),
    ("unfold", (X4, (3, 2)), {}), ("unfold", (s(4, 6, 7), 2, 2, 1, (2, 1)), {}), ("unfold", (X4,), {"kernel_size": 3, "padding": 1, "stride": 2}),
    ("scaled_dot_product_attention", (s(2, 3, 4), s(2, 5, 4), s(2, 5, 6)), {"is_causal": True}),
    ("scaled_dot_product_attention", (s(2, 3, 4), s(2, 5, 4), s(2, 5, 6), s(3, 5), 0.0, False), {"scale": 0.3}),
    ("scaled_dot_product_attention", (s(2, 3, 4), s(2, 5, 4), s(2, 5, 6), mask(2, 1, 5)), {}),
    ("scaled_dot_product_attention", (s(1, 6, 3, 4), s(1, 2, 5, 4), s(1, 2, 5, 6)), {"enable_gqa": True}),
]  # fmt: skip


def namesake(name: str) -> Any:
    """torch's function of that name; of the quiet ones those of `Tensor` and of ATen."""
    found = next((getattr(place, name) for place in (F, torch, torch.Tensor) if hasattr(place, name)), None)
    return torch.ops.aten.slice.Tensor if name == "slice" else found


def arguments_of(name: str) -> list[list[tuple[str, bool]]]:
    """(name, by keyword alone) of the arguments of every overload."""
    function = namesake(name)
    try:
        parameters = inspect.signature(function).parameters.values()
        if not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            return [[(one.name, one.kind is one.KEYWORD_ONLY) for one in parameters]]
    except (TypeError, ValueError):
        pass
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    results = ("out", "dim_max", "dim_min")  # overloads that store them
    takes = lambda one: not any(str(a.type) in ("Scalar", "number") and a.name == "other" for a in one.arguments)
    of_tensors = [
        one for one in schemas
        if str(one.arguments[0].type) in ("Tensor", "List[Tensor]") and takes(one)
        and not any(part in one.overload_name for part in results)
    ]  # fmt: skip
    return [[({"self": "input"}.get(a.name, a.name), a.kwarg_only) for a in one.arguments] for one in of_tensors]


@pytest.mark.parametrize("name", sorted(set(ops.__all__) - OWN - {"einsum"}))  # which takes any number of operands
def test_an_operator_has_the_arguments_of_its_namesake_in_their_order(name):
    ours = inspect.signature(getattr(ops, name)).parameters
    positional = [one for one in ours if ours[one].kind is not inspect.Parameter.KEYWORD_ONLY]
    for theirs in arguments_of(name):
        wanted = [one for one, by_keyword in theirs if not by_keyword and one not in ONLY_TORCHS]
        assert {one for one, _ in theirs} - ONLY_TORCHS <= set(ours), f"{name}: {theirs}"
        if name not in ("max", "min", "var", "std"):  # whose overloads differ: the calls below
            assert wanted == positional[: len(wanted)], f"{name}: {wanted} but ours takes {positional}"


def arranged(call: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The call for torch, for us, and the arrays of our tensors."""
    random, arrays = np.random.default_rng(7), {}

    def both(value: Any) -> tuple[Any, Any]:
        if isinstance(value, S):
            name = f"t{len(arrays)}"
            drawn = random.uniform(0.1, 3, value) * random.choice([-1, 1], value) if value.dtype == "positive" or "float" in value.dtype else random.integers(-5, 6, value)
            if value.dtype == "class":
                theirs = torch.tensor(random.integers(0, 5, value))
                arrays[name] = theirs.numpy()
                return theirs, rg.tensor(name, tuple(value), "int64")
            if value.dtype == "positive":
                drawn, value = abs(drawn), s(*value)
            if value.dtype == "share":
                drawn, value = random.random(value), s(*value)
            theirs = torch.tensor(drawn).to(getattr(torch, value.dtype))
            arrays[name] = theirs.double().numpy() if "float" in value.dtype else theirs.numpy()
            return theirs, rg.tensor(name, tuple(value), value.dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(one, S) for one in value):
            parts = [both(one) for one in value]
            return [p[0] for p in parts], [p[1] for p in parts]
        return value, value

    positional = [both(one) for one in call]
    by_name = {key: both(value) for key, value in named.items()}
    pick = lambda side: (tuple(p[side] for p in positional), {k: p[side] for k, p in by_name.items()})
    return pick(0), pick(1), arrays


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[f"{n}-{name}" for n, (name, _, _) in enumerate(CALLS)])
def test_a_call_as_torchs_gives_what_torch_gives(number):
    name, call, named = CALLS[number]
    (theirs, theirs_named), (ours, ours_named), arrays = arranged(call, named)
    function = torch.eq if name == "equal" else namesake(name)
    wanted = function(*theirs, **theirs_named)
    found = getattr(ops, name)(*ours, **ours_named)
    assert isinstance(wanted, tuple) == isinstance(found, tuple)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for one, other in pairs:
        read = [tensor.buffer.name for tensor in given_tensors((one,))]
        values = one.evaluate(**{key: arrays[key] for key in read})
        assert f"torch.{one.dtype}" == str(other.dtype) and values.shape == tuple(other.shape)
        tolerance = {"float64": 1e-12, "float32": 3e-6, "float16": 3e-3, "bfloat16": 3e-2}.get(one.dtype, 0)
        other = other.double().numpy() if other.is_floating_point() else other.numpy()
        np.testing.assert_allclose(values, other, rtol=tolerance, atol=tolerance)


def test_every_operator_with_a_namesake_is_called():
    called = {ops.ALIASES.get(name, name) for name, _, _ in CALLS}
    alike = {"log", "sqrt", "rsqrt", "less_equal", "greater"}  # as their neighbours
    assert set(ops.__all__) - OWN - called == alike
