"""Activation functions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, shown
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Number,
    elementwise,
    floats,
    number,
    refuse_inplace,
    require_float,
    require_tensor,
    require_vector,
)

_SQRT_HALF = math.sqrt(0.5)
_GELU_SCALE, _GELU_CUBIC = math.sqrt(2 / math.pi), 0.044715


def relu(input: Tensor, inplace: bool = False, *, name: str | None = None) -> Tensor:
    """``max(input, 0)`` of numbers, any shape.

    >>> import rollergen as rg
    >>> rg.ops.relu(rg.tensor("x", (3,))).evaluate([-1.0, 0.5, 2.0])
    array([0. , 0.5, 2. ])

    Raises DtypeError for bool.
    """
    refuse_inplace("relu", inplace)
    require_tensor(input, "relu")
    if input.dtype == "bool":
        raise DtypeError(f"relu: {input.label} has dtype bool; expected numbers")
    return elementwise("relu", lambda v: rg.maximum(v, 0), input, name=name)


def leaky_relu(
    input: Tensor, negative_slope: Number = 0.01, inplace: bool = False, *, name: str | None = None
) -> Tensor:
    """``input`` where it is positive, else ``negative_slope * input``; floating values of any shape.

    >>> import rollergen as rg
    >>> rg.ops.leaky_relu(rg.tensor("x", (2,)), 0.5).evaluate([-1.0, 2.0])
    array([-0.5,  2. ])
    """
    require_float(input, "leaky_relu")
    refuse_inplace("leaky_relu", inplace)
    slope = number(negative_slope, "leaky_relu", "negative_slope")
    return rounded_once("leaky_relu", lambda v: rg.select(v > 0, v, v * slope), input, name)


def prelu(input: Tensor, weight: Tensor, *, name: str | None = None) -> Tensor:
    """``input`` where it is positive, else ``weight * input``; floating values of any shape.

    `weight` is (1,) or (), or (C,): one for each channel, axis 1.

    >>> import rollergen as rg
    >>> rg.ops.prelu(rg.tensor("x", (1, 2)), rg.tensor("w", (2,))).evaluate([[-1.0, -2.0]], [0.5, 0.25])
    array([[-0.5, -0.5]])

    Raises ShapeError for another number of weights.
    """
    require_float(input, "prelu")
    require_tensor(weight, "prelu", "weight")
    if weight.shape not in ((), (1,)):
        channels = input.shape[1] if input.ndim > 1 else 1
        require_vector(weight, channels, "prelu", "weight", "one for each channel, or one")
    wide = accumulator_dtype(input.dtype)

    def element(*i: Any) -> Any:
        slope = weight[(i[1],) if weight.shape not in ((), (1,)) else (0,) * weight.ndim]
        v = rg.cast(input[i], wide)
        return rg.cast(rg.select(v > 0, v, v * rg.cast(slope, wide)), input.dtype)

    return rg.compute(input.shape, element, name)


def sigmoid(input: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / (1 + exp(-input))`` of every element, any shape; of integers in float32.

    >>> import rollergen as rg
    >>> rg.ops.sigmoid(rg.tensor("x", (1,))).evaluate([0.0])
    array([0.5])
    """
    return rounded_once("sigmoid", lambda v: 1 / (1 + rg.exp(-v)), floats(input, "sigmoid"), name)


def silu(input: Tensor, inplace: bool = False, *, name: str | None = None) -> Tensor:
    """``input * sigmoid(input)`` of floating values, any shape.

    >>> import rollergen as rg
    >>> rg.ops.silu(rg.tensor("x", (1,))).evaluate([0.0])
    array([0.])
    """
    require_float(input, "silu")
    refuse_inplace("silu", inplace)
    return rounded_once("silu", lambda v: v / (1 + rg.exp(-v)), input, name)


def gelu(input: Tensor, approximate: str = "none", *, name: str | None = None) -> Tensor:
    """``x / 2 * (1 + erf(x / sqrt 2))`` of the floating values x of `input`, any shape.

    `approximate` is "none", or "tanh" for ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))``
    (Hendrycks and Gimpel, arXiv:1606.08415).

    >>> import rollergen as rg
    >>> rg.ops.gelu(rg.tensor("x", (2,))).evaluate([0.0, 9.0])
    array([0., 9.])
    """
    require_float(input, "gelu")
    if approximate == "none":
        return rounded_once("gelu", lambda v: v * 0.5 * (1 + rg.erf(v * _SQRT_HALF)), input, name)
    if approximate != "tanh":
        raise ExpressionError(f'gelu: approximate is {shown(approximate)}; expected "none" or "tanh"')

    def element(v: rg.Expr) -> rg.Expr:
        return v * 0.5 * (1 + rg.tanh(_GELU_SCALE * (v + _GELU_CUBIC * v**3)))

    return rounded_once("gelu", element, input, name)


def rounded_once(operation: str, function: Callable[[rg.Expr], Any], x: Tensor, name: str | None) -> Tensor:
    """`function` of every element in the accumulator's dtype: of narrow values only the result is rounded."""
    wide = accumulator_dtype(x.dtype)
    return elementwise(operation, lambda v: rg.cast(function(rg.cast(v, wide)), x.dtype), x, name=name)
