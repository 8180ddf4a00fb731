"""Tensors of numbers that the expression itself fixes, and grids of them: they read nothing, or spread what they read.

Torch's ``dtype`` is theirs; its ``device``, ``layout`` and ``requires_grad`` have no counterpart in an expression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Number, integer, integers, number, require_tensor


def full(size: Sequence[int], fill_value: Number, *, dtype: Any = None, name: str | None = None) -> Tensor:
    """Every element of shape `size` is `fill_value`: without a dtype of a float float32, of an integer int64, or bool.

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


def eye(n: int, m: int | None = None, *, dtype: Any = None, name: str | None = None) -> Tensor:
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
    start: Number, end: Number | None = None, step: Number = 1, *, dtype: Any = None, name: str | None = None
) -> Tensor:
    """Numbers from `start` to below `end`, `step` apart; of one number from 0 to below that.  int64, or float32 where
    one of them is a float.

    >>> import rollergen as rg
    >>> rg.ops.arange(2, 9, 3).evaluate()
    array([2, 5, 8])

    Raises ExpressionError where `step` is 0 or leads away from `end`.
    """
    first, last = (0, start) if end is None else (start, end)
    low, high, by = (number(one, "arange", what) for one, what in ((first, "start"), (last, "end"), (step, "step")))
    kind = _dtype(dtype, low + high + by)
    if not is_float(kind):
        low, high, by = int(low), int(high), int(by)
    if by == 0 or (high - low) / by < 0:
        raise ExpressionError(f"arange: step is {shown(step)}; expected a step other than 0 from {low} to {high}")
    wide = accumulator_dtype(kind) if is_float(kind) else "int64" if kind in ("int64", "uint64") else "int32"
    count = math.ceil((high - low) / by) if is_float(kind) else -((low - high) // by)
    return rg.compute((count,), lambda i: rg.cast(rg.cast(i, wide) * by + low, kind), name=name)


def linspace(start: Number, end: Number, steps: int, *, dtype: Any = None, name: str | None = None) -> Tensor:
    """`steps` numbers from `start` to `end`, both among them, equally far apart; float32 without a dtype.

    >>> import rollergen as rg
    >>> rg.ops.linspace(0, 1, 5).evaluate()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    count = _count(steps, "linspace", "steps")
    low, high = number(start, "linspace", "start"), number(end, "linspace", "end")
    kind = _dtype(dtype, 1.0)
    if not is_float(kind):
        raise ExpressionError(f"linspace: dtype is {kind}; expected a floating one, which holds what lies between")
    wide, by = accumulator_dtype(kind), (high - low) / max(count - 1, 1)
    from_start, from_end = lambda i: rg.cast(i, wide) * by + low, lambda i: high - rg.cast(count - 1 - i, wide) * by
    either = lambda i: rg.select(2 * i < count, from_start(i), from_end(i))
    return rg.compute((count,), lambda i: rg.cast(either(i), kind), name=name)


def meshgrid(*tensors: Tensor, indexing: str | None = None, name: str | None = None) -> tuple[Tensor, ...]:
    """A grid of the elements of vectors: for each its elements along an axis of its own, repeated along the others.

    `indexing` "ij" (or None) has the axes in the order of the vectors, "xy" the first two exchanged.

    >>> import rollergen as rg
    >>> rg.ops.meshgrid(rg.tensor("a", (2,)), rg.tensor("b", (3,)))[0].evaluate(a=[1.0, 2.0])
    array([[1., 1., 1.],
           [2., 2., 2.]])

    Raises ShapeError of what is no vector or number.
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
