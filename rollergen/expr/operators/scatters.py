"""Tensors with a part replaced by another, at constant places; `rg.put` writes at places of the call, in place."""

from __future__ import annotations

import builtins
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import as_dtype, axis_of, integer, require_tensor


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1,
    *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`input` with the slice ``start:end:step`` along `dim` replaced by `src`, converted to the dtype of `input`.

    >>> import rollergen as rg
    >>> rg.ops.slice_scatter(rg.tensor("x", (4,)), rg.tensor("y", (2,)), 0, 1, 3).evaluate([1, 2, 3, 4], [8, 9])
    array([1., 8., 9., 4.])

    Raises ShapeError where `src` has another shape than the slice, ExpressionError for what is no slice.
    """
    for one in (input, src):
        require_tensor(one, "slice_scatter")
    axis, by = axis_of(dim, input, "slice_scatter"), integer(step)
    first, last = (None if one is None else integer(one) for one in (start, end))
    if by is None or by < 1 or (first is None and start is not None) or (last is None and end is not None):
        raise ExpressionError(
            f"slice_scatter: start is {shown(start)}, end {shown(end)} and step {shown(step)}; expected integers or "
            "None, and a step of at least 1"
        )
    places = range(*builtins.slice(first, last, by).indices(input.shape[axis]))
    return _replaced(input, src, axis, places, "slice_scatter", name)


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int, *, name: str | None = None) -> Tensor:
    """`input` with its elements at `index` along `dim` replaced by `src`, which has all axes but `dim`.

    >>> import rollergen as rg
    >>> rg.ops.select_scatter(rg.tensor("x", (2, 2)), rg.tensor("y", (2,)), 0, -1).evaluate([[1, 2], [3, 4]], [8, 9])
    array([[1., 2.],
           [8., 9.]])

    Raises ShapeError where `src` has another shape, ExpressionError for an index outside.
    """
    for one in (input, src):
        require_tensor(one, "select_scatter")
    axis, at = axis_of(dim, input, "select_scatter"), integer(index)
    extent = input.shape[axis]
    if at is None or not -extent <= at < extent:
        raise ExpressionError(f"select_scatter: index is {shown(index)}; expected one of {-extent} to {extent - 1}")
    wanted = (*input.shape[:axis], *input.shape[axis + 1 :])
    if src.shape != wanted:
        raise ShapeError(f"select_scatter: {src.label} has shape {src.shape}; expected {wanted}, without axis {axis}")
    place, source = at % extent, as_dtype(src, input.dtype)
    here = lambda i: source[(*i[:axis], *i[axis + 1 :])]
    return rg.compute(input.shape, lambda *i: rg.select(i[axis] != place, input[i], here(i)), name)


def _replaced(x: Tensor, src: Tensor, axis: int, places: range, operation: str, name: str | None) -> Tensor:
    """`x` with the elements at `places` along the axis those of `src`, in order."""
    wanted = tuple(len(places) if n == axis else extent for n, extent in enumerate(x.shape))
    if src.shape != wanted:
        raise ShapeError(f"{operation}: {src.label} has shape {src.shape}; expected {wanted}, that of the slice")
    if not places:
        return rg.compute(x.shape, lambda *i: x[i], name)
    source, first, last, step = as_dtype(src, x.dtype), places[0], places[-1], places.step

    def element(*i: Any) -> Any:
        at = i[axis]
        beside = (at < first) | (at > last)
        if step > 1:
            beside = beside | ((at - first) % step != 0)
        return rg.select(beside, x[i], source[(*i[:axis], (at - first) // step, *i[axis + 1 :])])

    return rg.compute(x.shape, element, name)
