"""Reductions over any axes of a tensor: `dim` is one axis, several, or None for all; `keepdim` leaves them
with extent 1."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import ITEMSIZE, accumulator_dtype, dtype_name, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Axes,
    Number,
    as_dtype,
    axes_of,
    count_of,
    floats,
    integer,
    number,
    require_elements,
    require_float,
    require_tensor,
    with_axes,
)
from rollergen.expr.operators.elementwise import maximum, minimum
from rollergen.expr.positions import LAST_PLACE, better_of, worst

Dims = int | Sequence[int] | None


def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, acc: Any = None,
        name: str | None = None) -> Tensor:  # fmt: skip
    """Sum over one axis, several, or (None) all; `keepdim` leaves them with extent 1.

    Elements are converted to `dtype` first; integers and conditions are summed as int64 where it is None.

    >>> import rollergen as rg
    >>> rg.ops.sum(rg.tensor("x", (2, 3, 4)), dim=(0, 2)).shape
    (3,)
    """
    x, wanted = summed(input, dtype, "sum")
    wide = acc or accumulator_dtype(wanted)
    return reduction("sum", lambda v, r: rg.sum(v, axis=r, acc=wide, dtype=wanted), x, dim, keepdim, name)


def prod(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, acc: Any = None,
         name: str | None = None) -> Tensor:  # fmt: skip
    """Product over `dim`, with the arguments and dtypes of `sum`.

    >>> import rollergen as rg
    >>> rg.ops.prod(rg.tensor("x", (2, 2)), dim=0).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([4., 6.])
    """
    x, wanted = summed(input, dtype, "prod")
    wide = acc or accumulator_dtype(wanted)
    return reduction("prod", lambda v, r: rg.prod(v, axis=r, acc=wide, dtype=wanted), x, dim, keepdim, name)


class Extreme(NamedTuple):
    """The largest or smallest elements along an axis, and their positions."""

    values: Tensor
    indices: Tensor


def max(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None,
        name: str | None = None) -> Tensor | Extreme:  # fmt: skip
    """Largest element of all; with `dim`, a pair (values, indices) along it; with another tensor, `maximum`.

    `amax` gives the values alone, over several axes too.

    >>> import rollergen as rg
    >>> rg.ops.max(rg.tensor("x", (2, 2))).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array(4.)
    >>> rg.ops.max(rg.tensor("x", (2, 3)), 1).indices.evaluate([[1.0, 7.0, 3.0], [5.0, 5.0, 4.0]])
    array([1, 0])
    """
    return _extreme("max", (amax, argmax, maximum), input, dim, keepdim, other, name)


def min(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None,
        name: str | None = None) -> Tensor | Extreme:  # fmt: skip
    """Smallest element of all; with `dim`, a pair (values, indices) along it; with another tensor, `minimum`.

    >>> import rollergen as rg
    >>> rg.ops.min(rg.tensor("x", (2, 2))).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array(1.)
    """
    return _extreme("min", (amin, argmin, minimum), input, dim, keepdim, other, name)


def amax(input: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Largest element over `dim`, in the dtype of `input`; NaN if any is.  `dim` and `keepdim` are those of `sum`.

    >>> import rollergen as rg
    >>> rg.ops.amax(rg.tensor("x", (2, 2)), dim=-1).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([2., 4.])
    """
    return _amongst("amax", rg.max, input, dim, keepdim, name)


