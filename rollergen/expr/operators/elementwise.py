"""Operators that treat every element alone: arithmetic, elementary functions, choices, conversions.

Operands broadcast as NumPy's do; all but one may be Python numbers.  Dtypes are not promoted: operands
of two dtypes are refused with advice, numbers take the dtype of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import dtype_name
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Number,
    axis_of,
    elementwise,
    number,
    require_tensor,
)
from rollergen.expr.primitives import PRIMITIVES

Operand = Tensor | Number


def add(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a + b``, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.add(rg.tensor("a", (4, 3)), rg.tensor("b", (3,))).shape
    (4, 3)
    """
    return elementwise("add", lambda x, y: x + y, a, b, name=name)


def sub(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a - b``, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.sub(1.0, rg.tensor("b", (2,))).evaluate([1.0, 3.0])
    array([ 0., -2.])
    """
    return elementwise("sub", lambda x, y: x - y, a, b, name=name)


def mul(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a * b``, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.mul(rg.tensor("a", (4, 1)), rg.tensor("b", (3,))).shape
    (4, 3)
    """
    return elementwise("mul", lambda x, y: x * y, a, b, name=name)


def div(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a / b`` of floating values, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.div(rg.tensor("a", (2,)), 4).evaluate([1.0, 3.0])
    array([0.25, 0.75])
    """
    return elementwise("div", lambda x, y: x / y, a, b, name=name)


def pow(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a ** b`` of floating values, broadcast as NumPy does; exponents 2 and 3 are products.

    >>> import rollergen as rg
    >>> rg.ops.pow(rg.tensor("a", (2,)), 3).evaluate([2.0, -3.0])
    array([  8., -27.])
    """
    return elementwise("pow", rg.pow, a, b, name=name)


def maximum(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """The larger of ``a`` and ``b``, NaN if either is; broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.maximum(rg.tensor("a", (2,)), 0.5).evaluate([1.0, 0.0])
    array([1. , 0.5])
    """
    return elementwise("maximum", rg.maximum, a, b, name=name)


def minimum(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """The smaller of ``a`` and ``b``, NaN if either is; broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.minimum(rg.tensor("a", (2,)), 0.5).evaluate([1.0, 0.0])
    array([0.5, 0. ])
    """
    return elementwise("minimum", rg.minimum, a, b, name=name)


def where(condition: Tensor, a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a`` where the bool tensor `condition` holds, else ``b``; all three broadcast as NumPy does.

    >>> import rollergen as rg
    >>> x, keep = rg.tensor("x", (3,)), rg.tensor("keep", (3,), "bool")
    >>> rg.ops.where(keep, x, 0.0).evaluate([True, False, True], [1.0, 2.0, 3.0])
    array([1., 0., 3.])
    """
    require_tensor(condition, "where")
    if condition.dtype != "bool":
        raise DtypeError(
            f"where(condition, a, b): condition {condition.label} has dtype {condition.dtype}; expected bool, "
            "e.g. rg.ops.greater(x, 0)"
        )
    return elementwise("where", rg.select, condition, a, b, name=name)


def equal(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a == b`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.equal(rg.tensor("a", (2,)), 1).evaluate([1.0, 3.0])
    array([ True, False])
    """
    return elementwise("equal", lambda x, y: x == y, a, b, name=name)


def not_equal(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a != b`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.not_equal(rg.tensor("a", (2,)), 1).evaluate([1.0, 3.0])
    array([False,  True])
    """
    return elementwise("not_equal", lambda x, y: x != y, a, b, name=name)


def less(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a < b`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.less(rg.tensor("a", (2,)), 2).evaluate([1.0, 3.0])
    array([ True, False])
    """
    return elementwise("less", lambda x, y: x < y, a, b, name=name)


def less_equal(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a <= b`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.less_equal(rg.tensor("a", (2,)), 1).evaluate([1.0, 3.0])
    array([ True, False])
    """
    return elementwise("less_equal", lambda x, y: x <= y, a, b, name=name)


def greater(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a > b`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.greater(rg.tensor("a", (2,)), 2).evaluate([1.0, 3.0])
    array([False,  True])
    """
    return elementwise("greater", lambda x, y: x > y, a, b, name=name)


def greater_equal(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a >= b`` as bool, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.greater_equal(rg.tensor("a", (2,)), 3).evaluate([1.0, 3.0])
    array([False,  True])
    """
    return elementwise("greater_equal", lambda x, y: x >= y, a, b, name=name)


def clip(x: Tensor, low: Operand | None = None, high: Operand | None = None, *, name: str | None = None) -> Tensor:
    """``minimum(maximum(x, low), high)``, any shape; a limit of None is none; NaN stays NaN.

    >>> import rollergen as rg
    >>> rg.ops.clip(rg.tensor("x", (3,)), 0, 1).evaluate([-1.0, 0.5, 2.0])
    array([0. , 0.5, 1. ])

    Raises ExpressionError where both limits are None, or `low` exceeds `high`.
    """
    require_tensor(x, "clip")
    if low is None and high is None:
        raise ExpressionError("clip: low and high are None; expected at least one limit")
    least, most = (None if v is None or isinstance(v, Tensor) else number(v, "clip", "a limit") for v in (low, high))
    if least is not None and most is not None and least > most:
        raise ExpressionError(f"clip: low is {shown(low)} and high {shown(high)}; expected low <= high")
    if high is None:
        return elementwise("clip", rg.maximum, x, low, name=name)
    if low is None:
        return elementwise("clip", rg.minimum, x, high, name=name)
    return elementwise("clip", lambda v, a, b: rg.minimum(rg.maximum(v, a), b), x, low, high, name=name)


def cast(x: Tensor, dtype: Any, *, name: str | None = None) -> Tensor:
    """`x` converted to `dtype`, any shape; towards zero from floating to integer values.

    >>> import rollergen as rg
    >>> rg.ops.cast(rg.tensor("x", (2,)), "int32").evaluate([1.75, -1.75])
    array([ 1, -1])
    """
    require_tensor(x, "cast")
    wanted = dtype_name(dtype, "rg.ops.cast's dtype")
    return elementwise("cast", lambda v: rg.cast(v, wanted), x, name=name)


def neg(x: Tensor, *, name: str | None = None) -> Tensor:
    """``-x``, any shape.

    >>> import rollergen as rg
    >>> rg.ops.neg(rg.tensor("x", (2,))).evaluate([1.0, -3.0])
    array([-1.,  3.])
    """
    return elementwise("neg", lambda v: -v, x, name=name)


def abs(x: Tensor, *, name: str | None = None) -> Tensor:
    """``|x|``, any shape.

    >>> import rollergen as rg
    >>> rg.ops.abs(rg.tensor("x", (2,))).evaluate([1.0, -3.0])
    array([1., 3.])
    """
    return elementwise("abs", rg.abs, x, name=name)


def pointwise(function: str) -> Callable[..., Tensor]:
    """The operator of one of `primitives.FUNCTIONS`."""
    row = PRIMITIVES[function]

    def operator(x: Tensor, *, name: str | None = None) -> Tensor:
        return elementwise(function, getattr(rg, function), x, name=name)

    given, found = row.example
    operator.__name__ = operator.__qualname__ = function
    operator.__doc__ = f"""{row.meaning} of every element, a floating value; any shape.

    >>> import rollergen as rg
    >>> rg.ops.{function}(rg.tensor("x", (2,))).evaluate({given})
    {found}
    """
    return operator


def bias_add(x: Tensor, bias: Tensor, *, axis: int = 1, name: str | None = None) -> Tensor:
    """`x` plus `bias`, a vector along `axis` (1: channels of (N, C, ...) or columns of a matrix; -1: the last).

    >>> import rollergen as rg
    >>> rg.ops.bias_add(rg.tensor("x", (1, 8, 5, 5)), rg.tensor("b", (8,))).shape
    (1, 8, 5, 5)
    """
    require_tensor(x, "bias_add")
    require_tensor(bias, "bias_add")
    if bias.ndim != 1 and x.ndim == 1:
        raise ExpressionError("bias_add(x, bias): the arguments look swapped: the vector goes second")
    position = axis_of(axis, x, "bias_add")
    if bias.shape != (x.shape[position],):
        raise ShapeError(
            f"bias_add: {bias.label} has shape {bias.shape}; expected ({x.shape[position]},), "
            f"the extent of axis {position} of {x.label} {x.shape}"
        )
    return rg.compute(x.shape, lambda *i: x[i] + bias[i[position]], name)
