"""Operators that treat every element alone: arithmetic, elementary functions, choices, conversions.

Operands broadcast as NumPy's do; all but one may be Python numbers.  Of several dtypes, operands come in the one to
which torch promotes them.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import PACKED, accumulator_dtype, dtype_name, is_float, is_integer
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Number,
    as_dtype,
    as_number,
    axis_of,
    broadcast_index,
    broadcast_shape,
    elementwise,
    integer,
    number,
    promoted_dtype,
    require_tensor,
)
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.scalars import is_scalar, literal
from rollergen.hal.dtypes import DTYPES

Operand = Tensor | Number


def add(input: Operand, other: Operand, *, alpha: Number = 1, name: str | None = None) -> Tensor:
    """``input + alpha * other``, broadcast as NumPy does; of conditions whether one holds.

    >>> import rollergen as rg
    >>> rg.ops.add(rg.tensor("a", (4, 3)), rg.tensor("b", (3,))).shape
    (4, 3)
    """
    return _shifted("add", lambda x, y: x | y if conditions(x, y) else x + y, input, other, alpha, name)


def sub(input: Operand, other: Operand, *, alpha: Number = 1, name: str | None = None) -> Tensor:
    """``input - alpha * other``, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.sub(1.0, rg.tensor("b", (2,))).evaluate([1.0, 3.0])
    array([ 0., -2.])
    """
    return _shifted("sub", lambda x, y: x - y, input, other, alpha, name)


def mul(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input * other``, broadcast as NumPy does; of conditions whether both hold.

    >>> import rollergen as rg
    >>> rg.ops.mul(rg.tensor("a", (4, 1)), rg.tensor("b", (3,))).shape
    (4, 3)
    """
    return elementwise("mul", lambda x, y: x & y if conditions(x, y) else x * y, input, other, name=name)


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None, name: str | None = None) -> Tensor:
    """``input / other``, broadcast as NumPy does; of integers as float32.

    `rounding_mode` "floor" (Python's ``//``) or "trunc" (C's ``/``) makes the quotient whole, of the operands' dtype.
    "trunc" cuts the exact quotient, torch the rounded one: the float32 next to 0.1, which is larger, goes into 1 nine
    times, not ten.  In float64 "floor" divides what the remainder leaves, which takes a CPU some thirty times as long.

    >>> import rollergen as rg
    >>> rg.ops.div(rg.tensor("a", (2,)), 4).evaluate([1.0, 3.0])
    array([0.25, 0.75])
    >>> rg.ops.div(rg.tensor("a", (2,), "int32"), 4, rounding_mode="floor").evaluate([9, -9])
    array([ 2, -3])
    """
    if rounding_mode is None:
        return elementwise("div", lambda x, y: x / y, input, other, name=name, floating=True)
    if rounding_mode not in ("floor", "trunc"):
        raise ExpressionError(f'div: rounding_mode is {shown(rounding_mode)}; expected None, "floor" or "trunc"')
    return elementwise("div", partial(_whole_quotient, rounding_mode), input, other, name=name, numeric=True)


def pow(input: Operand, exponent: Operand, *, name: str | None = None) -> Tensor:
    """``input ** exponent`` of floats or integers, broadcast as NumPy does; exponents 2 and 3 are products, 1/2 a
    root.

    >>> import rollergen as rg
    >>> rg.ops.pow(rg.tensor("a", (2,)), 3).evaluate([2.0, -3.0])
    array([  8., -27.])
    """
    return elementwise("pow", rg.pow, input, exponent, name=name)


