"""Elements at places that are read: taken, and replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rollergen.expr import language as rg
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import broadcast_index, broadcast_shape
from rollergen.importers.graph import NotExpressedError


def indexed(x: Tensor, indices: Sequence[Any]) -> Tensor:
    """``x[..., index, ...]``: indices that are neighbours, broadcast together, in their place; others in front."""
    at = [d for d, one in enumerate(indices) if one is not None]
    tensors = [one for one in indices if isinstance(one, Tensor)]
    if any(one.dtype == "bool" for one in tensors):
        raise NotExpressedError("the shape of what a mask selects depends on data")
    shape = broadcast_shape("index", *tensors) if tensors else ()
    first = at[0] if at == list(range(at[0], at[0] + len(at))) else 0
    last = first + len(shape)

    def element(*i: Any) -> Any:
        others, taken = iter((*i[:first], *i[last:])), {}
        for d in at:
            one = indices[d]
            taken[d] = one[broadcast_index(one.shape, i[first:last])] if isinstance(one, Tensor) else one % x.shape[d]
        return x[tuple(taken[d] if d in taken else next(others) for d in range(x.ndim))]

    rest = [extent for d, extent in enumerate(x.shape) if d not in at]
    return rg.compute((*rest[:first], *shape, *rest[first:]), element)


def put(x: Tensor, indices: Sequence[Any], values: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """`x` with other elements at the places that a vector of indices names along one axis.  Where it names a place
    twice, the last one counts.

    ``values``: those others in a shape, which is `x`'s with as many along that axis as there are indices.  Each place
    looks at all indices once, whatever lies there.
    """
    at = [d for d, one in enumerate(indices) if one is not None]
    index = indices[at[0]] if len(at) == 1 else None
    if not isinstance(index, Tensor) or index.ndim != 1 or index.dtype == "bool":
        raise NotExpressedError("values put by a mask, or by other than one row of indices")
    axis, extent, one = at[0], x.shape[at[0]], rg.reduce_axis("update", index.shape[0])
    others = values((*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]))

    def last(i: Any) -> Any:
        place = index[one]
        here = rg.select(place < 0, place + extent, place) == rg.cast(i, index.dtype)
        return rg.max(rg.select(here, rg.cast(one, "int32"), -1), axis=one)

    by = rg.compute((extent,), last)
    new = rg.take(others, by, axis, mode="clip")
    return rg.compute(x.shape, lambda *i: rg.select(by[i[axis]] >= 0, new[i], x[i]))
