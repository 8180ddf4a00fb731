"""Reductions over any axes of a tensor: `axis` is one axis, several, or None for all; `keepdims` leaves them
with extent 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, is_float, is_integer
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Axes, axes_of, axis_of, integer, require_float, require_tensor

_LAST_INDEX = 2**31 - 1


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False, *, acc: Any = None, dtype: Any = None,
        name: str | None = None) -> Tensor:  # fmt: skip
    """Sum over one axis, several, or (None) all; `keepdims` leaves them with extent 1.

    >>> import rollergen as rg
    >>> rg.ops.sum(rg.tensor("x", (2, 3, 4)), axis=(0, 2)).shape
    (3,)
    """
    return reduction("sum", lambda v, r: rg.sum(v, axis=r, acc=acc, dtype=dtype), x, axis, keepdims, name)


def prod(x: Tensor, axis: Axes = None, keepdims: bool = False, *, acc: Any = None, dtype: Any = None,
         name: str | None = None) -> Tensor:  # fmt: skip
    """Product over `axis`, as `sum`.

    >>> import rollergen as rg
    >>> rg.ops.prod(rg.tensor("x", (2, 2)), axis=0).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([4., 6.])
    """
    return reduction("prod", lambda v, r: rg.prod(v, axis=r, acc=acc, dtype=dtype), x, axis, keepdims, name)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Largest element over `axis`, as `sum`, of the dtype of `x`; NaN if any is.

    >>> import rollergen as rg
    >>> rg.ops.max(rg.tensor("x", (2, 2)), axis=-1).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([2., 4.])
    """
    return reduction("max", lambda v, r: rg.max(v, axis=r, dtype=v.dtype), x, axis, keepdims, name)


