"""Every operator on small odd shapes; the values that inputs need are part of the case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.operators.distances import LOSSES
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.expr.primitives import FUNCTIONS

T, ops = rg.tensor, rg.ops


@dataclass(frozen=True)
class Case:
    """``make()`` is the expression; inputs are whole numbers from -3 to 3, or ``values``: one of them, "any" for
    normal ones, "positive" for those from 0.5 to 4.  ``tolerance`` is relative to max(1, |wanted|); 0 for sums
    of whole numbers."""

    make: Callable[[], Any]
    tolerance: float = 0.0
    values: str = "whole"

    def arrays(self, inputs: Any, seed: int = 0) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        return {b.name: _array(random, b.shape, b.dtype, self.values) for b in inputs}


def _array(random: Any, shape: Any, dtype: str, values: str) -> np.ndarray:
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if values == "any" and "float" in dtype:
        return random.standard_normal(shape).astype(numpy_dtype(dtype))
    if values == "positive" and "float" in dtype:
        return random.uniform(0.5, 4, shape).astype(numpy_dtype(dtype))
    return random.integers(-3, 4, shape).astype(numpy_dtype(dtype))


def _vectors(count: int, **names: str) -> list[Any]:
    return [T(n, (count,), names.get(n, "float32")) for n in names]


def _batch_norm() -> Any:
    m, v, w, b = (T(n, (5,)) for n in ("mean", "var", "w", "b"))
    return ops.batch_norm(T("x", (2, 5, 3, 7)), m, v, w, b)


def _per_axis_quantize() -> Any:
    return ops.quantize(T("x", (5, 7)), T("s", (5,)), T("z", (5,), "int32"), axis=0)


def _scaled_product() -> Any:
    a, b = T("a", (13, 17), "int8"), T("b", (17, 11), "int8")
    return ops.quantized_matmul(a, b, T("sa", (13,)), T("sb", (11,)), T("bias", (11,)))


def _head(m: int, n: int, d: int, e: int, *lead: int) -> Any:
    return T("q", (*lead, m, d)), T("k", (*lead, n, d)), T("v", (*lead, n, e))


def _chosen() -> Any:
    x = T("x", (3, 5, 7))
    return ops.where(ops.greater(x, 0), ops.exp(x), -1.0)


def taken(name: str) -> str:
    """The dtype that the operator of one formula is asked for."""
    return "int32" if name in FORMULAS and FORMULAS[name].takes == "integer" else "float32"


X3, X4 = (3, 5, 7), (2, 3, 9, 11)
FUNCTION = 2e-6

CASES: dict[str, Case] = {
    "matmul": Case(lambda: ops.matmul(T("a", (13, 17)), T("b", (17, 11)))),
    "batch_matmul": Case(lambda: ops.batch_matmul(T("a", (3, 5, 7)), T("b", (3, 7, 9)))),
    "linear": Case(lambda: ops.linear(T("x", (2, 5, 7)), T("w", (9, 7)), T("b", (9,)))),
    "conv1d": Case(lambda: ops.conv1d(T("x", (2, 3, 19)), T("w", (5, 3, 3)), T("b", (5,)), stride=2, padding=1)),
    "conv1d same": Case(lambda: ops.conv1d(T("x", (1, 4, 13)), T("w", (6, 2, 4)), padding="same", groups=2)),
    "conv2d": Case(lambda: ops.conv2d(T("x", X4), T("w", (5, 3, 3, 3)), T("b", (5,)), padding=1)),
    "conv3d": Case(lambda: ops.conv3d(T("x", (1, 2, 5, 6, 7)), T("w", (3, 2, 3, 3, 3)), padding=1, stride=(1, 2, 1))),
    "depthwise_conv2d": Case(lambda: ops.depthwise_conv2d(T("x", X4), T("w", (3, 1, 3, 3)), padding=1)),
    "depthwise_conv2d multiplied": Case(lambda: ops.depthwise_conv2d(T("x", X4), T("w", (6, 1, 3, 3)), stride=2)),
    "conv_transpose2d": Case(lambda: ops.conv_transpose2d(T("x", (2, 4, 5, 7)), T("w", (4, 3, 3, 3)))),
    "conv_transpose2d stride 2": Case(
        lambda: ops.conv_transpose2d(T("x", (1, 4, 5, 7)), T("w", (4, 3, 3, 3)), stride=2, padding=1, output_padding=1)
    ),
    "conv_transpose2d grouped": Case(
        lambda: ops.conv_transpose2d(T("x", (1, 4, 5, 6)), T("w", (4, 3, 2, 3)), stride=(2, 3), groups=2, dilation=(2, 1))
    ),
    "max_pool2d": Case(lambda: ops.max_pool2d(T("x", X4), 3, stride=2, padding=1)),
    "max_pool2d ceil": Case(lambda: ops.max_pool2d(T("x", (1, 3, 10, 11)), 2, stride=3, ceil_mode=True)),
    "avg_pool2d": Case(lambda: ops.avg_pool2d(T("x", X4), 3, stride=2, padding=1), FUNCTION),
    "avg_pool2d uncounted": Case(
        lambda: ops.avg_pool2d(T("x", X4), (3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False), FUNCTION
    ),
    "global_avg_pool": Case(lambda: ops.global_avg_pool(T("x", X4)), FUNCTION),
    "global_max_pool": Case(lambda: ops.global_max_pool(T("x", X4), keepdims=False)),
    "sum": Case(lambda: ops.sum(T("x", X3), (0, 2))),
    "sum of all": Case(lambda: ops.sum(T("x", X3))),
    "prod": Case(lambda: ops.prod(T("x", (5, 7)), 1)),
    "amax": Case(lambda: ops.amax(T("x", X3), 1)),
    "amin": Case(lambda: ops.amin(T("x", X3), -1, keepdims=True)),
    "amax of int8": Case(lambda: ops.amax(T("x", X3, "int8"), -1)),
    "mean": Case(lambda: ops.mean(T("x", X3), (1, 2)), FUNCTION),
    "var": Case(lambda: ops.var(T("x", (5, 37)), 1), FUNCTION, "any"),
    "var of all": Case(lambda: ops.var(T("x", X3)), FUNCTION, "any"),
    "var over the first": Case(lambda: ops.var(T("x", (19, 7)), 0, correction=0), FUNCTION, "any"),
    "std": Case(lambda: ops.std(T("x", X3), (1, 2), keepdims=True), FUNCTION, "any"),
    "argmax": Case(lambda: ops.argmax(T("x", (5, 37)), 1)),
    "argmax of all": Case(lambda: ops.argmax(T("x", (5, 37)))),
    "argmax over the first": Case(lambda: ops.argmax(T("x", (13, 37)), 0, dtype="int32")),
    "argmin of int32": Case(lambda: ops.argmin(T("x", X3, "int32"), (0, 2), keepdims=True)),
    "logsumexp": Case(lambda: ops.logsumexp(T("x", (5, 37)), 1), FUNCTION, "any"),
    "logsumexp of all": Case(lambda: ops.logsumexp(T("x", X3)), FUNCTION, "any"),
    "cumsum": Case(lambda: ops.cumsum(T("x", (5, 37)), 1)),
    "cumsum over the first": Case(lambda: ops.cumsum(T("x", (19, 37)), 0, reverse=True)),
    "cumsum of int8": Case(lambda: ops.cumsum(T("x", (3, 7, 5), "int8"), 1, exclusive=True)),
    "cumprod": Case(lambda: ops.cumprod(T("x", (5, 19)), 1), FUNCTION, "positive"),
    "cummax": Case(lambda: ops.cummax(T("x", (5, 37)), 1).indices),
    "cummin": Case(lambda: ops.cummin(T("x", (9, 37)), 0).values),
    "logcumsumexp": Case(lambda: ops.logcumsumexp(T("x", (5, 37)), 1), FUNCTION, "any"),
    "softmax": Case(lambda: ops.softmax(T("x", (5, 37))), FUNCTION, "any"),
    "softmax over the first": Case(lambda: ops.softmax(T("x", (13, 7)), 0), FUNCTION, "any"),
    "log_softmax": Case(lambda: ops.log_softmax(T("x", (5, 37))), FUNCTION, "any"),
    "layer_norm": Case(
        lambda: ops.layer_norm(T("x", (2, 5, 37)), 37, T("w", (37,)), T("b", (37,))), 4 * FUNCTION, "any"
    ),
    "layer_norm of two axes": Case(lambda: ops.layer_norm(T("x", (3, 5, 7)), (5, 7)), 4 * FUNCTION, "any"),
    "rms_norm": Case(lambda: ops.rms_norm(T("x", (5, 37)), 37, T("w", (37,))), FUNCTION, "any"),
    "batch_norm": Case(_batch_norm, FUNCTION, "positive"),
    "relu": Case(lambda: ops.relu(T("x", X3))),
    "leaky_relu": Case(lambda: ops.leaky_relu(T("x", X3), 0.25)),
    "gelu": Case(lambda: ops.gelu(T("x", (5, 37))), FUNCTION, "any"),
    "gelu tanh": Case(lambda: ops.gelu(T("x", (5, 37)), "tanh"), FUNCTION, "any"),
    "silu": Case(lambda: ops.silu(T("x", X3)), FUNCTION, "any"),
    "sigmoid": Case(lambda: ops.sigmoid(T("x", X3)), FUNCTION, "any"),
    "tanh": Case(lambda: ops.tanh(T("x", X3)), FUNCTION, "any"),
    "exp": Case(lambda: ops.exp(T("x", X3)), FUNCTION, "any"),
    "log": Case(lambda: ops.log(T("x", X3)), FUNCTION, "positive"),
    "sqrt": Case(lambda: ops.sqrt(T("x", X3)), FUNCTION, "positive"),
    "rsqrt": Case(lambda: ops.rsqrt(T("x", X3)), FUNCTION, "positive"),
    "erf": Case(lambda: ops.erf(T("x", X3)), FUNCTION, "any"),
    "abs": Case(lambda: ops.abs(T("x", X3))),
    "neg": Case(lambda: ops.neg(T("x", X3))),
    "floor": Case(lambda: ops.floor(T("x", X3)), 0.0, "any"),
    "round": Case(lambda: ops.round(T("x", X3)), 0.0, "any"),
    "add": Case(lambda: ops.add(T("x", X3), T("y", (5, 1)))),
    "add of int8": Case(lambda: ops.add(T("x", (3, 201), "int8"), T("y", (3, 201), "int8"))),
    "sub": Case(lambda: ops.sub(1, T("y", (5, 7)))),
    "mul": Case(lambda: ops.mul(T("x", (3, 1, 7)), T("y", (5, 1)))),
    "div": Case(lambda: ops.div(T("x", X3), T("y", (7,))), FUNCTION, "positive"),
    "pow": Case(lambda: ops.pow(T("x", X3), T("y", (7,))), 4 * FUNCTION, "positive"),
    "maximum": Case(lambda: ops.maximum(T("x", X3), T("y", (5, 1)))),
    "minimum": Case(lambda: ops.minimum(T("x", X3), 1)),
    "where": Case(lambda: ops.where(T("c", (5, 7), "bool"), T("x", X3), T("y", (7,)))),
    "where greater": Case(_chosen, FUNCTION, "any"),
    "greater": Case(lambda: ops.greater(T("x", X3), T("y", (7,)))),
    "equal of integers": Case(lambda: ops.equal(T("x", X3, "int32"), 1)),
    "not_equal": Case(lambda: ops.not_equal(T("x", X3), T("y", (7,)))),
    "less": Case(lambda: ops.less(T("x", X3), T("y", (7,)))),
    "less_equal": Case(lambda: ops.less_equal(T("x", X3, "int8"), T("y", (7,), "int8"))),
    "greater_equal": Case(lambda: ops.greater_equal(T("x", X3, "float64"), 0)),
    "clip": Case(lambda: ops.clip(T("x", X3), -1, T("high", (7,)))),
    "cast": Case(lambda: ops.cast(T("x", X3), "int32"), 0.0, "any"),
    "cast to float16": Case(lambda: ops.cast(T("x", X3), "float16")),
    "cast of bool": Case(lambda: ops.cast(T("x", X3, "bool"), "float32")),
    "bias_add": Case(lambda: ops.bias_add(T("x", X4), T("b", (3,)))),
    "quantize": Case(lambda: ops.quantize(T("x", X3), 0.25, 3), 0.0, "any"),
    "quantize per axis": Case(_per_axis_quantize, 0.0, "positive"),
    "dequantize": Case(lambda: ops.dequantize(T("q", X3, "int8"), 0.5, -3)),
    "dequantize per axis": Case(
        lambda: ops.dequantize(T("q", X3, "int8"), T("s", (7,)), T("z", (7,), "int32"), axis=-1)
    ),
    "quantize to uint8 by blocks": Case(
        lambda: ops.quantize(T("x", (5, 9)), T("s", (5, 3)), T("z", (5, 3), "uint8"), 1, dtype="uint8", block_size=4),
        0.0, "positive",
    ),
    "dequantize by blocks": Case(
        lambda: ops.dequantize(T("q", (9, 5), "uint16"), T("s", (3, 5)), 7, 0, block_size=4)
    ),
    "dynamic_quantize": Case(lambda: ops.dynamic_quantize(T("x", X3))[0], 0.0, "any"),
    "quantized_conv2d": Case(
        lambda: ops.quantized_conv2d(
            T("x", (1, 3, 9, 8), "uint8"), T("w", (5, 3, 3, 3), "int8"), 0.5, T("s", (5,)), stride=2, padding=1,
            x_zero_point=3, w_zero_point=-1,
        )
    ),
    "quantized_matmul, uint8 and zero points": Case(
        lambda: ops.quantized_matmul(
            T("a", (9, 12), "uint8"), T("b", (12, 7), "int8"), 0.5, 0.25, a_zero_point=3, b_zero_point=-2
        )
    ),
    "quantized_matmul": Case(_scaled_product),
    "quantized_matmul, numbers": Case(
        lambda: ops.quantized_matmul(T("a", (9, 12), "int8"), T("b", (7, 12), "int8"), 0.5, 0.25, transpose_b=True)
    ),
    "concat": Case(lambda: ops.concat([T("x", (3, 5)), T("y", (3, 1)), T("z", (3, 7))], 1)),
    "concat, outer": Case(lambda: ops.concat([T("x", (3, 5)), T("y", (4, 5))])),
    "getitem": Case(lambda: ops.getitem(T("x", (9, 5, 11)), np.s_[1:8:2, -1, ::-3])),
    "pad": Case(lambda: ops.pad(T("x", (3, 5)), (3, 0, 1, 2), value=2)),
    "pad reflect": Case(lambda: ops.pad(T("x", (2, 5, 7)), (3, 3, 2, 1), "reflect")),
    "pad edge": Case(lambda: ops.pad(T("x", (5, 7)), (2,) * 4, "replicate")),
    "pad wrap": Case(lambda: ops.pad(T("x", (5, 7)), (2, 3, 2, 3), "circular")),
    "t": Case(lambda: ops.t(T("x", (70, 130), "int8"))),
    "permute": Case(lambda: ops.permute(T("x", X3), (2, 0, 1))),
    "transpose": Case(lambda: ops.transpose(T("x", X3), 0, 2)),
    "slice": Case(lambda: ops.slice(T("x", (5, 9)), 1, 1, None, 3)),
    "mm": Case(lambda: ops.mm(T("a", (13, 17)), T("b", (17, 11)))),
    "bmm": Case(lambda: ops.bmm(T("a", (3, 5, 7)), T("b", (3, 7, 9)))),
    "matmul of a vector": Case(lambda: ops.matmul(T("a", (17,)), T("b", (3, 17, 11)))),
    "matmul broadcast": Case(lambda: ops.matmul(T("a", (2, 1, 5, 7)), T("b", (3, 7, 4)))),
    "max": Case(lambda: ops.max(T("x", X3))),
    "min": Case(lambda: ops.min(T("x", X3))),
    "sum of int8": Case(lambda: ops.sum(T("x", X3, "int8"), 1)),
    "add of two dtypes": Case(lambda: ops.add(T("x", X3, "int8"), T("y", (7,), "float16"))),
    "div floored": Case(lambda: ops.div(T("x", X3, "int32"), 2, rounding_mode="floor")),
    "round to decimals": Case(lambda: ops.round(T("x", X3), decimals=2), FUNCTION, "any"),
    "conv2d unbatched": Case(lambda: ops.conv2d(T("x", (3, 9, 11)), T("w", (5, 3, 3, 3)), padding=1)),
    "conv_transpose1d": Case(lambda: ops.conv_transpose1d(T("x", (2, 4, 9)), T("w", (4, 3, 3)), stride=2, padding=1)),
    "conv_transpose3d": Case(lambda: ops.conv_transpose3d(T("x", (1, 2, 3, 4, 3)), T("w", (2, 3, 2, 3, 2)), stride=2)),
    "max_pool1d": Case(lambda: ops.max_pool1d(T("x", (2, 3, 19)), 3, 2, 1)),
    "max_pool2d indices": Case(lambda: ops.max_pool2d(T("x", X4), 3, 2, 1, return_indices=True)[1]),
    "max_pool3d": Case(lambda: ops.max_pool3d(T("x", (1, 2, 5, 6, 7)), 2)),
    "avg_pool1d": Case(lambda: ops.avg_pool1d(T("x", (2, 3, 19)), 3, 2, 1), FUNCTION),
    "avg_pool3d": Case(lambda: ops.avg_pool3d(T("x", (1, 2, 5, 6, 7)), 2), FUNCTION),
    "batch_norm training": Case(lambda: ops.batch_norm(T("x", (3, 5, 7)), None, None, training=True), 4 * FUNCTION, "any"),
    "interpolate bilinear": Case(lambda: ops.interpolate(T("x", (1, 3, 5, 7)), (9, 4), mode="bilinear"), FUNCTION, "any"),
    "interpolate nearest": Case(lambda: ops.interpolate(T("x", (1, 3, 5, 7)), (9, 4))),
    "resize": Case(lambda: ops.resize(T("x", (5, 7)), (8, 3), nearest_mode="round_prefer_ceil")),
    "scaled_dot_product_attention masked": Case(
        lambda: ops.attention(*_head(9, 13, 8, 5, 2), T("mask", (9, 13), "bool")), FUNCTION, "any"
    ),
    "scaled_dot_product_attention of groups": Case(
        lambda: ops.attention(T("q", (4, 9, 8)), T("k", (2, 13, 8)), T("v", (2, 13, 5)), enable_gqa=True), FUNCTION, "any"
    ),
    "reshape": Case(lambda: ops.reshape(T("x", (6, 35)), (14, -1))),
    "flatten": Case(lambda: ops.flatten(T("x", X3), 0, 1)),
    "squeeze": Case(lambda: ops.squeeze(T("x", (5, 1, 7)))),
    "unsqueeze": Case(lambda: ops.unsqueeze(T("x", X3), -1)),
    "reshape across": Case(lambda: ops.reshape(ops.t(T("x", (6, 35))), (15, 14))),
    "expand": Case(lambda: ops.expand(T("x", (5, 1)), (3, 5, 7))),
    "upsample_nearest": Case(lambda: ops.upsample_nearest(T("x", (2, 3, 5, 7)), scale_factor=(2, 3))),
    "scaled_dot_product_attention": Case(lambda: ops.attention(*_head(9, 13, 8, 5)), FUNCTION, "any"),
    "scaled_dot_product_attention causal": Case(lambda: ops.attention(*_head(13, 13, 8, 8, 2, 3), is_causal=True), FUNCTION, "any"),
}
CASES |= {
    name: Case(lambda name=name: getattr(ops, name)(T("x", X3, taken(name))), 4 * FUNCTION, "any")
    for name in (*FUNCTIONS, *FORMULAS)
    if name not in CASES and name != "threshold" and (name in FUNCTIONS or FORMULAS[name].operands == 1)
}
CASES |= {
    name: Case(lambda name=name: getattr(ops, name)(T("x", X3, taken(name)), T("y", (7,), taken(name))), FUNCTION, "any")
    for name, row in FORMULAS.items()
    if row.operands == 2
}
CASES |= {
    "acosh": Case(lambda: ops.acosh(ops.add(T("x", X3), 1)), 4 * FUNCTION, "positive"),
    "log1p": Case(lambda: ops.log1p(T("x", X3)), FUNCTION, "positive"),
    "log2": Case(lambda: ops.log2(T("x", X3)), FUNCTION, "positive"),
    "log10": Case(lambda: ops.log10(T("x", X3)), FUNCTION, "positive"),
    "asin": Case(lambda: ops.asin(ops.tanh(T("x", X3))), 4 * FUNCTION, "any"),
    "acos": Case(lambda: ops.acos(ops.tanh(T("x", X3))), 4 * FUNCTION, "any"),
    "atanh": Case(lambda: ops.atanh(ops.mul(ops.tanh(T("x", X3)), 0.5)), 4 * FUNCTION, "any"),
    "threshold": Case(lambda: ops.threshold(T("x", X3), 0.5, -1), 0.0, "any"),
    "prelu": Case(lambda: ops.prelu(T("x", (2, 5, 3)), T("w", (5,))), FUNCTION, "any"),
    "group_norm": Case(lambda: ops.group_norm(T("x", (2, 6, 5)), 3, T("w", (6,)), T("b", (6,))), 4 * FUNCTION, "any"),
    "instance_norm": Case(lambda: ops.instance_norm(T("x", (2, 3, 17))), 4 * FUNCTION, "any"),
    "local_response_norm": Case(lambda: ops.local_response_norm(T("x", (2, 5, 3)), 3), 4 * FUNCTION, "any"),
    **{
        f"adaptive_{how}_pool{rank}d": Case(
            lambda how=how, rank=rank: getattr(ops, f"adaptive_{how}_pool{rank}d")(T("x", (1, 2, *(7, 6, 5)[:rank])), 3), FUNCTION
        )
        for how in ("avg", "max")
        for rank in (1, 2, 3)
    },
    "split": Case(lambda: ops.split(T("x", X3), 2, 1)[1]),
    "chunk": Case(lambda: ops.chunk(T("x", X3), 3, -1)[2]),
    "stack": Case(lambda: ops.stack([T("x", X3), T("y", X3)], 1)),
    "tile": Case(lambda: ops.tile(T("x", (5, 7)), (2, 1, 3))),
    "repeat": Case(lambda: ops.repeat(T("x", (5, 7)), (2, 1, 3))),
    "flip": Case(lambda: ops.flip(T("x", X3), (0, 2))),
    "roll": Case(lambda: ops.roll(T("x", X3), (2, -1), (1, 2))),
    "roll of all": Case(lambda: ops.roll(T("x", (5, 7)), 3)),
    "select_scatter": Case(lambda: ops.select_scatter(T("x", (5, 7, 6)), T("y", (5, 6)), 1, 4)),
    "slice_scatter": Case(lambda: ops.slice_scatter(T("x", (5, 17)), T("y", (5, 5)), 1, 2, 16, 3)),
    "tril": Case(lambda: ops.tril(T("x", X3), 1)),
    "triu": Case(lambda: ops.triu(T("x", X3), -1)),
    "full": Case(lambda: ops.full((5, 7), 3)),
    "eye": Case(lambda: ops.eye(5, 7)),
    "arange": Case(lambda: ops.arange(7, -30, -3, dtype="float16")),
    "linspace": Case(lambda: ops.linspace(-1, 2, 37), FUNCTION),
    "meshgrid": Case(lambda: ops.meshgrid(T("a", (5,)), T("b", (7,)))[1]),
    "one_hot": Case(lambda: ops.one_hot(T("x", (5, 7), "int32"), 3)),
    "embedding": Case(lambda: ops.embedding(T("ids", (5, 3), "int64"), T("w", (7, 19)))),
    "index_select": Case(lambda: ops.index_select(T("x", (3, 5, 7)), 1, T("i", (9,), "int32"))),
    "gather": Case(lambda: ops.gather(T("x", (6, 5, 7)), -1, T("i", (4, 5, 3), "int64"))),
    "take_along_dim": Case(lambda: ops.take_along_dim(T("x", (1, 5, 7)), T("i", (4, 3, 1), "int64"), 1)),
    "pixel_shuffle": Case(lambda: ops.pixel_shuffle(T("x", (2, 12, 3, 5)), 2)),
    "pixel_unshuffle": Case(lambda: ops.pixel_unshuffle(T("x", (2, 3, 4, 6)), 2)),
    "unfold": Case(lambda: ops.unfold(T("x", (2, 3, 5, 7)), (3, 2), 1, 1, 2)),
    "unfold_copy": Case(lambda: ops.unfold_copy(T("x", X3), 1, 3, 2)),
    "interpolate bicubic": Case(lambda: ops.interpolate(T("x", (1, 3, 5, 7)), (9, 4), mode="bicubic"), FUNCTION, "any"),
    "interpolate area": Case(lambda: ops.interpolate(T("x", (1, 3, 5, 7)), (9, 4), mode="area"), FUNCTION),
    "einsum": Case(lambda: ops.einsum("...ik,kj->...", T("a", (3, 5, 7)), T("b", (7, 4)))),
    **{name: Case(lambda f=name: getattr(ops, f)(T("x", (37, 5)), T("t", (37, 5))), 4 * FUNCTION, "positive")
       for name in LOSSES if name != "binary_cross_entropy"},
    "binary_cross_entropy": Case(
        lambda: ops.binary_cross_entropy(*(ops.sigmoid(T(name, (9, 5))) for name in "xt"), T("w", (5,))), 4 * FUNCTION, "any"
    ),
    "mse_loss by weight": Case(lambda: ops.mse_loss(T("x", (9, 5)), T("t", (9, 5)), weight=T("w", (9, 5))), FUNCTION, "positive"),
    "any": Case(lambda: ops.any(T("x", X3), 1)),
    "all": Case(lambda: ops.all(T("x", X3, "bool"), (0, 2))),
    "nll_loss": Case(lambda: ops.nll_loss(T("x", (37, 5)), T("t", (37,), "int32"), T("w", (5,))), FUNCTION, "positive"),
    "cross_entropy": Case(lambda: ops.cross_entropy(T("x", (9, 5, 7)), T("t", (9, 7), "int64"), label_smoothing=0.1), 4 * FUNCTION, "any"),
    "cross_entropy of probabilities": Case(lambda: ops.cross_entropy(T("x", (9, 5)), T("t", (9, 5))), 4 * FUNCTION, "positive"),
    "conv2d asymmetric": Case(lambda: ops.conv2d(T("x", X4), T("w", (5, 3, 3, 2)), padding=((2, 0), (0, 1)), stride=2)),
    "max_pool2d same lower": Case(lambda: ops.max_pool2d(T("x", X4), (3, 2), 2, "same_lower")),
    "adaptive_max_pool2d indices": Case(lambda: ops.adaptive_max_pool2d(T("x", (1, 2, 7, 6)), 3, True)[1]),
}
