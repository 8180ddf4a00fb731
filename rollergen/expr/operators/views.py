"""Rearrangements: no arithmetic, only which element goes where.  Most are inlined into what reads them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Number,
    axis_of,
    broadcast_index,
    integer,
    integers,
    number,
    require_tensor,
    setting,
)

Basic = Any  # an integer, a Python slice, or Ellipsis


def transpose(x: Tensor, axes: Sequence[int] | None = None, *, name: str | None = None) -> Tensor:
    """`x` with its axes permuted: axis d of the result is axis ``axes[d]`` of `x` (None: reversed).

    >>> import rollergen as rg
    >>> rg.ops.transpose(rg.tensor("x", (2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    require_tensor(x, "transpose")
    order = tuple(reversed(range(x.ndim))) if axes is None else integers(axes) or ()
    positions = tuple(d + x.ndim if d < 0 else d for d in order)
    if sorted(positions) != list(range(x.ndim)):
        raise ShapeError(
            f"transpose: axes is {shown(axes)}; expected a permutation of 0 to {x.ndim - 1}, one for each axis"
        )

    def element(*i: Any) -> Any:
        return x[tuple(i[positions.index(d)] for d in range(x.ndim))]

    return rg.compute(tuple(x.shape[d] for d in positions), element, name)


def reshape(x: Tensor, shape: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """The elements of `x` in row-major order under another shape; one extent may be -1, what is left.

    >>> import rollergen as rg
    >>> rg.ops.reshape(rg.tensor("x", (2, 6, 4)), (3, -1)).shape
    (3, 16)

    Raises ShapeError where the number of elements differs.
    """
    require_tensor(x, "reshape")
    wanted = _completed(x, shape)

    def element(*i: Any) -> Any:
        flat: Any = 0
        for index, extent in zip(i, wanted, strict=True):
            flat = flat * extent + index
        at, stride = [], 1
        for extent in reversed(x.shape):
            at.append(0 if extent == 1 else flat // stride % extent)
            stride *= extent
        return x[tuple(reversed(at))]

    return rg.compute(wanted, element, name)


def expand(x: Tensor, shape: Sequence[int], *, name: str | None = None) -> Tensor:
    """`x` repeated along new leading axes and axes of extent 1 to `shape`, as NumPy's broadcast_to.

    >>> import rollergen as rg
    >>> rg.ops.expand(rg.tensor("x", (2, 1)), (3, 2, 4)).shape
    (3, 2, 4)
    """
    require_tensor(x, "expand")
    wanted = integers(shape)
    if wanted is None:
        raise ShapeError(f"expand: shape is {shown(shape)}; expected integers: an extent for each axis of the result")
    own = wanted[len(wanted) - x.ndim :]
    if len(wanted) < x.ndim or any(have not in (1, want) for have, want in zip(x.shape, own, strict=True)):
        raise ShapeError(f"expand: {x.label} {x.shape} does not broadcast to {wanted}; expected equal extents, or 1")
    return rg.compute(wanted, lambda *i: x[broadcast_index(x.shape, i)], name)


def concat(tensors: Sequence[Tensor], axis: int = 0, *, name: str | None = None) -> Tensor:
    """`tensors` one after another along `axis`; equal dtypes, other extents equal.

    >>> import rollergen as rg
    >>> rg.ops.concat([rg.tensor("a", (2,)), rg.tensor("b", (1,))]).evaluate([1.0, 2.0], [3.0])
    array([1., 2., 3.])
    """
    if not isinstance(tensors, (tuple, list)) or not tensors:
        raise ExpressionError(f"concat: tensors is {shown(tensors)}; expected a list of at least one tensor")
    for one in tensors:
        require_tensor(one, "concat")
    first = tensors[0]
    position = axis_of(axis, first, "concat")
    others = lambda t: (*t.shape[:position], *t.shape[position + 1 :])
    for one in tensors[1:]:
        if one.ndim != first.ndim or others(one) != others(first):
            raise ShapeError(
                f"concat: {one.label} has shape {one.shape} and {first.label} {first.shape}; "
                f"expected equal extents but along axis {position}"
            )
        if one.dtype != first.dtype:
            raise DtypeError(f"concat: {one.label} has dtype {one.dtype} and {first.label} {first.dtype}; expected one")
    starts = [builtins.sum(t.shape[position] for t in tensors[:n]) for n in range(len(tensors))]

    def element(*i: Any) -> Any:
        part = lambda n: tensors[n][(*i[:position], i[position] - starts[n], *i[position + 1 :])]
        value = part(len(tensors) - 1)
        for n in reversed(range(len(tensors) - 1)):
            value = rg.select(i[position] < starts[n + 1], part(n), value)
        return value

    total = starts[-1] + tensors[-1].shape[position]
    return rg.compute((*first.shape[:position], total, *first.shape[position + 1 :]), element, name)


def slice(x: Tensor, index: Basic | tuple[Basic, ...], *, name: str | None = None) -> Tensor:
    """``x[index]`` as NumPy's basic indexing: integers, slices (any step but 0), one Ellipsis; `numpy.s_` writes them.

    >>> import rollergen as rg
    >>> import numpy as np
    >>> x = rg.tensor("x", (5, 8))
    >>> rg.ops.slice(x, np.s_[::-2, 3]).shape
    (3,)
    >>> rg.ops.slice(x, np.s_[..., 2:-1]).shape
    (5, 5)

    Raises ShapeError for integers out of range, slices without elements, and too many indices.
    """
    require_tensor(x, "slice")
    given = _basic(x, index if isinstance(index, tuple) else (index,))
    ranges = [_range(x, d, one) for d, one in enumerate(given)]
    kept = [d for d, one in enumerate(given) if isinstance(one, builtins.slice)]

    def element(*i: Any) -> Any:
        running = dict(zip(kept, i, strict=True))
        return x[tuple(running[d] * r.step + r.start if d in running else r.start for d, r in enumerate(ranges))]

    return rg.compute(tuple(len(ranges[d]) for d in kept), element, name)


def pad(
    x: Tensor, widths: int | Sequence[int] | Sequence[Sequence[int]], mode: str = "constant", value: Number = 0, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`x` with a border, as ``numpy.pad``.

    `widths` is one number, (before, after) for every axis, or such a pair for each; `mode` is "constant"
    (`value`), "edge" (the border's element), "reflect" (mirrored at it, which is not repeated) or "wrap".

    >>> import rollergen as rg
    >>> rg.ops.pad(rg.tensor("x", (3,)), (2, 1), "reflect").evaluate([1.0, 2.0, 3.0])
    array([3., 2., 1., 2., 3., 2.])

    Raises ShapeError for widths that a mode cannot fill from the tensor once.
    """
    require_tensor(x, "pad")
    pairs = _widths(x, widths)
    fill = _fill(x, value)
    if not isinstance(mode, str) or (mode not in _SOURCE and mode != "constant"):
        raise ExpressionError(f'pad: mode is {shown(mode)}; expected "constant", "edge", "reflect" or "wrap"')
    wanted = tuple(before + extent + after for extent, (before, after) in zip(x.shape, pairs, strict=True))
    if mode == "constant":
        return rg.compute(wanted, lambda *i: _filled(x, i, pairs, fill), name)
    _check_reach(x, pairs, mode)
    axes = [d for d, pair in enumerate(pairs) if pair != (0, 0)]
    current = x
    for d in axes:
        current = _padded_along(current, d, pairs[d], mode, name if d == axes[-1] else None)
    return current if axes else rg.compute(x.shape, lambda *i: x[i], name)


def upsample_nearest(x: Tensor, scale_factor: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """Every element of the last axes of x (N, C, ...) repeated `scale_factor` times along each.

    >>> import rollergen as rg
    >>> rg.ops.upsample_nearest(rg.tensor("x", (1, 1, 2)), 2).evaluate([[[1.0, 2.0]]])
    array([[[1., 1., 2., 2.]]])
    """
    require_tensor(x, "upsample_nearest")
    if not 3 <= x.ndim <= 5:
        raise ShapeError(
            f"upsample_nearest: {x.label} has shape {x.shape}; expected (N, C, L), (N, C, H, W) or (N, C, D, H, W)"
        )
    factors = setting(scale_factor, "upsample_nearest", "scale_factor", x.ndim - 2, 1)
    wanted = tuple(extent * factor for extent, factor in zip(x.shape[2:], factors, strict=True))

    def element(n: Any, c: Any, *o: Any) -> Any:
        return x[(n, c, *(index // factor for index, factor in zip(o, factors, strict=True)))]

    return rg.compute((*x.shape[:2], *wanted), element, name)


def _completed(x: Tensor, given: Any) -> tuple[int, ...]:
    shape = integers(given)
    if shape is None or shape.count(-1) > 1 or any(extent < 1 and extent != -1 for extent in shape):
        raise ShapeError(f"reshape: shape is {shown(given)}; expected extents of at least 1, at most one of them -1")
    elements, known = math.prod(x.shape), math.prod(extent for extent in shape if extent != -1)
    wanted = tuple(elements // known if extent == -1 else extent for extent in shape)
    if math.prod(wanted) != elements:
        raise ShapeError(
            f"reshape: {x.label} {x.shape} has {elements} elements; shape {shape} holds {math.prod(wanted)}"
        )
    return wanted


def _basic(x: Tensor, index: tuple[Basic, ...]) -> tuple[Basic, ...]:
    """One integer or slice for each axis of `x`."""
    dots = [n for n, one in enumerate(index) if one is Ellipsis]
    if len(dots) > 1 or len(index) - len(dots) > x.ndim:
        raise ShapeError(f"slice: index {index} of {x.label} {x.shape}; expected at most {x.ndim} indices and one ...")
    at = dots[0] if dots else len(index)
    missing = (builtins.slice(None),) * (x.ndim - len(index) + len(dots))
    return (*index[:at], *missing, *index[at + 1 :])


def _range(x: Tensor, axis: int, one: Basic) -> range:
    extent = x.shape[axis]
    if isinstance(one, builtins.slice):
        if one.step == 0 or not all(p is None or integer(p) is not None for p in (one.start, one.stop, one.step)):
            raise ShapeError(f"slice: index {axis} of {x.label} is {one}; expected integers, and a step but 0")
        found = range(*one.indices(extent))
        if not found:
            raise ShapeError(f"slice: index {axis} of {x.label} {x.shape} is {one}; it leaves no elements")
        return found
    at = integer(one)
    if at is None or not -extent <= at < extent:
        raise ShapeError(
            f"slice: index {axis} of {x.label} {x.shape} is {shown(one)}; expected a slice or {-extent} to {extent - 1}"
        )
    return range(at % extent, at % extent + 1)


def _widths(x: Tensor, widths: Any) -> tuple[tuple[int, int], ...]:
    flat = integers(widths) if isinstance(widths, (tuple, list)) else (integer(widths),) * 2
    pairs: Any = (flat,) * x.ndim
    if flat is None or len(flat) != 2:
        pairs = tuple(integers(p) if isinstance(p, (tuple, list)) else None for p in widths)
    if len(pairs) != x.ndim or not all(p and len(p) == 2 and all(w is not None and w >= 0 for w in p) for p in pairs):
        raise ShapeError(
            f"pad: widths is {shown(widths)}; expected an integer of at least 0, (before, after), or such a pair for "
            f"each of the {x.ndim} axes of {x.label}"
        )
    return pairs


def _fill(x: Tensor, value: Number) -> Number:
    """`value` as an element of `x`: of conditions 0 and 1 stand for False and True, as in NumPy."""
    if x.dtype != "bool":
        return number(value, "pad", "value")
    if value not in (False, True):
        raise ExpressionError(f"pad: value is {value!r}; expected True or False, as x has dtype bool")
    return bool(value)


def _filled(x: Tensor, i: Sequence[Any], pairs: Sequence[tuple[int, int]], fill: Number) -> Any:
    at = tuple(index - before for index, (before, _) in zip(i, pairs, strict=True))
    condition = None
    for index, extent, pair in zip(at, x.shape, pairs, strict=True):
        if pair != (0, 0):
            here = (index >= 0) & (index < extent)
            condition = here if condition is None else condition & here
    return x[at] if condition is None else rg.select(condition, x[at], fill)


_SOURCE = {
    "edge": (lambda at, extent: 0, lambda at, extent: extent - 1),
    "reflect": (lambda at, extent: -at, lambda at, extent: 2 * extent - 2 - at),
    "wrap": (lambda at, extent: at + extent, lambda at, extent: at - extent),
}
"""Which element stands before the first and after the last, by position."""


def _check_reach(x: Tensor, pairs: Sequence[tuple[int, int]], mode: str) -> None:
    for extent, pair in zip(x.shape, pairs, strict=True):
        most = {"reflect": extent - 1, "wrap": extent}.get(mode)
        if most is not None and builtins.max(pair) > most:
            raise ShapeError(f"pad: widths {pair} of an axis of {extent}; mode {shown(mode)} fills at most {most}")


def _padded_along(x: Tensor, axis: int, pair: tuple[int, int], mode: str, name: str | None) -> Tensor:
    extent, (before, after) = x.shape[axis], pair
    first, last = _SOURCE[mode]

    def element(*i: Any) -> Any:
        at = i[axis] - before
        read = lambda place: x[(*i[:axis], place, *i[axis + 1 :])]
        value = read(at)
        if after:
            value = rg.select(at < extent, value, read(last(at, extent)))
        return rg.select(at < 0, read(first(at, extent)), value) if before else value

    return rg.compute((*x.shape[:axis], before + extent + after, *x.shape[axis + 1 :]), element, name)
