"""Quantised values: integers, or floats of eight bits, with a scale and a zero point.

``x = (q - zero_point) * scale``.  Scales are floating, zero points integers; each is a number, a vector along `axis`,
or with `block_size` a tensor of a scale for each block of elements along it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import PACKED, accumulator_dtype, dtype_name, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import axis_of, integer, number, require_float, require_tensor, require_vector
from rollergen.expr.operators.convolutions import conv2d
from rollergen.expr.operators.reductions import amax, amin
from rollergen.hal.dtypes import DTYPES

Scale = Tensor | float
ZeroPoint = Tensor | int
STORED = ("int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2", *PACKED)
"""What is quantised to, of int4 and uint4 in int8 and uint8; products are of int8 and uint8."""
FACTORS = ("int8", "uint8")


def quantize(
    input: Tensor, scale: Scale, zero_point: ZeroPoint = 0, axis: int | None = None, *, dtype: Any = "int8",
    block_size: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``round(x / scale) + zero_point`` of the floating values x of `input`, any shape, as `dtype`.

    Ties are rounded to even; what lies beyond the range of `dtype` becomes its nearest end.

    `dtype` is int8, uint8, int16, uint16, int4 or uint4 (in int8 or uint8), float8_e4m3fn or float8_e5m2 (which are not
    rounded to integers first).
    With `block_size` the scale has the shape of x, but along `axis` one for each block.

    >>> import rollergen as rg
    >>> rg.ops.quantize(rg.tensor("x", (4,)), 0.5, 1).evaluate([0.0, 1.0, -1.25, 1000.0])
    array([  1,   3,  -1, 127])

    Raises ShapeError for scales that do not have one element for each slice along `axis`, or for each block.
    """
    x = input
    require_float(x, "quantize")
    wanted = dtype_name(dtype, "rg.ops.quantize's dtype", PACKED)
    if wanted not in STORED:
        raise DtypeError(f"quantize: dtype is {shown(dtype)}; expected one of {', '.join(STORED)}")
    scale_at, zero_at = _parameters("quantize", x, scale, zero_point, axis, wanted, block_size)
    wide = accumulator_dtype(x.dtype)
    return rg.compute(
        x.shape, lambda *i: _quantised(rg.cast(x[i], wide) / scale_at(i, wide), zero_at(i), wide, wanted), name
    )


def dequantize(
    input: Tensor, scale: Scale, zero_point: ZeroPoint = 0, axis: int | None = None, *, dtype: Any = "float32",
    block_size: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(q - zero_point) * scale`` as `dtype`; `input` q is int32 or as `quantize` makes it, any shape.

    >>> import rollergen as rg
    >>> rg.ops.dequantize(rg.tensor("q", (2,), "int8"), 0.5, 1).evaluate([1, 3])
    array([0., 1.])
    """
    q = input
    require_tensor(q, "dequantize")
    if q.dtype not in (*STORED, "int32"):
        raise DtypeError(f"dequantize: {q.label} has dtype {q.dtype}; expected int32 or one of {', '.join(STORED)}")
    wanted = _floating(dtype, "dequantize")
    scale_at, zero_at = _parameters("dequantize", q, scale, zero_point, axis, q.dtype, block_size)
    wide = accumulator_dtype(wanted)

    def element(*i: Any) -> Any:
        value = _shifted(q[i], zero_at(i))
        return rg.cast(rg.cast(value, wide) * scale_at(i, wide), wanted)

    return rg.compute(q.shape, element, name)


def quantized_matmul(
    input: Tensor, other: Tensor, a_scale: Scale, b_scale: Scale, bias: Tensor | None = None, *,
    transpose_b: bool = False, dtype: Any = "float32", a_zero_point: int = 0, b_zero_point: int = 0,
    scale: float | None = None, zero_point: int = 0, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(a - za) @ (b - zb) * a_scale * b_scale + bias``: `input` a (M, K) and `other` b (K, N), int8 or uint8.

    Sums are int32; za and zb are `a_zero_point` and `b_zero_point`.

    `a_scale` is a number or a tensor () or (M,), `b_scale` a number or a tensor () or (N,), bias (N,) floating;
    `transpose_b` takes b as (N, K); zero points are integers.  The result (M, N) is floating, or with a `scale`
    quantised by it and `zero_point` to `dtype`, as `quantize` does.

    >>> import rollergen as rg
    >>> a, b = rg.tensor("a", (1, 2), "int8"), rg.tensor("b", (2, 1), "int8")
    >>> rg.ops.quantized_matmul(a, b, 0.5, 0.25).evaluate([[100, 100]], [[100], [100]])
    array([[2500.]])

    Raises DtypeError for operands that are neither int8 nor uint8, ShapeError where K differs.
    """
    operation, a, b = "quantized_matmul", input, other
    zeros = [_factor(operation, t, z) for t, z in ((a, a_zero_point), (b, b_zero_point))]
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1 if transpose_b else 0]:
        expected = "(m, k) and (n, k)" if transpose_b else "(m, k) and (k, n)"
        raise ShapeError(
            f"{operation}: {a.label} has shape {a.shape} and {b.label} {b.shape}; expected {expected}, equal k"
        )
    finish, wide = _result(operation, dtype, scale, zero_point)
    (m, k), n = a.shape, b.shape[0 if transpose_b else 1]
    rows = _along(operation, "a_scale", a_scale, m, f"one for each row of {a.label}")
    columns = _along(operation, "b_scale", b_scale, n, f"one for each column of {b.label}")
    if bias is not None:
        require_vector(bias, n, operation, "bias", f"one for each column of {b.label}")
    r = rg.reduce_axis("k", k)
    plain = zeros == [0, 0] and a.dtype == b.dtype

    def element(i: Any, j: Any) -> Any:
        left, right = a[i, r], b[j, r] if transpose_b else b[r, j]
        terms = left * right if plain else _shifted(left, zeros[0]) * _shifted(right, zeros[1])
        value = rg.cast(rg.sum(terms, axis=r), wide) * rows(i, wide) * columns(j, wide)
        return finish(value if bias is None else value + rg.cast(bias[j], wide))

    return rg.compute((m, n), element, name)