def min(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Smallest element over `axis`, as `sum`, of the dtype of `x`; NaN if any is.

    >>> import rollergen as rg
    >>> rg.ops.min(rg.tensor("x", (2, 2)), axis=-1).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([1., 3.])
    """
    return reduction("min", lambda v, r: rg.min(v, axis=r, dtype=v.dtype), x, axis, keepdims, name)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Arithmetic mean of floating values over `axis`, as `sum`; divided before rounding to a narrow dtype.

    >>> import rollergen as rg
    >>> rg.ops.mean(rg.tensor("x", (2, 2)), axis=1).evaluate([[1.0, 2.0], [4.0, 6.0]])
    array([1.5, 5. ])
    """
    require_float(x, "mean")
    count, wide = _count(x, axis, "mean"), accumulator_dtype(x.dtype)

    def element(v: Any, r: Any) -> Any:
        return rg.cast(rg.sum(v, axis=r, dtype=wide) / count, x.dtype)

    return reduction("mean", element, x, axis, keepdims, name)


def var(
    x: Tensor, axis: Axes = None, correction: int = 1, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """Variance of floating values over `axis`: squared distances from the mean, summed, over count - correction.

    The mean is that of the distances from the first element, which have digits to spare: a mean of values around 10^4
    is rounded to .001, whose square would be the result's error.

    `correction` 1 is the unbiased estimate (PyTorch's default), 0 the population's variance (NumPy's).

    >>> import rollergen as rg
    >>> rg.ops.var(rg.tensor("x", (2, 2)), axis=1).evaluate([[1.0, 3.0], [4.0, 4.0]])
    array([2., 0.])

    Raises ShapeError where `correction` leaves nothing to divide by.
    """
    return _variance("var", x, axis, correction, keepdims, lambda v: v, name)


def std(
    x: Tensor, axis: Axes = None, correction: int = 1, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """Standard deviation: the square root of `var`, with its arguments.

    >>> import rollergen as rg
    >>> rg.ops.std(rg.tensor("x", (2, 2)), axis=1, correction=0).evaluate([[1.0, 3.0], [4.0, 4.0]])
    array([1., 0.])
    """
    return _variance("std", x, axis, correction, keepdims, rg.sqrt, name)


def argmax(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dtype: Any = "int64", name: str | None = None
) -> Tensor:
    """Where the largest element over `axis` stands: the first of equals, the first NaN if there is one.

    Over several axes (None: all) it is the row-major position among them.  `dtype` is int64 or int32.

    >>> import rollergen as rg
    >>> rg.ops.argmax(rg.tensor("x", (2, 3)), axis=1).evaluate([[1.0, 7.0, 3.0], [5.0, 5.0, 4.0]])
    array([1, 0])
    """
    return _position("argmax", x, axis, keepdims, dtype, name)


def argmin(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dtype: Any = "int64", name: str | None = None
) -> Tensor:
    """Where the smallest element over `axis` stands; otherwise as `argmax`.

    >>> import rollergen as rg
    >>> rg.ops.argmin(rg.tensor("x", (2, 2))).evaluate([[4.0, 7.0], [1.0, 5.0]])
    array(2)
    """
    return _position("argmin", x, axis, keepdims, dtype, name)


def logsumexp(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """``log(sum(exp(x)))`` over `axis` without overflow: the largest element is taken out first.

    Infinite maxima give themselves (an empty row of -inf gives -inf).

    >>> import rollergen as rg
    >>> rg.ops.logsumexp(rg.tensor("x", (1, 1)), axis=1).evaluate([[1000.0]])
    array([1000.])
    """
    require_float(x, "logsumexp")
    wide = accumulator_dtype(x.dtype)
    largest = reduction("logsumexp", lambda v, r: rg.max(v, axis=r, dtype=wide), x, axis, True, None)
    positions = axes_of(axis, x, "logsumexp")

    def taken_out(at: tuple[Any, ...]) -> Any:
        top = largest[row_of(at, *positions)]
        return rg.select(rg.abs(top) < math.inf, top, 0)

    def element(v: Any, r: Any, at: tuple[Any, ...]) -> Any:
        total = rg.sum(rg.exp(rg.cast(v, wide) - taken_out(at)), axis=r, dtype=wide)
        return rg.cast(rg.log(total) + taken_out(row_of(at, *positions)), x.dtype)

    return reduction_at("logsumexp", element, x, axis, keepdims, name)


def cumsum(x: Tensor, axis: int = 0, **_: Any) -> NoReturn:
    """Refused: ExpressionError with advice."""
    _refuse_cumulative("cumsum", "sum", "0", x, axis)


def cumprod(x: Tensor, axis: int = 0, **_: Any) -> NoReturn:
    """Refused: ExpressionError with advice."""
    _refuse_cumulative("cumprod", "prod", "1", x, axis)


def _refuse_cumulative(operation: str, reduction_name: str, identity: str, x: Tensor, axis: int) -> NoReturn:
    require_tensor(x, operation)
    extent = x.shape[axis_of(axis, x, operation)]
    raise ExpressionError(
        f"{operation}(axis={axis}) of {x.label} {x.shape} is not offered: each output continues the one before it, "
        "which no tile can do on its own; expected a reduction over whole axes. For short axes write the definition, "
        f'k = rg.reduce_axis("k", {extent}) and rg.compute(..., lambda i: '
        f"rg.{reduction_name}(rg.select(k <= i, x[k], {identity}), axis=k)), which takes {extent} steps for each output"
    )


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
        raise ExpressionError(f"{operation}: keepdims is {shown(keepdims)}; expected True or False")
    positions = axes_of(axis, x, operation)
    if not positions:
        raise ShapeError(f"{operation}: {x.label} has no axis to reduce; expected at least one")
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


def _count(x: Tensor, axis: Axes, operation: str) -> int:
    return math.prod(x.shape[position] for position in axes_of(axis, x, operation))


def _variance(
    operation: str, x: Tensor, axis: Axes, correction: int, keepdims: bool, finish: Callable[[Any], Any],
    name: str | None,
) -> Tensor:  # fmt: skip
    require_float(x, operation)
    lost = integer(correction)
    if lost is None:
        raise ExpressionError(f"{operation}: correction is {shown(correction)}; expected an integer, 1 or 0")
    count, wide = _count(x, axis, operation), accumulator_dtype(x.dtype)
    if count <= lost:
        raise ShapeError(f"{operation}: correction is {correction}; expected less than the {count} elements reduced")
    positions = axes_of(axis, x, operation)

    def from_first(*i: Any) -> Any:
        return rg.cast(x[i], wide) - rg.cast(x[row_of(i, *positions)], wide)

    moved = rg.compute(x.shape, from_first)
    average = reduction(operation, lambda v, r: rg.sum(v, axis=r) / count, moved, axis, True, None)

    def element(v: Any, r: Any, at: tuple[Any, ...]) -> Any:
        distance = v - average[row_of(at, *positions)]
        return rg.cast(finish(rg.sum(distance * distance, axis=r) / (count - lost)), x.dtype)

    return reduction_at(operation, element, moved, axis, keepdims, name)


def _position(operation: str, x: Tensor, axis: Axes, keepdims: bool, dtype: Any, name: str | None) -> Tensor:
    require_tensor(x, operation)
    wanted = dtype_name(dtype, f"rg.ops.{operation}'s dtype")
    if wanted not in ("int32", "int64"):
        raise DtypeError(f"{operation}: dtype is {shown(dtype)}; expected int64 or int32")
    if _count(x, axis, operation) > _LAST_INDEX:
        raise ShapeError(f"{operation}: {_count(x, axis, operation)} elements; expected at most {_LAST_INDEX}")
    sign = 1 if operation == "argmax" else -1
    better = _better(is_float(x.dtype), sign)
    worst = _worst(accumulator_dtype(x.dtype), sign)

    def element(v: Any, r: tuple[Any, ...]) -> Any:
        place: Any = 0
        for one in r:
            place = place * one.extent + one
        return rg.cast(rg.reduce(better, (worst, _LAST_INDEX), (v, place), axis=r)[1], wanted)

    return reduction(operation, element, x, axis, keepdims, name)


def _better(floating: bool, sign: int) -> Callable[[Any, Any], Any]:
    """The better of two (element, place): NaN before everything, then size, then the smaller place."""

    def better(a: Any, b: Any) -> Any:
        first = a[0] > b[0] if sign > 0 else a[0] < b[0]
        equal = a[0] == b[0]
        if floating:
            lost_a, lost_b = a[0] != a[0], b[0] != b[0]
            first = first | (lost_a & ~lost_b)
            equal = equal | (lost_a & lost_b)
        first = first | (equal & (a[1] < b[1]))
        return rg.select(first, a[0], b[0]), rg.select(first, a[1], b[1])

    return better


def _worst(dtype: str, sign: int) -> float | int:
    if not is_integer(dtype):
        return -sign * math.inf
    half = {"int32": 2**31, "int64": 2**63}[dtype]
    return -half if sign > 0 else half - 1
