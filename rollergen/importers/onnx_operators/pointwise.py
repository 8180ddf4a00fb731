"""ONNX operators that treat every element alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.dtypes import accumulator_dtype, is_float, numpy_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import broadcast_index, broadcast_shape
from rollergen.hal.dtypes import DTYPES
from rollergen.importers.onnx_operators.table import Node, operator, operators
from rollergen.importers.refusals import Refused, accepted_dtype


def pointwise(function: Any, *operands: Any) -> Tensor:
    """`function` of the elements of tensors, each of its own dtype, and numbers, broadcast."""
    shape = broadcast_shape("pointwise", *(one for one in operands if isinstance(one, Tensor)))
    read = lambda one, i: one[broadcast_index(one.shape, i)] if isinstance(one, Tensor) else one
    return rg.compute(shape, lambda *i: function(*(read(one, i) for one in operands)))


def of_one(function: Any) -> Any:
    """A converter: `function` of the element and the node."""
    return lambda n: pointwise(lambda v: function(v, n), n.tensor(0))


def widened(function: Any) -> Any:
    """As `of_one`, computed in the accumulator's dtype and rounded once."""

    def convert(n: Node) -> Tensor:
        x = n.tensor(0)
        wide = accumulator_dtype(x.dtype)
        return pointwise(lambda v: rg.cast(function(rg.cast(v, wide), n), x.dtype), x)

    return convert


def sigmoid(v: Any) -> Any:
    return 1 / (1 + rg.exp(-v))


def softplus(v: Any) -> Any:
    return rg.maximum(v, 0) + rg.log1p(rg.exp(-rg.abs(v)))


def sign(v: Any) -> Any:
    return rg.select(v > 0, 1, rg.select(v < 0, -1, v * 0))


def exponential(v: Any, alpha: float, inner: float = 1.0) -> Any:
    """`v` where it is positive, else ``alpha * (exp(inner * v) - 1)``."""
    return rg.select(v > 0, v, rg.expm1(rg.minimum(v, 0) * inner) * alpha)


def truncated(v: Any) -> Any:
    return rg.select(v < 0, -rg.floor(-v), rg.floor(v))


