"""Quantised values: int8 with a scale (and a zero point), for a whole tensor or for each slice along an axis.

``x = (q - zero_point) * scale``.  Scales are floating, zero points int32; each is a number or a vector
along `axis`.
"""

from __future__ import annotations

from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import axis_of, integer, number, require_float, require_tensor, require_vector

_LOW, _HIGH = -128, 127
Scale = Tensor | float
ZeroPoint = Tensor | int


def quantize(
    input: Tensor, scale: Scale, zero_point: ZeroPoint = 0, axis: int | None = None, *, name: str | None = None
) -> Tensor:
    """``clip(round(x / scale) + zero_point, -128, 127)`` as int8, ties to even; x floating, any shape.

    >>> import rollergen as rg
    >>> rg.ops.quantize(rg.tensor("x", (4,)), 0.5, 1).evaluate([0.0, 1.0, -1.25, 1000.0])
    array([  1,   3,  -1, 127])

    Raises ShapeError for vectors that do not have one element for each slice along `axis`.
    """
    x = input
    require_float(x, "quantize")
    scale_at, zero_at = _parameters("quantize", x, scale, zero_point, axis)

    wide = accumulator_dtype(x.dtype)

    def element(*i: Any) -> Any:
        zero = zero_at(i)
        steps = rg.round(rg.cast(x[i], wide) / scale_at(i, wide))
        shifted = steps + (zero if isinstance(zero, int) else rg.cast(zero, wide))
        return rg.cast(rg.minimum(rg.maximum(shifted, _LOW), _HIGH), "int8")

    return rg.compute(x.shape, element, name)


def dequantize(
    input: Tensor, scale: Scale, zero_point: ZeroPoint = 0, axis: int | None = None, *, dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(q - zero_point) * scale`` as `dtype`; q int8 or int32, any shape.

    >>> import rollergen as rg
    >>> rg.ops.dequantize(rg.tensor("q", (2,), "int8"), 0.5, 1).evaluate([1, 3])
    array([0., 1.])
    """
    q = input
    require_tensor(q, "dequantize")
    if q.dtype not in ("int8", "int32"):
        raise DtypeError(f"dequantize: {q.label} has dtype {q.dtype}; expected int8 or int32")
    wanted = _floating(dtype, "dequantize")
    scale_at, zero_at = _parameters("dequantize", q, scale, zero_point, axis)
    wide = accumulator_dtype(wanted)

    def element(*i: Any) -> Any:
        zero = zero_at(i)
        value = rg.cast(q[i], "int32")
        value = value if isinstance(zero, int) and zero == 0 else value - zero
        return rg.cast(rg.cast(value, wide) * scale_at(i, wide), wanted)

    return rg.compute(q.shape, element, name)


def quantized_matmul(
    input: Tensor, other: Tensor, a_scale: Scale, b_scale: Scale, bias: Tensor | None = None, *,
    transpose_b: bool = False, dtype: Any = "float32", name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(a @ b) * a_scale * b_scale + bias``: int8 matrices (M, K) and (K, N), summed in int32, into floating (M, N).

    `a_scale` is a number or a tensor () or (M,), `b_scale` a number or a tensor () or (N,), bias (N,) floating;
    `transpose_b` takes b as (N, K).

    >>> import rollergen as rg
    >>> a, b = rg.tensor("a", (1, 2), "int8"), rg.tensor("b", (2, 1), "int8")
    >>> rg.ops.quantized_matmul(a, b, 0.5, 0.25).evaluate([[100, 100]], [[100], [100]])
    array([[2500.]])

    Raises DtypeError for operands that are not int8, ShapeError where K differs.
    """
    operation, a, b = "quantized_matmul", input, other
    for operand in (a, b):
        require_tensor(operand, operation)
        if operand.dtype != "int8":
            raise DtypeError(f"{operation}: {operand.label} has dtype {operand.dtype}; expected int8")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1 if transpose_b else 0]:
        expected = "(m, k) and (n, k)" if transpose_b else "(m, k) and (k, n)"
        raise ShapeError(
            f"{operation}: {a.label} has shape {a.shape} and {b.label} {b.shape}; expected {expected}, equal k"
        )
    wanted = _floating(dtype, operation)
    (m, k), n = a.shape, b.shape[0 if transpose_b else 1]
    rows = _along(operation, "a_scale", a_scale, m, f"one for each row of {a.label}")
    columns = _along(operation, "b_scale", b_scale, n, f"one for each column of {b.label}")
    if bias is not None:
        require_vector(bias, n, operation, "bias", f"one for each column of {b.label}")
    r, wide = rg.reduce_axis("k", k), accumulator_dtype(wanted)

    def element(i: Any, j: Any) -> Any:
        total = rg.sum(a[i, r] * (b[j, r] if transpose_b else b[r, j]), axis=r)
        value = rg.cast(total, wide) * rows(i, wide) * columns(j, wide)
        return rg.cast(value if bias is None else value + rg.cast(bias[j], wide), wanted)

    return rg.compute((m, n), element, name)