def maximum(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """The larger of ``input`` and ``other``, NaN if either is; broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.maximum(rg.tensor("a", (2,)), 0.5).evaluate([1.0, 0.0])
    array([1. , 0.5])
    """
    return elementwise("maximum", larger, input, other, name=name)


def minimum(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """The smaller of ``input`` and ``other``, NaN if either is; broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.minimum(rg.tensor("a", (2,)), 0.5).evaluate([1.0, 0.0])
    array([0.5, 0. ])
    """
    return elementwise("minimum", smaller, input, other, name=name)


def where(condition: Tensor, input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input`` where the bool tensor `condition` holds, else ``other``; all three broadcast as NumPy does.

    >>> import rollergen as rg
    >>> x, keep = rg.tensor("x", (3,)), rg.tensor("keep", (3,), "bool")
    >>> rg.ops.where(keep, x, 0.0).evaluate([True, False, True], [1.0, 2.0, 3.0])
    array([1., 0., 3.])
    """
    require_tensor(condition, "where")
    if condition.dtype != "bool":
        raise DtypeError(
            f"where(condition, input, other): condition {condition.label} has dtype {condition.dtype}; expected bool, "
            "e.g. rg.ops.greater(x, 0)"
        )
    for operand in (input, other):
        if not is_scalar(operand):
            require_tensor(operand, "where")
    wanted = promoted_dtype(input, other)
    weak = lambda value: literal(as_number(value, wanted), wanted, "where")
    parts = [as_dtype(one, wanted) if isinstance(one, Tensor) else weak(one) for one in (input, other)]
    shape = broadcast_shape("where", condition, *(one for one in parts if isinstance(one, Tensor)))
    read = lambda one, i: one[broadcast_index(one.shape, i)] if isinstance(one, Tensor) else one
    return rg.compute(shape, lambda *i: rg.select(read(condition, i), *(read(one, i) for one in parts)), name)


def equal(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input == other`` as bool, element by element (torch's `eq`); broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.equal(rg.tensor("a", (2,)), 1).evaluate([1.0, 3.0])
    array([ True, False])
    """
    return elementwise("equal", lambda x, y: x == y, input, other, name=name)


def not_equal(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input != other`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.not_equal(rg.tensor("a", (2,)), 1).evaluate([1.0, 3.0])
    array([False,  True])
    """
    return elementwise("not_equal", lambda x, y: x != y, input, other, name=name)


def less(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input < other`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.less(rg.tensor("a", (2,)), 2).evaluate([1.0, 3.0])
    array([ True, False])
    """
    return elementwise("less", lambda x, y: x < y, input, other, name=name, numeric=True)


def less_equal(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input <= other`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.less_equal(rg.tensor("a", (2,)), 1).evaluate([1.0, 3.0])
    array([ True, False])
    """
    return elementwise("less_equal", lambda x, y: x <= y, input, other, name=name, numeric=True)


def greater(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input > other`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.greater(rg.tensor("a", (2,)), 2).evaluate([1.0, 3.0])
    array([False,  True])
    """
    return elementwise("greater", lambda x, y: x > y, input, other, name=name, numeric=True)


def greater_equal(input: Operand, other: Operand, *, name: str | None = None) -> Tensor:
    """``input >= other`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.greater_equal(rg.tensor("a", (2,)), 3).evaluate([1.0, 3.0])
    array([False,  True])
    """
    return elementwise("greater_equal", lambda x, y: x >= y, input, other, name=name, numeric=True)


def clip(input: Tensor, min: Operand | None = None, max: Operand | None = None, *, name: str | None = None) -> Tensor:
    """``minimum(maximum(input, min), max)``, any shape; a limit of None is none; NaN stays NaN.

    >>> import rollergen as rg
    >>> rg.ops.clip(rg.tensor("x", (3,)), 0, 1).evaluate([-1.0, 0.5, 2.0])
    array([0. , 0.5, 1. ])

    Raises ExpressionError where both limits are None.
    """
    require_tensor(input, "clip")
    if min is None and max is None:
        raise ExpressionError("clip: min and max are None; expected at least one limit")
    if max is None:
        return elementwise("clip", larger, input, min, name=name)
    if min is None:
        return elementwise("clip", smaller, input, max, name=name)
    return elementwise("clip", lambda v, low, high: smaller(larger(v, low), high), input, min, max, name=name)


def cast(input: Tensor, dtype: Any, *, overflow: str | None = None, name: str | None = None) -> Tensor:
    """`input` converted to `dtype`, any shape; towards zero from floating to integer values.

    `overflow`: what numbers beyond its range become, "saturate" or "wrap", as `rg.cast` has it.  int4 and uint4 give
    their numbers in int8 and uint8.

    >>> import rollergen as rg
    >>> rg.ops.cast(rg.tensor("x", (2,)), "int32").evaluate([1.75, -1.75])
    array([ 1, -1])
    """
    require_tensor(input, "cast")
    wanted = dtype_name(dtype, "rg.ops.cast's dtype", PACKED)
    return elementwise("cast", lambda v: rg.cast(v, wanted, overflow), input, name=name)


def neg(input: Tensor, *, name: str | None = None) -> Tensor:
    """``-input``, any shape.

    >>> import rollergen as rg
    >>> rg.ops.neg(rg.tensor("x", (2,))).evaluate([1.0, -3.0])
    array([-1.,  3.])
    """
    return elementwise("neg", lambda v: -v, input, name=name)


def abs(input: Tensor, *, name: str | None = None) -> Tensor:
    """``|input|``, any shape.

    >>> import rollergen as rg
    >>> rg.ops.abs(rg.tensor("x", (2,))).evaluate([1.0, -3.0])
    array([1., 3.])
    """
    return elementwise("abs", lambda v: v if v.dtype == "bool" else rg.abs(v), input, name=name)


def round(input: Tensor, *, decimals: int = 0, name: str | None = None) -> Tensor:
    """Nearest integer, ties to even, or with `decimals` the nearest multiple of a power of ten; integers stay.

    >>> import rollergen as rg
    >>> rg.ops.round(rg.tensor("x", (2,))).evaluate([0.5, 2.6])
    array([0., 3.])
    >>> rg.ops.round(rg.tensor("x", (2,)), decimals=1).evaluate([0.26, 2.6])
    array([0.3, 2.6])
    """
    digits = integer(decimals)
    if digits is None:
        raise ExpressionError(f"round: decimals is {shown(decimals)}; expected an integer")
    unit = 10.0 ** builtins.abs(digits)

    def element(v: Any) -> Any:
        if not is_float(v.dtype):
            return v
        if digits == 0:
            return rg.round(v)
        wide = rg.cast(v, accumulator_dtype(v.dtype))
        return rg.cast(rg.round(wide * unit) / unit if digits > 0 else rg.round(wide / unit) * unit, v.dtype)

    return elementwise("round", element, input, name=name)


def pointwise(function: str) -> Callable[..., Tensor]:
    """The operator of one of `primitives.FUNCTIONS`."""
    row = PRIMITIVES[function]
    kept = lambda v: getattr(rg, function)(v) if is_float(v.dtype) else v

    def operator(input: Tensor, *, name: str | None = None) -> Tensor:
        if row.jumps:
            return elementwise(function, kept, input, name=name)
        return elementwise(function, getattr(rg, function), input, name=name, floating=True)

    given, found = row.example
    operator.__name__ = operator.__qualname__ = function
    of = "integers stay as they are" if row.jumps else "of integers in float32"
    operator.__doc__ = f"""{row.meaning} of every element, any shape; {of}.

    >>> import rollergen as rg
    >>> rg.ops.{function}(rg.tensor("x", (2,))).evaluate({given})
    {found}
    """
    return operator


def bias_add(input: Tensor, bias: Tensor, *, axis: int = 1, name: str | None = None) -> Tensor:
    """`input` plus `bias`, a vector along `axis` (1: channels of (N, C, ...) or columns of a matrix; -1: the last).

    >>> import rollergen as rg
    >>> rg.ops.bias_add(rg.tensor("x", (1, 8, 5, 5)), rg.tensor("b", (8,))).shape
    (1, 8, 5, 5)
    """
    require_tensor(input, "bias_add")
    require_tensor(bias, "bias_add")
    if bias.ndim != 1 and input.ndim == 1:
        raise ExpressionError("bias_add(input, bias): the arguments look swapped: the vector goes second")
    position = axis_of(axis, input, "bias_add")
    if bias.shape != (input.shape[position],):
        raise ShapeError(
            f"bias_add: {bias.label} has shape {bias.shape}; expected ({input.shape[position]},), "
            f"the extent of axis {position} of {input.label} {input.shape}"
        )
    return rg.compute(input.shape, lambda *i: input[i] + bias[i[position]], name)


def larger(x: Any, y: Any) -> Any:
    """The larger of two elements; of conditions whether one holds."""
    return x | y if conditions(x, y) else rg.maximum(x, y)


def smaller(x: Any, y: Any) -> Any:
    """The smaller of two elements; of conditions whether both hold."""
    return x & y if conditions(x, y) else rg.minimum(x, y)


def conditions(x: Any, y: Any) -> bool:
    """Whether the operands, elements or numbers, are conditions."""
    return "bool" in (getattr(x, "dtype", ""), getattr(y, "dtype", ""))


def _shifted(
    operation: str, function: Callable[..., Any], a: Operand, b: Operand, alpha: Number, name: str | None
) -> Tensor:
    factor = number(int(alpha) if isinstance(alpha, bool) else alpha, operation, "alpha")
    if factor == 1:
        return elementwise(operation, function, a, b, name=name)
    wanted = promoted_dtype(a, b)
    if wanted == "bool":
        return elementwise(operation, lambda x, y: function(x, y & (factor != 0)), a, b, name=name)
    if isinstance(factor, float) and not is_float(wanted):
        raise DtypeError(f"{operation}: alpha is {shown(alpha)}; expected an integer for {wanted} values")
    if not DTYPES[wanted].signed:
        factor %= 2 ** DTYPES[wanted].bits
    return elementwise(operation, lambda x, y: function(x, y * factor), a, b, name=name)


def _whole_quotient(mode: str, x: Any, y: Any) -> Any:
    """Of floats the float64 quotient, rounded: of narrower numbers it never reaches the next integer."""
    dtype = x.dtype if isinstance(x, rg.Expr) else y.dtype
    if is_integer(dtype):
        return rg.divide(x, y, mode)
    x, y = rg.cast(x, "float64"), rg.cast(y, "float64")
    exact = x / y
    if mode == "trunc":
        return rg.cast(rg.select(exact < 0, -rg.floor(-exact), rg.floor(exact)), dtype)
    return rg.cast(_floored(x, y, exact, dtype), dtype)


def _floored(x: Any, y: Any, exact: Any, dtype: str) -> Any:
    """The quotient of floats as Python's ``//`` has it: -1 of a negative number by infinity, NaN of an infinity, and of
    float64, where a quotient may round up to the next integer, what the remainder leaves divided instead."""
    apart = (x < 0) != (y < 0)
    if dtype == "float64":
        rest = rg.remainder(x, y, "trunc")
        quotient = (x - rest) / y
        down = rg.round(rg.select((rest != 0) & apart, quotient - 1, quotient))
        down = rg.select(down == 0, exact * 0, down)  # the sign of the quotient
    else:
        down = rg.select((exact == 0) & (x != 0) & apart, -1.0, rg.floor(exact))
        down = rg.select(rg.abs(x) == math.inf, math.nan, down)
    return rg.select((rg.abs(exact) == math.inf) & (y == 0), exact, down)