operators(
    Identity=lambda n: n.tensor(0),
    Relu=lambda n: ops.relu(n.tensor(0)),
    LeakyRelu=lambda n: ops.leaky_relu(n.tensor(0), n.get("alpha", 0.01)),
    Sigmoid=lambda n: ops.sigmoid(n.tensor(0)),
    Tanh=lambda n: ops.tanh(n.tensor(0)),
    Gelu=lambda n: ops.gelu(n.tensor(0), n.get("approximate", "none")),
    Exp=lambda n: ops.exp(n.tensor(0)),
    Log=lambda n: ops.log(n.tensor(0)),
    Sqrt=lambda n: ops.sqrt(n.tensor(0)),
    Erf=lambda n: ops.erf(n.tensor(0)),
    Neg=lambda n: ops.neg(n.tensor(0)),
    Abs=lambda n: ops.abs(n.tensor(0)),
    Floor=lambda n: ops.floor(n.tensor(0)),
    Round=lambda n: ops.round(n.tensor(0)),
    **{name: lambda n, name=name: getattr(ops, name.lower())(n.tensor(0))
       for name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")},
    Reciprocal=lambda n: ops.div(1, n.tensor(0)),
    Ceil=of_one(lambda v, n: -rg.floor(-v)),
    Sign=of_one(lambda v, n: sign(v)),
    Not=of_one(lambda v, n: ~v),
    IsNaN=of_one(lambda v, n: v != v),
    Softsign=of_one(lambda v, n: v / (1 + rg.abs(v))),
    Softplus=widened(lambda v, n: softplus(v)),
    Mish=widened(lambda v, n: v * rg.tanh(softplus(v))),
    Swish=widened(lambda v, n: v * sigmoid(v * n.get("alpha", 1.0))),
    HardSwish=of_one(lambda v, n: v * rg.minimum(rg.maximum(v * (1 / 6) + 0.5, 0), 1)),
    HardSigmoid=of_one(lambda v, n: rg.minimum(rg.maximum(v * n.get("alpha", 0.2) + n.get("beta", 0.5), 0), 1)),
    Elu=widened(lambda v, n: exponential(v, n.get("alpha", 1.0))),
    Celu=widened(lambda v, n: exponential(v, n.get("alpha", 1.0), 1 / n.get("alpha", 1.0))),
    ThresholdedRelu=of_one(lambda v, n: rg.select(v > n.get("alpha", 1.0), v, 0)),
    Equal=lambda n: ops.equal(*n.operands()),
    Less=lambda n: ops.less(*n.operands()),
    LessOrEqual=lambda n: ops.less_equal(*n.operands()),
    Greater=lambda n: ops.greater(*n.operands()),
    GreaterOrEqual=lambda n: ops.greater_equal(*n.operands()),
    And=lambda n: pointwise(lambda a, b: a & b, *n.operands()),
    Or=lambda n: pointwise(lambda a, b: a | b, *n.operands()),
    Xor=lambda n: ops.not_equal(*n.operands()),
    BitwiseAnd=lambda n: ops.bitwise_and(*n.operands()),
    BitwiseOr=lambda n: ops.bitwise_or(*n.operands()),
    BitwiseXor=lambda n: ops.bitwise_xor(*n.operands()),
    BitwiseNot=lambda n: ops.bitwise_not(n.tensor(0)),
    Add=lambda n: ops.add(*n.operands()),
    Sub=lambda n: ops.sub(*n.operands()),
    Mul=lambda n: ops.mul(*n.operands()),
    Max=lambda n: chained(ops.maximum, n.operands()),
    Min=lambda n: chained(ops.minimum, n.operands()),
    Sum=lambda n: chained(ops.add, n.operands()),
    Mean=lambda n: ops.div(chained(ops.add, n.operands()), len(n.inputs)),
    Where=lambda n: ops.where(n.tensor(0), n.operand(1), n.operand(2)),
    SwiGLU=lambda n: ops.mul(swish(n.tensor(0), n.get("alpha", 1.0)), n.tensor(1)),
)


def swish(x: Tensor, alpha: float) -> Tensor:
    return pointwise(lambda v: v * sigmoid(v * alpha), x)


def chained(function: Any, operands: list[Any]) -> Any:
    result = operands[0]
    for one in operands[1:]:
        result = function(result, one)
    return result


@operator("Selu")
def selu(n: Node) -> Tensor:
    alpha, gamma = n.get("alpha", 1.6732632423543772), n.get("gamma", 1.0507009873554805)
    return pointwise(lambda v: exponential(v, alpha) * gamma, n.tensor(0))


@operator("PRelu")
def prelu(n: Node) -> Tensor:
    """Before operator set 7 a slope for each channel."""
    x, slope = n.tensor(0), n.operand(1)
    if n.version < 7 and isinstance(slope, Tensor):
        slope = ops.reshape(slope, (-1, *(1,) * (x.ndim - 2)))
    return pointwise(lambda v, s: rg.select(v < 0, v * s, v), x, slope)


@operator("Shrink")
def shrink(n: Node) -> Tensor:
    bias, limit = n.get("bias", 0.0), n.get("lambd", 0.5)
    return pointwise(lambda v: rg.select(v < -limit, v + bias, rg.select(v > limit, v - bias, 0)), n.tensor(0))


@operator("IsInf")
def isinf(n: Node) -> Tensor:
    signs = [s for s, name in ((1, "detect_positive"), (-1, "detect_negative")) if n.get(name, 1)]
    if len(signs) == 2:
        return pointwise(lambda v: rg.abs(v) == math.inf, n.tensor(0))
    return pointwise(lambda v: v == signs[0] * math.inf, n.tensor(0))


@operator("Div")
def div(n: Node) -> Tensor:
    """Integers towards zero."""
    operands = n.operands()
    return ops.div(*operands, rounding_mode=None if is_float(dtype_of(operands)) else "trunc")


def dtype_of(operands: list[Any]) -> str:
    return next(one.dtype for one in operands if isinstance(one, Tensor))


@operator("Mod")
def mod(n: Node) -> Tensor:
    """The sign of the divisor, or with ``fmod`` of the dividend."""
    return (ops.fmod if n.get("fmod", 0) else ops.remainder)(*n.operands())


@operator("BitShift")
def shift(n: Node) -> Tensor:
    left = n.get("direction") == "LEFT"
    return (ops.bitwise_left_shift if left else ops.bitwise_right_shift)(*n.operands())


@operator("Pow")
def power(n: Node) -> Tensor:
    base, exponent = n.operand(0), n.operand(1)
    dtype = base.dtype if isinstance(base, Tensor) else accepted_dtype(n.inputs[0].dtype)
    wide = dtype if is_float(dtype) else "float64"
    return pointwise(lambda a, b: rg.cast(rg.pow(rg.cast(a, wide), rg.cast(b, wide)), dtype), base, exponent)


@operator("Clip")
def clip(n: Node) -> Tensor:
    x = n.tensor(0)
    low, high = (n.operand(i) if n.has(i) else n.get(name) for i, name in ((1, "min"), (2, "max")))
    if low is not None:
        x = ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@operator("Cast", "CastLike")
def cast(n: Node) -> Any:
    """To floats of eight bits values beyond their range become their ends, unless `saturate` is 0."""
    by_number = n.proto.op_type == "Cast"
    wanted = onnx.helper.tensor_dtype_to_np_dtype(n.get("to")) if by_number else np_dtype(n.inputs[1])
    dtype = accepted_dtype(wanted)
    if isinstance(n.inputs[0], np.ndarray):
        return n.inputs[0].astype(wanted)
    narrow = is_float(dtype) and DTYPES[dtype].bits == 8
    return ops.cast(n.tensor(0), dtype, overflow="saturate" if narrow and n.get("saturate", 1) else None)


def np_dtype(value: Any) -> Any:
    """The NumPy dtype of a tensor or array."""
    return numpy_dtype(value.dtype) if isinstance(value, Tensor) else value.dtype


@operator("Binarizer")
def binarize(n: Node) -> Tensor:
    return pointwise(lambda v: rg.select(v > n.get("threshold", 0.0), 1.0, v * 0), n.tensor(0))


@operator("Dropout")
def dropout(n: Node) -> Any:
    """Of inference: nothing is dropped."""
    x, ratio, training = n.tensor(0), n.known(1), n.known(2)
    if training is not None and bool(training) and (ratio is None or float(ratio) != 0):
        raise Refused("random", "Dropout in training")
    return x, np.ones(x.shape, bool)