def quantized_conv2d(
    input: Tensor, weight: Tensor, x_scale: float, w_scale: Scale, bias: Tensor | None = None, *, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1, dtype: Any = "float32", x_zero_point: int = 0,
    w_zero_point: int = 0, scale: float | None = None, zero_point: int = 0, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The convolution of `input` (N, C, H, W) with `weight` (O, C / groups, KH, KW), int8 or uint8.

    Sums are int32.  The padding stands for 0: it holds `x_zero_point`.
    `w_scale` is a number or a tensor () or (O,), bias (O,) int32, added to the sums.  The result is floating, or with a
    `scale` quantised by it and `zero_point` to `dtype`, as `quantize` does.

    >>> import rollergen as rg
    >>> x, w = rg.tensor("x", (1, 1, 2, 2), "uint8"), rg.tensor("w", (1, 1, 2, 2), "int8")
    >>> rg.ops.quantized_conv2d(x, w, 0.5, 0.25, x_zero_point=1).evaluate([[[[2, 2], [2, 2]]]], [[[[1, 1], [1, 1]]]])
    array([[[[0.5]]]])
    """
    operation = "quantized_conv2d"
    zeros = [_factor(operation, t, z) for t, z in ((input, x_zero_point), (weight, w_zero_point))]
    finish, wide = _result(operation, dtype, scale, zero_point)
    x, w = (
        rg.compute(t.shape, lambda *i, t=t, z=z: _shifted(t[i], z)) for t, z in zip((input, weight), zeros, strict=True)
    )
    sums = conv2d(x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)
    of_x = _along(operation, "x_scale", x_scale, 1, "one")
    of_w = _along(operation, "w_scale", w_scale, weight.shape[0], f"one for each filter of {weight.label}")
    if sums.ndim != 4:
        raise ShapeError(f"{operation}: {input.label} has shape {input.shape}; expected (n, c, h, w)")
    element = lambda n, o, y, z: finish(rg.cast(sums[n, o, y, z], wide) * of_x(0, wide) * of_w(o, wide))
    return rg.compute(sums.shape, element, name)


def dynamic_quantize(input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(q uint8, scale (), zero point () uint8) of a floating tensor.

    Its range, extended to 0, is cut into 255 steps.

    ONNX' DynamicQuantizeLinear: ``scale = (max - min) / 255``, ``zero_point = round(-min / scale)``, ``q = round(x /
    scale) + zero_point``, ties to even.  Where all elements are 0, so is q, and the scale is 1.

    >>> import rollergen as rg
    >>> rg.ops.dynamic_quantize(rg.tensor("x", (3,)))[0].evaluate([-1.0, 0.0, 1.55])
    array([  0, 100, 255])
    """
    x = input
    require_float(x, "dynamic_quantize")
    wide, every = accumulator_dtype(x.dtype), tuple(range(x.ndim))
    least, most = (rg.cast(edge(x, every)[()], wide) for edge in (amin, amax)) if every else (rg.cast(x[()], wide),) * 2
    least, most = rg.minimum(least, 0.0), rg.maximum(most, 0.0)
    scale = rg.compute((), lambda: rg.select(most > least, (most - least) / 255.0, 1.0))
    zero = rg.compute((), lambda: rg.cast(rg.round((0.0 - least) / scale[()]), "uint8", "saturate"))
    element = lambda *i: _quantised(rg.cast(x[i], wide) / scale[()], zero[()], wide, "uint8")
    return rg.compute(x.shape, element), scale, zero


def _quantised(steps: Any, zero: Any, wide: str, dtype: str) -> Any:
    """Steps from the zero point as `dtype`: beyond its range its ends."""
    if is_float(dtype):
        return rg.cast(steps, dtype, "saturate")
    low, high = DTYPES[dtype].limits
    shifted = rg.round(steps) + (zero if isinstance(zero, int) else rg.cast(zero, wide))
    return rg.cast(rg.minimum(rg.maximum(shifted, low), high), DTYPES[dtype].register)


def _shifted(value: Any, zero: Any) -> Any:
    """``value - zero`` in int32; floats have no zero point."""
    if is_float(value.dtype):
        return value
    value = rg.cast(value, "int32")
    if isinstance(zero, int):
        return value - zero if zero else value
    return value - rg.cast(zero, "int32")


def _factor(operation: str, operand: Any, zero: Any) -> int:
    """The zero point of an operand of a product."""
    require_tensor(operand, operation)
    if operand.dtype not in FACTORS:
        raise DtypeError(f"{operation}: {operand.label} has dtype {operand.dtype}; expected int8 or uint8")
    return _zero(operation, zero, operand.dtype)


def _zero(operation: str, zero_point: Any, dtype: str) -> int:
    low, high = (0, 0) if is_float(dtype) else DTYPES[dtype].limits
    zero = integer(zero_point)
    if zero is None or not low <= zero <= high:
        raise ExpressionError(
            f"{operation}: zero_point is {shown(zero_point)}; expected an integer from {low} to {high}"
        )
    return zero


def _result(operation: str, dtype: Any, scale: Any, zero_point: Any) -> tuple[Callable[[Any], Any], str]:
    """What makes the result of a scaled sum, and the dtype that this is computed in."""
    if scale is None:
        wanted = _floating(dtype, operation)
        return lambda value: rg.cast(value, wanted), accumulator_dtype(wanted)
    wanted = dtype_name(dtype, f"rg.ops.{operation}'s dtype")
    if wanted not in STORED:
        raise DtypeError(f"{operation}: dtype is {shown(dtype)}; expected with a scale one of {', '.join(STORED)}")
    by, zero = _positive(scale, operation, "scale"), _zero(operation, zero_point, wanted)
    return lambda value: _quantised(value / by, zero, "float32", wanted), "float32"


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


def _parameters(
    operation: str, x: Tensor, scale: Scale, zero_point: ZeroPoint, axis: int | None, stored: str,
    block_size: int | None,
) -> tuple[Any, Any]:  # fmt: skip
    """Functions of the indices: the scale in a dtype, and the zero point (an int or an integer value)."""
    vectors = [p for p in (scale, zero_point) if isinstance(p, Tensor)]
    if block_size is not None:
        return _blocked(operation, x, scale, zero_point, axis, stored, block_size)
    if vectors and axis is None and any(v.ndim for v in vectors):
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
        if not isinstance(zero_point, Tensor):
            return integer(zero_point)
        return zero_point[i[position] if zero_point.ndim else ()]

    if isinstance(zero_point, Tensor):
        if zero_point.ndim:
            require_vector(zero_point, extent, operation, "zero_point", of)
        _check_zeros(operation, zero_point, stored)
    else:
        _zero(operation, zero_point, stored)
    return (lambda i, dtype: scale_at(i[position] if axis is not None else None, dtype)), zero_at


def _check_zeros(operation: str, zeros: Tensor, stored: str) -> None:
    stored = stored if is_float(stored) else DTYPES[stored].register
    if zeros.dtype not in ("int32", stored):
        expected = "int32" if stored == "int32" else f"int32 or {stored}"
        raise DtypeError(f"{operation}: zero_point {zeros.label} has dtype {zeros.dtype}; expected {expected}")


def _blocked(
    operation: str, x: Tensor, scale: Any, zero_point: Any, axis: int | None, stored: str, block_size: Any
) -> tuple[Any, Any]:
    """As `_parameters`, of a scale for each block of elements along the axis."""
    size = integer(block_size)
    if size is None or size < 1 or axis is None or not isinstance(scale, Tensor):
        raise ExpressionError(
            f"{operation}: block_size is {shown(block_size)}, axis {shown(axis)} and scale {shown(scale)}; expected an "
            "integer of at least 1, an axis and a tensor"
        )
    position = axis_of(axis, x, operation)
    shape = tuple(-(-n // size) if d == position else n for d, n in enumerate(x.shape))
    require_float(scale, operation)
    for one in (scale, zero_point):
        if isinstance(one, Tensor) and one.shape != shape:
            raise ShapeError(f"{operation}: {one.label} has shape {one.shape}; expected {shape}, one for each block")
    place = lambda i: tuple(at // size if d == position else at for d, at in enumerate(i))
    if isinstance(zero_point, Tensor):
        _check_zeros(operation, zero_point, stored)
        return (lambda i, dtype: rg.cast(scale[place(i)], dtype)), lambda i: zero_point[place(i)]
    zero = _zero(operation, zero_point, stored)
    return (lambda i, dtype: rg.cast(scale[place(i)], dtype)), lambda i: zero
