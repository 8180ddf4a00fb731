"""ONNX operators that select elements by integers that are read.

Those that gather take elements at the places read.  Of the others, which scatter, every output looks at all candidates:
that is meant for short axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.language import Tensor
from rollergen.expr.operators.windows import every
from rollergen.importers.onnx_operators.table import Node, operator
from rollergen.importers.refusals import Refused


def same(index: Any, value: Any) -> Any:
    """Whether an index equals an integer that is read."""
    return rg.cast(index, value.dtype) == value


MOST_CANDIDATES = 256
"""Beyond that an output that looks at all of them takes longer than one that is fetched apart."""


def _check_candidates(extents: Sequence[int]) -> None:
    if math.prod(extents) > MOST_CANDIDATES:
        raise Refused("data-dependent positions", f"{math.prod(extents)} candidates")


def selected(x: Tensor, taken: Callable[..., Any], at: Callable[..., Any], extents: Sequence[int], i: Any) -> Any:
    """The one element of `x` for which ``taken(axes, indices)`` holds: a sum over axes of the given extents."""
    _check_candidates(extents)
    axes = tuple(rg.reduce_axis(f"place{n}", extent) for n, extent in enumerate(extents))
    value = x[at(axes, i)]
    numbers = rg.cast(value, "int32") if x.dtype == "bool" else value
    total = rg.sum(rg.select(taken(axes, i), numbers, 0), axis=axes, dtype=numbers.dtype)
    return rg.cast(total, x.dtype)


def wrapped(index: Any, extent: int) -> Any:
    """Negative indices count from the end."""
    return rg.select(index < 0, index + extent, index)


@operator("Gather")
def gather(n: Node) -> Tensor:
    x, axis, indices = n.tensor(0), n.get("axis", 0) % n.tensor(0).ndim, n.inputs[1]
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        return ops.getitem(x, tuple(int(indices) if d == axis else slice(None) for d in range(x.ndim)))
    return rg.take(x, n.tensor(1), axis)


@operator("GatherElements")
def gather_elements(n: Node) -> Tensor:
    return ops.gather(n.tensor(0), n.get("axis", 0), n.tensor(1))


@operator("GatherND")
def gather_nd(n: Node) -> Tensor:
    x, indices, batch = n.tensor(0), n.tensor(1), n.get("batch_dims", 0)
    outer, depth = indices.ndim - 1, indices.shape[-1]
    places = lambda i: (indices[(*i[:outer], d)] for d in range(depth))
    shape = (*indices.shape[:-1], *x.shape[batch + depth :])
    return rg.compute(shape, lambda *i: x[(*i[:batch], *places(i), *i[outer:])])


_SCATTERED = {
    "add": (rg.sum, 0, lambda a, b: a + b), "mul": (rg.prod, 1, lambda a, b: a * b),
    "max": (rg.max, -math.inf, rg.maximum), "min": (rg.min, math.inf, rg.minimum),
}  # fmt: skip


Choice = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]


def scattered(n: Node, x: Tensor, extents: Sequence[int], hit: Choice, update: Choice) -> Tensor:
    """`x` with updates of the positions that ``hit(axes, indices)``: every output looks at all updates."""
    _check_candidates(extents)
    how = n.get("reduction", "none")
    axes = tuple(rg.reduce_axis(f"update{d}", extent) for d, extent in enumerate(extents))

    def element(*i: Any) -> Any:
        if how == "none":
            hits = rg.sum(rg.select(hit(axes, i), 1, 0), axis=axes)
            value = rg.sum(rg.select(hit(axes, i), update(axes, i), 0), axis=axes, dtype=x.dtype)
            return rg.select(hits > 0, value, x[i])
        reduce, identity, combine = _SCATTERED[how]
        return combine(x[i], reduce(rg.select(hit(axes, i), update(axes, i), identity), axis=axes, dtype=x.dtype))

    return rg.compute(x.shape, element)


@operator("ScatterElements", "Scatter")
def scatter_elements(n: Node) -> Tensor:
    x, indices, updates, axis = n.tensor(0), n.tensor(1), n.tensor(2), n.get("axis", 0) % n.tensor(0).ndim
    if any(have != want for d, (have, want) in enumerate(zip(indices.shape, x.shape, strict=True)) if d != axis):
        hit = lambda axes, i: _all_axes(x, indices, axis, axes, i)
        return scattered(n, x, indices.shape, hit, lambda axes, i: updates[axes])
    at = lambda axes, i: (*i[:axis], axes[0], *i[axis + 1 :])
    hit = lambda axes, i: same(i[axis], wrapped(indices[at(axes, i)], x.shape[axis]))
    return scattered(n, x, (indices.shape[axis],), hit, lambda axes, i: updates[at(axes, i)])


def _all_axes(x: Tensor, indices: Tensor, axis: int, axes: Any, i: Any) -> Any:
    here = same(i[axis], wrapped(indices[axes], x.shape[axis]))
    others = [rg.cast(i[d], "int32") == rg.cast(a, "int32") for d, a in enumerate(axes) if d != axis]
    return every([here, *others])


@operator("ScatterND")
def scatter_nd(n: Node) -> Tensor:
    x, indices, updates = n.tensor(0), n.tensor(1), n.tensor(2)
    outer, depth = indices.ndim - 1, indices.shape[-1]
    hit = lambda axes, i: every(same(i[d], wrapped(indices[(*axes, d)], x.shape[d])) for d in range(depth))
    return scattered(n, x, indices.shape[:outer], hit, lambda axes, i: updates[(*axes, *i[depth:])])


@operator("TensorScatter")
def tensor_scatter(n: Node) -> Tensor:
    cache, update, axis = n.tensor(0), n.tensor(1), n.get("axis", -2) % n.tensor(0).ndim
    places = n.optional(2)
    extent, circular = cache.shape[axis], n.get("mode", "linear") == "circular"

    def hit(axes: Any, i: Any) -> Any:
        start = 0 if places is None else places[i[0]]
        at = rg.cast(axes[0], "int64") + start
        here = same(i[axis], at)
        return here | (same(i[axis], at - extent) if circular else here)

    return scattered(n, cache, (update.shape[axis],), hit, lambda axes, i: update[(*i[:axis], axes[0], *i[axis + 1 :])])


@operator("OneHot")
def one_hot(n: Node) -> Tensor:
    indices, depth, values = n.tensor(0), int(n.known(1).reshape(())), n.tensor(2)
    rank = indices.ndim + 1
    axis = n.get("axis", -1) % rank
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])

    def element(*i: Any) -> Any:
        wanted = wrapped(indices[(*i[:axis], *i[axis + 1 :])], depth)
        return rg.select(same(i[axis], wanted), values[1], values[0])

    return rg.compute(shape, element)


@operator("ReverseSequence")
def reverse_sequence(n: Node) -> Tensor:
    x, lengths = n.tensor(0), n.tensor(1)
    batch, time = n.get("batch_axis", 1), n.get("time_axis", 0)

    def source(i: Any) -> Any:
        here, length = rg.cast(i[time], lengths.dtype), lengths[i[batch]]
        return rg.select(here < length, length - 1 - here, here)

    taken = lambda axes, i: same(axes[0], source(i))
    at = lambda axes, i: (*i[:time], axes[0], *i[time + 1 :])
    return rg.compute(x.shape, lambda *i: selected(x, taken, at, (x.shape[time],), i))


@operator("ArrayFeatureExtractor")
def array_feature_extractor(n: Node) -> Tensor:
    return rg.take(n.tensor(0), ops.reshape(n.tensor(1), (-1,)), -1)