def _floating(dtype: Any, operation: str) -> str:
    wanted = dtype_name(dtype, f"rg.ops.{operation}'s dtype")
    if not is_float(wanted):
        raise DtypeError(f"{operation}: dtype is {shown(dtype)}; expected a floating one")
    return wanted


def _along(operation: str, what: str, scale: Scale, extent: int, of: str) -> Any:
    """A function (index, dtype) -> the scale there."""
    if not isinstance(scale, Tensor):
        value = _positive(scale, operation, what)
        return lambda index, dtype: value
    require_float(scale, operation)
    if scale.ndim == 0:
        return lambda index, dtype: rg.cast(scale[()], dtype)
    require_vector(scale, extent, operation, what, f"{of}, or ()")
    return lambda index, dtype: rg.cast(scale[index], dtype)


def _positive(scale: Any, operation: str, what: str) -> float:
    value = float(number(scale, operation, what))
    if not 0 < value < float("inf"):
        raise ExpressionError(f"{operation}: {what} is {shown(scale)}; expected a positive number")
    return value


def _parameters(operation: str, x: Tensor, scale: Scale, zero_point: ZeroPoint, axis: int | None) -> tuple[Any, Any]:
    """Functions of the indices: the scale in a dtype, and the zero point (an int or an int32 value)."""
    vectors = [p for p in (scale, zero_point) if isinstance(p, Tensor)]
    if vectors and axis is None:
        raise ShapeError(
            f"{operation}: {vectors[0].label} has shape {vectors[0].shape} and axis is None; expected its axis"
        )
    if axis is not None and not vectors:
        raise ShapeError(f"{operation}: axis is {shown(axis)}; expected None for one scale and one zero point")
    position = 0 if axis is None else axis_of(axis, x, operation)
    extent = x.shape[position] if x.ndim else 1
    of = f"the extent of axis {position} of {x.label} {x.shape}"
    scale_at = _along(operation, "scale", scale, extent, of)

    def zero_at(i: Any) -> Any:
        return zero_point[i[position]] if isinstance(zero_point, Tensor) else integer(zero_point)

    if isinstance(zero_point, Tensor):
        require_vector(zero_point, extent, operation, "zero_point", of)
        if zero_point.dtype != "int32":
            raise DtypeError(f"{operation}: zero_point {zero_point.label} has dtype {zero_point.dtype}; expected int32")
    elif (zero := integer(zero_point)) is None or not _LOW <= zero <= _HIGH:
        raise ExpressionError(
            f"{operation}: zero_point is {shown(zero_point)}; expected an integer from {_LOW} to {_HIGH}"
        )
    return (lambda i, dtype: scale_at(i[position] if axis is not None else None, dtype)), zero_at
