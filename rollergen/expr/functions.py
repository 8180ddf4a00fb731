"""The functions of scalars that stand inside `rg.compute`, beside Python's operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from rollergen.errors import DtypeError, ExpressionError, shown
from rollergen.expr.dtypes import PACKED, dtype_name, finite_bounds, is_float, is_integer, largest_float
from rollergen.expr.primitives import FUNCTIONS, PRIMITIVES
from rollergen.expr.scalars import (
    NUMPY_FUNCTIONS,
    Expr,
    alike,
    as_expr,
    binary,
    is_scalar,
    literal,
    merge_axes,
    python_scalar,
)
from rollergen.expr.show import show
from rollergen.expr.values import Cast, Select, Unary
from rollergen.hal.dtypes import DTYPES

_DIVISIONS = {"floor": ("floor_divide", "remainder"), "trunc": ("trunc_divide", "trunc_remainder")}


def divide(a: Any, b: Any, rounding: str) -> Expr:
    """The whole quotient of two integers: `rounding` "floor" as Python's ``//``, "trunc" (towards 0) as C's and ONNX'.

    A division by 0 gives 0, as NumPy's; that of the least integer by -1 wraps around.

    >>> import rollergen as rg
    >>> A = rg.tensor("A", (2,), "int32")
    >>> rg.compute((2,), lambda i: rg.divide(A[i], 4, "trunc")).evaluate([9, -9])
    array([ 2, -2])

    Raises DtypeError for other dtypes than integers, ExpressionError for another rounding.
    """
    return binary(_division("divide", rounding)[0], a, b)


def remainder(a: Any, b: Any, rounding: str) -> Expr:
    """The remainder of `divide` with the same `rounding`: of "floor" with the sign of b, of "trunc" with that of a.

    Of floats too: "trunc" is C's ``fmod``, exactly, "floor" Python's ``%``; division by 0 gives NaN.

    >>> import rollergen as rg
    >>> A = rg.tensor("A", (2,), "int32")
    >>> rg.compute((2,), lambda i: rg.remainder(A[i], 4, "floor")).evaluate([9, -9])
    array([1, 3])
    """
    whole = _division("remainder", rounding)[1]
    x, y = alike("remainder", a, b)
    if not is_float(x.dtype):
        return binary(whole, x, y)
    rest = binary("fmod", x, y)
    return rest if rounding == "trunc" else select((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), rest + y, rest)


def _division(function: str, rounding: Any) -> tuple[str, str]:
    if rounding not in _DIVISIONS:
        raise ExpressionError(f'rg.{function}: rounding is {shown(rounding)}; expected "floor" or "trunc"')
    return _DIVISIONS[rounding]


def unary(op: str, x: Any) -> Expr:
    """One of `primitives.FUNCTIONS`."""
    e = as_expr(x, op)
    if not is_float(e.dtype):
        raise DtypeError(f'{op} of {e.dtype} values; expected a floating dtype, e.g. rg.cast(x, "float32")')
    return Expr(Unary(op, e.value, e.dtype), e.axes)


def select(condition: Any, a: Any, b: Any) -> Expr:
    """``a`` where `condition` holds, else ``b``; only the chosen side is read.

    >>> import rollergen as rg
    >>> A = rg.tensor("A", (4,))
    >>> rg.compute((4,), lambda i: rg.select(i >= 1, A[i - 1], 0.0)).evaluate([1., 2., 3., 4.])
    array([0., 1., 2., 3.])
    """
    if isinstance(condition, bool):
        raise ExpressionError(
            f"rg.select's condition is the Python bool {condition}: it was decided while the expression was built; "
            "expected a condition on indices or values, e.g. i >= 1"
        )
    cond = as_expr(condition, "rg.select(condition, a, b)'s condition")
    if cond.dtype != "bool":
        raise ExpressionError(
            f"rg.select(condition, a, b): the condition is the {cond.dtype} value ({show(cond.value)}); "
            "expected a condition, e.g. i >= 1, as first argument"
        )
    x, y = alike("rg.select", a, b)
    return Expr(Select(cond.value, x.value, y.value, x.dtype), merge_axes(cond.axes, x.axes, y.axes))


def cast(x: Any, dtype: Any, overflow: str | None = None) -> Expr:
    """`x` converted to `dtype` (towards zero from floating to integer).  Accepts indices.

    `overflow` says what numbers beyond the dtype's range become.  None: integers wrap around, floats are infinite (NaN
    in a dtype without infinities), negative floats made unsigned integers wrap around, and other floats converted
    to integers are undefined.  "wrap": such floats wrap around too, up to 2**63.  "saturate": the nearest that the
    dtype holds; NaN is 0 as an integer. int4 and uint4 give int8 and uint8 with their numbers.

    >>> import rollergen as rg
    >>> A = rg.tensor("A", (3,))
    >>> rg.compute((3,), lambda i: rg.cast(A[i], "uint8", "saturate")).evaluate([-7.5, 9.5, 300.0])
    array([  0,   9, 255])
    """
    if isinstance(x, str) and isinstance(dtype, Expr):
        raise ExpressionError(f"rg.cast(x, dtype): the arguments look swapped: rg.cast(x, {x!r})")
    name = dtype_name(dtype, "rg.cast's dtype", PACKED)
    precise = name == "float64" and is_scalar(x) and isinstance(python_scalar(x), float)
    e = literal(python_scalar(x), name, "rg.cast") if precise else as_expr(x, "rg.cast")
    if overflow is not None:
        e = _limited(e, name, overflow)
    if name in PACKED:
        return _four_bits(e, name)
    if overflow is None and is_float(e.dtype) and is_integer(name) and not DTYPES[name].signed:
        return _unsigned(e, name)
    return _converted(e, name)


def _four_bits(x: Expr, dtype: str) -> Expr:
    """The number that the lowest four bits of `x` are."""
    row = DTYPES[dtype]
    low = cast(x, row.register) & 15
    return (low ^ 8) - 8 if row.signed else low


def _converted(x: Expr, dtype: str) -> Expr:
    return x if x.dtype == dtype else Expr(Cast(x.value, dtype), x.axes)


def _unsigned(x: Expr, dtype: str) -> Expr:
    """A float as an unsigned integer, negative ones through a signed one, which C leaves open and GPUs take for 0."""
    row = DTYPES[dtype]
    if row.bits < 32:
        return _converted(_converted(x, "int32"), dtype)
    return select(x < 0.0, _converted(_converted(x, f"int{row.bits}"), dtype), _converted(x, dtype))


def _limited(x: Expr, dtype: str, overflow: str) -> Expr:
    """`x` so that its conversion does with what is beyond the range of `dtype` as `overflow` says."""
    if overflow not in ("saturate", "wrap"):
        raise ExpressionError(f'rg.cast: overflow is {shown(overflow)}; expected None, "saturate" or "wrap"')
    if "bool" in (x.dtype, dtype):
        return x
    if overflow == "wrap":
        return cast(x, "int64") if is_float(x.dtype) and is_integer(dtype) else x
    low, high = finite_bounds(dtype)
    least, most = finite_bounds(x.dtype)
    if is_integer(x.dtype):
        x = x if least >= low else maximum(x, low)
        return x if most <= high else minimum(x, high)
    if is_float(dtype):
        return x if most <= high else minimum(maximum(x, low), high)
    number = select(x == x, x, 0.0)
    held = largest_float(x.dtype, int(high))
    whole = _converted(minimum(maximum(number, float(max(low, least))), held), dtype)
    if least > low:  # an infinity is below
        whole = select(number < least, literal(int(low), dtype, "rg.cast"), whole)
    return whole if held == high else select(number > held, literal(int(high), dtype, "rg.cast"), whole)


def atan2(a: Any, b: Any) -> Expr:
    """The angle of the point (b, a) from the first axis, in radians, from -pi to pi."""
    return binary("atan2", a, b)


def maximum(a: Any, b: Any) -> Expr:
    """The larger of two values of one dtype; NaN if either is NaN."""
    return binary("max", a, b)


def minimum(a: Any, b: Any) -> Expr:
    """The smaller of two values of one dtype; NaN if either is NaN."""
    return binary("min", a, b)


def absolute(x: Any) -> Expr:
    """``|x|`` of a number of any dtype."""
    return abs(as_expr(x, "abs"))


def function(name: str) -> Callable[[Any], Expr]:
    """The function of that name among `primitives.FUNCTIONS`."""

    def of(x: Any) -> Expr:
        return unary(name, x)

    of.__name__ = of.__qualname__ = name
    of.__doc__ = f"{PRIMITIVES[name].meaning} of a floating value.\n\nRaises DtypeError for other dtypes."
    return of


NUMPY_FUNCTIONS |= {
    **{name: function(name) for name in FUNCTIONS},
    "arcsin": function("asin"), "arccos": function("acos"), "arctan": function("atan"), "rint": function("round"),
    "arctan2": atan2, "maximum": maximum, "minimum": minimum, "absolute": absolute, "negative": operator.neg,
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "power": operator.pow,
    "left_shift": operator.lshift, "right_shift": operator.rshift, "invert": operator.inv,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip
