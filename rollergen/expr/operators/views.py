"""Rearrangements: no arithmetic, only which element goes where.  Most are inlined into what reads them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    axes_of,
    axis_of,
    broadcast_index,
    integer,
    integers,
    promoted_dtype,
    require_tensor,
)

Basic = Any  # an integer, a Python slice, or Ellipsis


def transpose(input: Tensor, dim0: int, dim1: int, *, name: str | None = None) -> Tensor:
    """`input` with two of its axes exchanged; `permute` takes them all.

    >>> import rollergen as rg
    >>> rg.ops.transpose(rg.tensor("x", (2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    require_tensor(input, "transpose")
    first, second = (axis_of(dim, input, "transpose") if input.ndim else 0 for dim in (dim0, dim1))
    order = list(range(input.ndim))
    if input.ndim:
        order[first], order[second] = second, first
    return permute(input, order, name=name)


def t(input: Tensor, *, name: str | None = None) -> Tensor:
    """A matrix with its two axes exchanged; vectors as they are.

    >>> import rollergen as rg
    >>> rg.ops.t(rg.tensor("x", (2, 3))).shape
    (3, 2)
    """
    require_tensor(input, "t")
    if input.ndim > 2:
        raise ShapeError(
            f"t: {input.label} has shape {input.shape}; expected at most two axes (rg.ops.permute takes more)"
        )
    return permute(input, tuple(reversed(range(input.ndim))), name=name)


def permute(input: Tensor, dims: Sequence[int], *, name: str | None = None) -> Tensor:
    """`input` with its axes permuted: axis d of the result is axis ``dims[d]`` of `input`.

    >>> import rollergen as rg
    >>> rg.ops.permute(rg.tensor("x", (2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    require_tensor(input, "permute")
    order = integers(dims)
    positions = () if order is None else tuple(d + input.ndim if d < 0 else d for d in order)
    if order is None or sorted(positions) != list(range(input.ndim)):
        raise ShapeError(
            f"permute: dims is {shown(dims)}; expected a permutation of 0 to {input.ndim - 1}, one for each axis"
        )

    def element(*i: Any) -> Any:
        return input[tuple(i[positions.index(d)] for d in range(input.ndim))]

    return rg.compute(tuple(input.shape[d] for d in positions), element, name)


def reshape(input: Tensor, shape: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """The elements of `input` in row-major order in another shape; one extent may be -1: it follows from the others.

    >>> import rollergen as rg
    >>> rg.ops.reshape(rg.tensor("x", (2, 6, 4)), (3, -1)).shape
    (3, 16)

    Raises ShapeError where the number of elements differs.
    """
    require_tensor(input, "reshape")
    x, wanted = input, _completed(input, shape)

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


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1, *, name: str | None = None) -> Tensor:
    """`input` with the axes `start_dim` to `end_dim` merged in row-major order; a scalar becomes a vector of one.

    >>> import rollergen as rg
    >>> rg.ops.flatten(rg.tensor("x", (2, 3, 4)), 1).shape
    (2, 12)
    """
    require_tensor(input, "flatten")
    if input.ndim == 0:
        return reshape(input, (1,), name=name)
    first, last = (axis_of(dim, input, "flatten") for dim in (start_dim, end_dim))
    if first > last:
        raise ShapeError(f"flatten: start_dim {start_dim} is behind end_dim {end_dim}; expected start_dim <= end_dim")
    shape = input.shape
    return reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]), name=name)


def squeeze(input: Tensor, dim: int | Sequence[int] | None = None, *, name: str | None = None) -> Tensor:
    """`input` without those of the axes `dim` that have extent 1; with None without all axes of extent 1.

    >>> import rollergen as rg
    >>> x = rg.tensor("x", (1, 3, 1))
    >>> rg.ops.squeeze(x).shape, rg.ops.squeeze(x, -1).shape, rg.ops.squeeze(x, (0, 1)).shape
    ((3,), (1, 3), (3, 1))
    """
    require_tensor(input, "squeeze")
    among = axes_of(dim, input, "squeeze") if input.ndim else ()
    kept = tuple(extent for d, extent in enumerate(input.shape) if extent != 1 or d not in among)
    return reshape(input, kept, name=name)


def unsqueeze(input: Tensor, dim: int, *, name: str | None = None) -> Tensor:
    """`input` with a new axis of extent 1 before axis `dim`; a negative one counts from behind the last.

    >>> import rollergen as rg
    >>> x = rg.tensor("x", (2, 3))
    >>> rg.ops.unsqueeze(x, 1).shape, rg.ops.unsqueeze(x, -1).shape
    ((2, 1, 3), (2, 3, 1))
    """
    require_tensor(input, "unsqueeze")
    at = integer(dim)
    if at is None or not -input.ndim - 1 <= at <= input.ndim:
        raise ShapeError(f"unsqueeze: dim is {shown(dim)}; expected one of {-input.ndim - 1} to {input.ndim}")
    at %= input.ndim + 1
    return reshape(input, (*input.shape[:at], 1, *input.shape[at:]), name=name)


def expand(input: Tensor, size: Sequence[int], *, name: str | None = None) -> Tensor:
    """`input` repeated along new leading axes and axes of extent 1 to `size`; an extent of -1 stays.

    >>> import rollergen as rg
    >>> rg.ops.expand(rg.tensor("x", (2, 1)), (3, -1, 4)).shape
    (3, 2, 4)
    """
    require_tensor(input, "expand")
    given = integers(size)
    if given is None:
        raise ShapeError(f"expand: size is {shown(size)}; expected integers: an extent for each axis of the result")
    added = len(given) - input.ndim
    wanted = tuple(
        input.shape[d - added] if extent == -1 and d >= added else extent for d, extent in enumerate(given)
    )
    if added < 0 or any(have not in (1, want) for have, want in zip(input.shape, wanted[added:], strict=True)):
        raise ShapeError(
            f"expand: {input.label} {input.shape} does not broadcast to {given}; expected equal extents, 1 or -1"
        )
    return rg.compute(wanted, lambda *i: input[broadcast_index(input.shape, i)], name)


def concat(tensors: Sequence[Tensor], dim: int = 0, *, name: str | None = None) -> Tensor:
    """`tensors` one after another along `dim`, in the dtype that torch promotes them to.

    Their other extents are equal; vectors without elements are passed over.

    >>> import rollergen as rg
    >>> rg.ops.concat([rg.tensor("a", (2,)), rg.tensor("b", (1,))]).evaluate([1.0, 2.0], [3.0])
    array([1., 2., 3.])
    """
    if not isinstance(tensors, (tuple, list)) or not tensors:
        raise ExpressionError(f"concat: tensors is {shown(tensors)}; expected a list of at least one tensor")
    for one in tensors:
        require_tensor(one, "concat")
    first = next((one for one in tensors if one.shape != (0,)), tensors[0])
    position = axis_of(dim, first, "concat")
    others = lambda t: (*t.shape[:position], *t.shape[position + 1 :])
    for one in tensors:
        if one.shape != (0,) and (one.ndim != first.ndim or others(one) != others(first)):
            raise ShapeError(
                f"concat: {one.label} has shape {one.shape} and {first.label} {first.shape}; "
                f"expected equal extents but along axis {position}"
            )
    wanted = promoted_dtype(*tensors)
    extents = [0 if t.shape == (0,) else t.shape[position] for t in tensors]
    starts = [builtins.sum(extents[:n]) for n in range(len(tensors))]

    def part(n: int, i: tuple[Any, ...]) -> Any:
        at = i[position] - starts[n]
        return rg.cast(tensors[n][(*i[:position], at, *i[position + 1 :]) if tensors[n].ndim > 1 else at], wanted)

    def element(*i: Any) -> Any:
        value = part(len(tensors) - 1, i)
        for n in reversed(range(len(tensors) - 1)):
            value = rg.select(i[position] < starts[n + 1], part(n, i), value)
        return value

    return rg.compute((*first.shape[:position], builtins.sum(extents), *first.shape[position + 1 :]), element, name)


def slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Elements `start` to `end` (exclusive) of axis `dim`, one in `step`; `getitem` takes all axes.

    >>> import rollergen as rg
    >>> rg.ops.slice(rg.tensor("x", (5, 8)), 1, 2, -1, 2).shape
    (5, 3)

    Raises ShapeError for a step below 1.
    """
    require_tensor(input, "slice")
    if integer(dim) is None:
        raise ExpressionError(
            f"slice: dim is {shown(dim)}; expected an axis, as in slice(input, dim, start, end, step); "
            "rg.ops.getitem(input, index) takes NumPy's indices"
        )
    if not all(p is None or integer(p) is not None for p in (start, end, step)) or not (integer(step) or 0) >= 1:
        raise ShapeError(
            f"slice: start, end and step are {shown(start)}, {shown(end)} and {shown(step)}; expected integers, "
            "step at least 1"
        )
    part = builtins.slice(start, end, step)
    position = axis_of(dim, input, "slice")
    return getitem(input, (*(builtins.slice(None),) * position, part), name=name)


def getitem(input: Tensor, index: Basic | tuple[Basic, ...], *, name: str | None = None) -> Tensor:
    """``input[index]`` as NumPy's basic indexing: integers, slices, one Ellipsis; `numpy.s_` writes them.

    >>> import rollergen as rg
    >>> import numpy as np
    >>> x = rg.tensor("x", (5, 8))
    >>> rg.ops.getitem(x, np.s_[::-2, 3]).shape
    (3,)
    >>> rg.ops.getitem(x, np.s_[..., 2:-1]).shape
    (5, 5)

    Raises ShapeError for integers out of range, and too many indices.
    """
    require_tensor(input, "getitem")
    x, given = input, _basic(input, index if isinstance(index, tuple) else (index,))
    ranges = [_range(x, d, one) for d, one in enumerate(given)]
    kept = [d for d, one in enumerate(given) if isinstance(one, builtins.slice)]

    def element(*i: Any) -> Any:
        running = dict(zip(kept, i, strict=True))
        return x[tuple(running[d] * r.step + r.start if d in running else r.start for d, r in enumerate(ranges))]

    return rg.compute(tuple(len(ranges[d]) for d in kept), element, name)


def _completed(x: Tensor, given: Any) -> tuple[int, ...]:
    shape = integers(given)
    if shape is None or shape.count(-1) > 1 or any(extent < -1 for extent in shape):
        raise ShapeError(f"reshape: shape is {shown(given)}; expected extents of at least 0, at most one of them -1")
    elements, known = math.prod(x.shape), math.prod(extent for extent in shape if extent != -1)
    if -1 in shape and not known:
        raise ShapeError(f"reshape: shape is {shown(given)}; beside an extent of 0, that of -1 may be any")
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
        raise ShapeError(
            f"getitem: index {index} of {x.label} {x.shape}; expected at most {x.ndim} indices and one ..."
        )
    at = dots[0] if dots else len(index)
    missing = (builtins.slice(None),) * (x.ndim - len(index) + len(dots))
    return (*index[:at], *missing, *index[at + 1 :])


def _range(x: Tensor, axis: int, one: Basic) -> range:
    extent = x.shape[axis]
    if isinstance(one, builtins.slice):
        if one.step == 0 or not all(p is None or integer(p) is not None for p in (one.start, one.stop, one.step)):
            raise ShapeError(f"getitem: index {axis} of {x.label} is {one}; expected integers, and a step but 0")
        return range(*one.indices(extent))
    at = integer(one)
    if at is None or not -extent <= at < extent:
        raise ShapeError(
            f"getitem: index {axis} of {x.label} {x.shape} is {shown(one)}; "
            f"expected a slice or {-extent} to {extent - 1}"
        )
    return range(at % extent, at % extent + 1)
