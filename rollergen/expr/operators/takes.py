"""Elements at places that other tensors hold: embeddings, selections along an axis.

Places outside are an error of the call, as `rg.take` has it; negative ones count from the end.
"""

from __future__ import annotations

from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import is_integer
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    axis_of,
    broadcast_extents,
    broadcast_index,
    flag,
    require_tensor,
    with_axes,
)
from rollergen.expr.operators.views import reshape


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The rows of `weight` (V, D) that the integers `input` (...) name: (..., D).

    `padding_idx`, `norm_type`, `scale_grad_by_freq` and `sparse` concern gradients.  `max_norm` is refused: it would
    change the weights.

    >>> import rollergen as rg
    >>> ids, weight = rg.tensor("ids", (2,), "int64"), rg.tensor("weight", (3, 2))
    >>> rg.ops.embedding(ids, weight).evaluate(ids=[2, 0], weight=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    array([[5., 6.],
           [1., 2.]])
    """
    _require_places(input, "embedding", "input")
    require_tensor(weight, "embedding", "weight")
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight has shape {weight.shape}; expected two axes, a row for each number")
    if max_norm is not None:
        raise ExpressionError(f"embedding: max_norm is {shown(max_norm)}; expected None: weights are not changed")
    rows = weight.shape[0]
    if padding_idx is not None and not (type(padding_idx) is int and -rows <= padding_idx < rows):
        raise ExpressionError(f"embedding: padding_idx is {shown(padding_idx)}; expected None or one of {rows} rows")
    return rg.compute((*input.shape, weight.shape[1]), lambda *i: weight[input[i[:-1]], i[-1]], name)


def index_select(input: Tensor, dim: int, index: Tensor, *, name: str | None = None) -> Tensor:
    """The slices of `input` along `dim` that the integers `index`, (L,) or (), name.

    The extent of `dim` becomes L.  A scalar is taken as a vector of one.

    Raises DtypeError for an index of floats, ShapeError for one of several axes.

    >>> import rollergen as rg
    >>> x, index = rg.tensor("x", (2, 3)), rg.tensor("index", (2,), "int64")
    >>> rg.ops.index_select(x, 1, index).evaluate([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2, 0])
    array([[3., 1.],
           [6., 4.]])
    """
    require_tensor(input, "index_select")
    _require_places(index, "index_select", "index")
    if not input.ndim and index.shape in ((), (1,)):
        return reshape(index_select(with_axes(input), dim, index), (), name=name)
    at = axis_of(dim, input, "index_select")
    if index.ndim > 1:
        raise ShapeError(f"index_select: index has shape {index.shape}; expected one axis or none")
    shape = (*input.shape[:at], *(index.shape or (1,)), *input.shape[at + 1 :])
    place = lambda i: index[i[at]] if index.ndim else index[()]
    return rg.compute(shape, lambda *i: input[(*i[:at], place(i), *i[at + 1 :])], name)


def gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, name: str | None = None
) -> Tensor:
    """``input[i, index[i, j]]`` where `dim` is 1 of two axes, other axes alike; the shape is that of `index`.

    `index` has as many axes as `input`, none longer but `dim`.  A scalar is taken as a vector of one; an `index`
    without elements may have any axes.  `sparse_grad` concerns gradients.

    Raises DtypeError for an index of floats, ShapeError for one of another shape.

    >>> import rollergen as rg
    >>> x, index = rg.tensor("x", (2, 3)), rg.tensor("index", (2, 1), "int64")
    >>> rg.ops.gather(x, 1, index).evaluate([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[2], [0]])
    array([[3.],
           [4.]])
    """
    require_tensor(input, "gather")
    _require_places(index, "gather", "index")
    flag(sparse_grad, "gather", "sparse_grad")
    if 0 in index.shape and input.ndim:
        return rg.compute(index.shape, lambda *i: input[(index[i], *(0,) * (input.ndim - 1))], name)
    if not input.ndim and index.ndim < 2:
        return reshape(gather(with_axes(input), dim, with_axes(index)), index.shape, name=name)
    at = axis_of(dim, input, "gather")
    pairs = enumerate(zip(index.shape, input.shape, strict=False))
    if index.ndim != input.ndim or any(d != at and ours > theirs for d, (ours, theirs) in pairs):
        raise ShapeError(
            f"gather: index has shape {index.shape}; expected as many axes as input has, {input.shape}, none longer "
            f"but for axis {at}"
        )
    return rg.compute(index.shape, lambda *i: input[(*i[:at], index[i], *i[at + 1 :])], name)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, name: str | None = None) -> Tensor:
    """`gather` with `input` and `indices` broadcast along the other axes; without `dim` both are taken as vectors.

    >>> import rollergen as rg
    >>> x, order = rg.tensor("x", (2, 3)), rg.tensor("order", (1, 2), "int64")
    >>> rg.ops.take_along_dim(x, order, 1).evaluate([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[2, 0]])
    array([[3., 1.],
           [6., 4.]])
    """
    require_tensor(input, "take_along_dim")
    _require_places(indices, "take_along_dim", "indices")
    if dim is None:
        input, indices, dim = reshape(input, (-1,)), reshape(indices, (-1,)), 0
    place = axis_of(dim, input, "take_along_dim")
    if indices.ndim != input.ndim:
        raise ShapeError(f"take_along_dim: indices has shape {indices.shape}; expected as many axes as {input.shape}")
    with_at = lambda extents, one: (*extents[:place], one, *extents[place + 1 :])
    parts = [(x, with_at(x.shape, 1)) for x in (input, indices)]
    shape = with_at(broadcast_extents("take_along_dim", *parts), indices.shape[place])

    def element(*i: Any) -> Any:
        taken = indices[broadcast_index(indices.shape, i)]
        return input[with_at(broadcast_index(input.shape, i), taken)]

    return rg.compute(shape, element, name)


def _require_places(index: Any, operation: str, what: str) -> None:
    require_tensor(index, operation, what)
    if not is_integer(index.dtype):
        raise DtypeError(f"{operation}: {what} has dtype {index.dtype}; expected an integer dtype")
