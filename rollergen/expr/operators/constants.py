"""Tensors of numbers that the expression itself fixes, and grids of them: they read nothing, or spread what they read.

What torch is told of storage (``layout``, ``device``, ``pin_memory``) and gradients is taken as it comes: an expression
lies nowhere, and `rg.build` is told the device that it runs on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Number, integer, integers, number, require_tensor


def full(
    size: Sequence[int], fill_value: Number, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A tensor of shape `size` whose elements are all `fill_value`.

    Without `dtype` a float gives float32, an integer int64, a bool bool.

    >>> import rollergen as rg
    >>> rg.ops.full((2, 3), 7).evaluate()
    array([[7, 7, 7],
           [7, 7, 7]])
    """
    shape = integers(size)
    if shape is None:
        raise ShapeError(f"full: size is {shown(size)}; expected integers")
    kind = _dtype(dtype, fill_value)
    value = fill_value if isinstance(fill_value, bool) else number(fill_value, "full", "fill_value")
    return rg.compute(shape, lambda *i: rg.cast(value, kind), name=name)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """1 where row and column of an `n` by `m` matrix are the same (`m` None: `n`), else 0; float32 without a dtype.

    >>> import rollergen as rg
    >>> rg.ops.eye(2, 3).evaluate()
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    shape = _count(n, "eye", "n"), _count(n if m is None else m, "eye", "m")
    kind = _dtype(dtype, 1.0)
    return rg.compute(shape, lambda i, j: rg.cast(rg.select(i == j, 1, 0), kind), name=name)


def arange(
    start: Number, end: Number | None = None, step: Number = 1, *,
    dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers from `start` to below `end`, `step` apart; with one number, from 0 to below it.

    Without `dtype` they are int64, or float32 where an argument is a float.

    >>> import rollergen as rg
    >>> rg.ops.arange(2, 9, 3).evaluate()
    array([2, 5, 8])

    Raises ExpressionError where `step` is 0 or leads away from `end`.
    """
    first, last = (0, start) if end is None else (start, end)
    low, high, by = (
        int(one) if isinstance(one, bool) else number(one, "arange", what)
        for one, what in ((first, "start"), (last, "end"), (step, "step"))
    )
    kind = _dtype(dtype, low + high + by)
    if kind == "int64":  # the others count the steps before they cut their ends
        low, high, by = int(low), int(high), int(by)
    if by == 0 or (high - low) / by < 0:
        way = "above" if high > low else "below" if high < low else "other than"
        raise ExpressionError(f"arange: step is {shown(step)}; expected one {way} 0 from {low} to {high}")
    count = int(-((low - high) // by)) if kind == "int64" else math.ceil((high - low) / by)
    if not is_float(kind):
        low, by = int(low), int(by)
    wide = accumulator_dtype(kind) if is_float(kind) else "int64" if kind in ("int64", "uint64") else "int32"
    return rg.compute((count,), lambda i: rg.cast(rg.cast(i, wide) * by + low, kind), name=name)


def linspace(
    start: Number | Tensor, end: Number | Tensor, steps: int, *,
    dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`steps` numbers from `start` to `end`, both among them, equally far apart; float32 without a dtype.

    Either end may be a tensor without axes.  Of an integer dtype they are computed in float64 and cut towards 0.

    >>> import rollergen as rg
    >>> rg.ops.linspace(0, 1, 5).evaluate()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])

    Raises ShapeError for a tensor with axes, and for negative `steps`.
    """
    count, kind = _count(steps, "linspace", "steps"), _dtype(dtype, 1.0)
    wide = accumulator_dtype(kind) if is_float(kind) else "float64"
    first, last = _end(start, "start", kind, wide), _end(end, "end", kind, wide)

    def element(i: Any) -> Any:
        low, high = first(), last()
        by = (high - low) / max(count - 1, 1)
        near, far = low + rg.cast(i, wide) * by, high - rg.cast(count - 1 - i, wide) * by
        return rg.cast(rg.select(i < max(count // 2, 1), near, far), kind)

    return rg.compute((count,), element, name=name)


def _end(value: Any, what: str, kind: str, wide: str) -> Callable[[], Any]:
    """The element of an end in the dtype that is computed in, as one of `kind`."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(f"linspace: {what} {value.label} has shape {value.shape}; expected a number, or no axes")
        return lambda: rg.cast(rg.cast(value[()], kind), wide)
    given = number(value, "linspace", what)
    return lambda: rg.cast(given if is_float(kind) else int(given), wide)


def meshgrid(*tensors: Tensor, indexing: str | None = None, name: str | None = None) -> tuple[Tensor, ...]:
    """One tensor for each vector: its elements along an axis of its own, repeated along the axes of the others.

    `indexing` "ij" (or None) has the axes in the order of the vectors; "xy" exchanges the first two.

    >>> import rollergen as rg
    >>> rg.ops.meshgrid(rg.tensor("a", (2,)), rg.tensor("b", (3,)))[0].evaluate(a=[1.0, 2.0])
    array([[1., 1., 1.],
           [2., 2., 2.]])

    Raises ShapeError for tensors of several axes.
    """
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if indexing not in (None, "ij", "xy"):
        raise ExpressionError(f"meshgrid: indexing is {shown(indexing)}; expected 'ij' or 'xy'")
    for one in given:
        require_tensor(one, "meshgrid")
        if one.ndim > 1:
            raise ShapeError(f"meshgrid: {one.label} has shape {one.shape}; expected one axis, or none")
    axes = list(range(len(given)))
    if indexing == "xy" and len(axes) > 1:
        axes[:2] = 1, 0
    extents = [one.shape[0] if one.ndim else 1 for one in given]
    shape = tuple(extents[axes[n]] for n in range(len(axes)))
    spread = lambda x, axis: lambda *i: x[i[axis]] if x.ndim else x[()]
    return tuple(
        rg.compute(shape, spread(one, axes[n]), name=f"{name}{n}" if name else None) for n, one in enumerate(given)
    )


def _count(value: Any, operation: str, what: str) -> int:
    """`value` as an extent: an integer of at least 0."""
    found = integer(value)
    if found is None or found < 0:
        raise ShapeError(f"{operation}: {what} is {shown(value)}; expected an integer of at least 0")
    return found


def _dtype(given: Any, value: Any) -> str:
    """The dtype that is asked for; without one torch's of such a value."""
    if given is not None:
        return dtype_name(given)
    return "bool" if isinstance(value, bool) else "int64" if integer(value) is not None else "float32"
