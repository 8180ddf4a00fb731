"""Prefixes along an axis: running sums, products, extremes, logarithms of sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import rollergen.expr.language as rg
from rollergen.expr.dtypes import accumulator_dtype, bounds, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import as_dtype, axis_of, flag, require_float, require_tensor
from rollergen.expr.operators.reductions import summed, with_axes
from rollergen.expr.reductions import user_combiner, widen
from rollergen.expr.scans import bound, element_at, scanned
from rollergen.expr.values import Combiner, named_combiner


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, exclusive: bool = False, reverse: bool = False,
           name: str | None = None) -> Tensor:  # fmt: skip
    """The sum of each element and all before it along `dim`.

    Dtypes are those of `sum`.  `exclusive` leaves the element itself out, `reverse` sums from the end (as ONNX).

    >>> import rollergen as rg
    >>> rg.ops.cumsum(rg.tensor("x", (4,)), 0).evaluate([1.0, 2.0, 3.0, 4.0])
    array([ 1.,  3.,  6., 10.])
    """
    return _accumulated("cumsum", "sum", input, dim, dtype, (exclusive, reverse), name)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, exclusive: bool = False, reverse: bool = False,
            name: str | None = None) -> Tensor:  # fmt: skip
    """The product of each element and all before it along `dim`, as `cumsum`.

    >>> import rollergen as rg
    >>> rg.ops.cumprod(rg.tensor("x", (4,)), 0).evaluate([1.0, 2.0, 3.0, 4.0])
    array([ 1.,  2.,  6., 24.])
    """
    return _accumulated("cumprod", "prod", input, dim, dtype, (exclusive, reverse), name)


class Running(NamedTuple):
    """The largest or smallest elements so far along an axis, and their positions."""

    values: Tensor
    indices: Tensor


def cummax(input: Tensor, dim: int, *, name: str | None = None) -> Running:
    """(values, indices int64) of the largest element so far along `dim`.

    NaN counts as the largest.  Of equal elements the last has the index.

    >>> import rollergen as rg
    >>> rg.ops.cummax(rg.tensor("x", (4,)), 0).indices.evaluate([1.0, 3.0, 2.0, 3.0])
    array([0, 1, 1, 3])
    """
    return _extremes("cummax", input, dim, 1, name)


def cummin(input: Tensor, dim: int, *, name: str | None = None) -> Running:
    """(values, indices int64) of the smallest element so far along `dim`.

    NaN counts as the smallest.  Of equal elements the last has the index.

    >>> import rollergen as rg
    >>> rg.ops.cummin(rg.tensor("x", (4,)), 0).values.evaluate([3.0, 1.0, 2.0, 1.0])
    array([3., 1., 1., 1.])
    """
    return _extremes("cummin", input, dim, -1, name)


def logcumsumexp(input: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """The logarithm of the sum of exponentials of each element and all before it along `dim`; floating values.

    >>> import rollergen as rg
    >>> rg.ops.logcumsumexp(rg.tensor("x", (2,)), 0).evaluate([0.0, 0.0]).round(4)
    array([0.    , 0.6931])
    """
    require_float(input, "logcumsumexp")
    wide = accumulator_dtype(input.dtype)

    def bodies(x: Tensor, at: int) -> Sequence[Any]:
        return widen(element_at(x, at), wide), rg.cast(rg.as_expr(1.0, "one"), wide)

    combiner = user_combiner(_online, (-math.inf, 0.0), (wide, wide), True)
    finish = lambda largest, total: largest + rg.log(total)
    return _scan("logcumsumexp", combiner, bodies, input, dim, (input.dtype,), name, finish=finish)[0]


def _online(a: Any, b: Any) -> Any:
    """Of two (largest, sum of exponentials of the differences to it): the smaller one's sum shrinks."""
    shrink = rg.exp(-rg.abs(rg.select(a[0] == b[0], 0.0, a[0] - b[0])))
    total = rg.select(a[0] >= b[0], a[1] + b[1] * shrink, b[1] + a[1] * shrink)
    return rg.maximum(a[0], b[0]), total


def _accumulated(
    operation: str, combiner: str, input: Tensor, dim: int, dtype: Any, ways: tuple[bool, bool], name: str | None
) -> Tensor:
    x, wanted = summed(input, dtype, operation)
    wide = accumulator_dtype(wanted)
    exclusive, reverse = (flag(way, operation, word) for way, word in zip(ways, ("exclusive", "reverse"), strict=True))
    bodies = lambda x, at: (widen(element_at(x, at, reverse), wide),)
    named = named_combiner(combiner, wide)
    return _scan(operation, named, bodies, x, dim, (wanted,), name, exclusive=exclusive, reverse=reverse)[0]


def _extremes(operation: str, input: Tensor, dim: int, sign: int, name: str | None) -> Running:
    require_tensor(input, operation)
    x = as_dtype(input, "int32") if input.dtype == "bool" else input
    wide = accumulator_dtype(x.dtype)

    def later(a: Any, b: Any) -> Any:
        """The later one where it is as good, or NaN; the earlier one where that alone is NaN."""
        good = b[0] >= a[0] if sign > 0 else b[0] <= a[0]
        if is_float(wide):
            good = (good & (a[0] == a[0])) | (b[0] != b[0])
        return rg.select(good, b[0], a[0]), rg.select(good, b[1], a[1])

    worst = bounds(wide)[0 if sign > 0 else 1]
    combiner = user_combiner(later, (worst, 0), (wide, "int32"), True)

    def bodies(x: Tensor, at: int) -> Sequence[Any]:
        return widen(element_at(x, at), wide), rg.cast(bound(x.shape[at], False), "int32")

    return Running(*_scan(operation, combiner, bodies, x, dim, (input.dtype, "int64"), name))


def _scan(
    operation: str, combiner: Combiner, bodies: Callable[[Tensor, int], Sequence[Any]], input: Tensor, dim: int,
    dtypes: Sequence[str], name: str | None, finish: Callable[..., Any] | None = None, **ways: bool,
) -> list[Tensor]:  # fmt: skip
    """The components of the scan of `input` along `dim`, each in its dtype; a tensor without axes has one element."""
    require_tensor(input, operation)
    x = with_axes(input)
    at = axis_of(dim, x, operation)
    made = scanned(combiner, bodies(x, at), x.shape, at, **ways)
    names = [name, *[None] * len(dtypes)]
    if input.ndim:
        return [made(component, dtype, finish, names[component]) for component, dtype in enumerate(dtypes)]
    alone = [made(component, dtype, finish) for component, dtype in enumerate(dtypes)]
    return [rg.compute((), lambda one=one: one[0], own) for one, own in zip(alone, names, strict=False)]