def amin(input: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Smallest element over `dim`, in the dtype of `input`; NaN if any is.  `dim` and `keepdim` are those of `sum`.

    >>> import rollergen as rg
    >>> rg.ops.amin(rg.tensor("x", (2, 2)), dim=-1).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([1., 3.])
    """
    return _amongst("amin", rg.min, input, dim, keepdim, name)


def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None,
         name: str | None = None) -> Tensor:  # fmt: skip
    """Arithmetic mean of floating values over `dim`, with the arguments of `sum`.

    Of narrow dtypes the sum is divided before it is rounded.

    >>> import rollergen as rg
    >>> rg.ops.mean(rg.tensor("x", (2, 2)), dim=1).evaluate([[1.0, 2.0], [4.0, 6.0]])
    array([1.5, 5. ])
    """
    require_tensor(input, "mean")
    x = input if dtype is None else as_dtype(input, dtype_name(dtype, "rg.ops.mean's dtype"))
    require_float(x, "mean")
    count, wide = count_of(x, dim, "mean"), accumulator_dtype(x.dtype)

    def element(v: Any, r: Any) -> Any:
        return rg.cast(rg.sum(v, axis=r, dtype=wide) / count, x.dtype)

    return reduction("mean", element, x, dim, keepdim, name)


def var(
    input: Tensor, dim: Dims | bool = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Variance of floating values over `dim`: squared distances from the mean, summed, over count - correction.

    The mean is found from the distances from the first element, which have digits to spare: a mean of values around
    10^4 is rounded to .001, whose square would be the result's error. What that rounding loses is taken out again.
    Where values lie further apart than the accumulator's largest number (3.4e38) the result is NaN (NumPy: inf).

    `correction` 1 is the unbiased estimate, 0 the population's variance (NumPy's); `unbiased` is its older name.

    >>> import rollergen as rg
    >>> rg.ops.var(rg.tensor("x", (2, 2)), dim=1).evaluate([[1.0, 3.0], [4.0, 4.0]])
    array([2., 0.])

    Where `correction` leaves nothing to divide by, the divisor is 0, and the result NaN or inf.
    """
    return _variance("var", input, dim, unbiased, correction, keepdim, lambda v: v, name)


def std(
    input: Tensor, dim: Dims | bool = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Standard deviation: the square root of `var`, with its arguments.

    >>> import rollergen as rg
    >>> rg.ops.std(rg.tensor("x", (2, 2)), dim=1, correction=0).evaluate([[1.0, 3.0], [4.0, 4.0]])
    array([1., 0.])
    """
    return _variance("std", input, dim, unbiased, correction, keepdim, rg.sqrt, name)


def argmax(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = "int64", name: str | None = None
) -> Tensor:
    """The index of the largest element over `dim`: the first of equal ones, or the first NaN.

    Over several axes (None: all) it is the row-major position among them.  `dtype` is int64 or int32.

    >>> import rollergen as rg
    >>> rg.ops.argmax(rg.tensor("x", (2, 3)), dim=1).evaluate([[1.0, 7.0, 3.0], [5.0, 5.0, 4.0]])
    array([1, 0])
    """
    return _position("argmax", input, dim, keepdim, dtype, name)


def argmin(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = "int64", name: str | None = None
) -> Tensor:
    """The index of the smallest element over `dim`; otherwise as `argmax`.

    >>> import rollergen as rg
    >>> rg.ops.argmin(rg.tensor("x", (2, 2))).evaluate([[4.0, 7.0], [1.0, 5.0]])
    array(2)
    """
    return _position("argmin", input, dim, keepdim, dtype, name)


def logsumexp(input: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """``log(sum(exp(input)))`` over `dim` without overflow: the largest element is subtracted first.

    Where that is infinite it is the result: a row of -inf gives -inf.  Integers count as float32.

    >>> import rollergen as rg
    >>> rg.ops.logsumexp(rg.tensor("x", (1, 1)), dim=1).evaluate([[1000.0]])
    array([1000.])
    """
    x = with_axes(floats(input, "logsumexp"))
    wide = accumulator_dtype(x.dtype)
    largest = reduction("logsumexp", lambda v, r: rg.max(v, axis=r, dtype=wide), x, dim, True, None)
    positions = axes_of(dim, x, "logsumexp") or tuple(range(x.ndim))

    def taken_out(at: tuple[Any, ...]) -> Any:
        top = largest[row_of(at, *positions)]
        return rg.select(rg.abs(top) < math.inf, top, 0)

    def element(v: Any, r: Any, at: tuple[Any, ...]) -> Any:
        total = rg.sum(rg.exp(rg.cast(v, wide) - taken_out(at)), axis=r, dtype=wide)
        return rg.cast(rg.log(total) + taken_out(row_of(at, *positions)), x.dtype)

    return reduction_at("logsumexp", element, x, dim, keepdim and input.ndim > 0, name)


def reduction(
    operation: str, function: Callable[[Any, Any], Any], x: Tensor, axis: Axes, keepdims: bool, name: str | None
) -> Tensor:
    """``function(element, reduce axes)`` for each element of what stays of `x`."""
    return reduction_at(operation, lambda v, r, at: function(v, r), x, axis, keepdims, name)


def reduction_at(
    operation: str, function: Callable[[Any, Any, Any], Any], x: Tensor, axis: Axes, keepdims: bool, name: str | None
) -> Tensor:
    """As `reduction`; `function` gets the indices of the element too."""
    require_tensor(x, operation)
    if not isinstance(keepdims, bool):
        raise ExpressionError(f"{operation}: keepdim is {shown(keepdims)}; expected True or False")
    x, keepdims = with_axes(x), keepdims and x.ndim > 0
    positions = axes_of(axis, x, operation) or tuple(range(x.ndim))
    reduced = {d: rg.reduce_axis(f"k{n}" if len(positions) > 1 else "k", x.shape[d]) for n, d in enumerate(positions)}
    kept = [d for d in range(x.ndim) if keepdims or d not in reduced]

    def element(*i: Any) -> Any:
        by_axis = dict(zip(kept, i, strict=True)) | reduced
        at = tuple(by_axis[d] for d in range(x.ndim))
        return function(x[at], tuple(reduced.values()), at)

    return rg.compute(tuple(1 if d in reduced else x.shape[d] for d in kept), element, name)


def row_of(indices: Sequence[Any], *axes: int) -> tuple[Any, ...]:
    """`indices` with those along `axes` 0: where a reduction that keeps its axes stands, and the first of its terms."""
    return tuple(0 if d in axes else index for d, index in enumerate(indices))


def summed(x: Tensor, dtype: Any, operation: str) -> tuple[Tensor, str]:
    """`x` to be summed, and the dtype of the result."""
    require_tensor(x, operation)
    if dtype is not None:
        wanted = dtype_name(dtype, f"rg.ops.{operation}'s dtype")
        exact = is_float(wanted) == is_float(x.dtype) and ITEMSIZE[wanted] >= ITEMSIZE[x.dtype] and x.dtype != "bool"
        return (x if exact else as_dtype(x, wanted)), wanted
    if is_float(x.dtype):
        return x, x.dtype
    return (as_dtype(x, "int32") if x.dtype == "bool" else x), "uint64" if x.dtype == "uint64" else "int64"


def _amongst(operation: str, function: Any, x: Tensor, dim: Dims, keepdim: bool, name: str | None) -> Tensor:
    require_elements(x, dim, operation)
    narrow = x.dtype != "bool"
    element = lambda v, r: rg.cast(
        function(v if narrow else rg.cast(v, "int32"), axis=r, dtype=x.dtype if narrow else "int32"), x.dtype
    )
    return reduction(operation, element, x, dim, keepdim, name)


def _extreme(
    operation: str, functions: tuple[Any, Any, Any], x: Tensor, dim: Any, keepdim: bool, other: Any, name: str | None
) -> Tensor | Extreme:
    values, indices, of_two = functions
    if isinstance(dim, Tensor) or other is not None:
        return of_two(x, dim if other is None else other, name=name)  # type: ignore[no-any-return]
    if dim is None and keepdim is False:
        return values(x, name=name)  # type: ignore[no-any-return]
    require_tensor(x, operation)
    if integer(dim) is None:
        raise ExpressionError(
            f"{operation}: dim is {shown(dim)}; expected one axis, whose values and positions come as a pair; "
            f"rg.ops.a{operation} takes several axes"
        )
    return Extreme(values(x, dim, keepdim, name=name), indices(x, dim, keepdim))


def _variance(
    operation: str, x: Tensor, dim: Any, unbiased: bool | None, correction: Number | None, keepdim: bool,
    finish: Callable[[Any], Any], name: str | None,
) -> Tensor:  # fmt: skip
    require_float(x, operation)
    if isinstance(dim, bool) and unbiased is None:
        dim, unbiased = None, dim
    if unbiased is not None and (not isinstance(unbiased, bool) or correction is not None):
        raise ExpressionError(
            f"{operation}: unbiased is {shown(unbiased)}; expected True or False, or correction= by name"
        )
    lost = number(int(unbiased is not False) if correction is None else correction, operation, "correction")
    keepdim = keepdim and x.ndim > 0
    x = with_axes(x)
    count, wide = count_of(x, dim, operation), accumulator_dtype(x.dtype)
    if not count:
        return reduction(operation, lambda v, r: rg.cast(rg.sum(v, axis=r) / 0, x.dtype), x, dim, keepdim, name)
    positions = axes_of(dim, x, operation) or tuple(range(x.ndim))

    def from_first(*i: Any) -> Any:
        return rg.cast(x[i], wide) - rg.cast(x[row_of(i, *positions)], wide)

    moved = rg.compute(x.shape, from_first)
    average = reduction(operation, lambda v, r: rg.sum(v, axis=r) / count, moved, dim, True, None)

    def element(v: Any, r: Any, at: tuple[Any, ...]) -> Any:
        row = row_of(at, *positions)
        first = rg.cast(x[row], wide)
        middle = first + average[row]
        # What the middle lost in rounding: sum((v - mean)^2) = sum((v - middle)^2) - count * rest^2.
        rest = (first - middle) + average[row]
        distance = rg.cast(v, wide) - middle
        total = rg.sum(distance * distance, axis=r) - count * (rest * rest)
        return rg.cast(finish(total / builtins.max(count - lost, 0)), x.dtype)

    return reduction_at(operation, element, x, dim, keepdim, name)


def _position(operation: str, x: Tensor, dim: Dims, keepdim: bool, dtype: Any, name: str | None) -> Tensor:
    require_elements(x, dim, operation)
    wanted = dtype_name(dtype, f"rg.ops.{operation}'s dtype")
    if wanted not in ("int32", "int64"):
        raise DtypeError(f"{operation}: dtype is {shown(dtype)}; expected int64 or int32")
    if count_of(x, dim, operation) > LAST_PLACE:
        raise ShapeError(f"{operation}: {count_of(x, dim, operation)} elements; expected at most {LAST_PLACE}")
    sign = 1 if operation == "argmax" else -1
    ordered = "int32" if x.dtype == "bool" else x.dtype
    better = better_of(is_float(x.dtype), sign)
    least = worst(accumulator_dtype(ordered), sign)

    def element(v: Any, r: tuple[Any, ...]) -> Any:
        place: Any = 0
        for one in r:
            place = place * one.extent + one
        return rg.cast(rg.reduce(better, (least, LAST_PLACE), (rg.cast(v, ordered), place), axis=r)[1], wanted)

    return reduction(operation, element, x, dim, keepdim, name)
