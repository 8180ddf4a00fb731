"""Rearrangements beyond views: parts, repetitions, triangles, and windows as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import is_integer
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import axes_of, axis_of, integer, integers, require_tensor, setting
from rollergen.expr.operators.views import concat, permute, reshape, slice
from rollergen.expr.operators.windows import padded_with_zeros, sliding


def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0, *, name: str | None = None
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one extent, the last with what is left, or of the extents given.

    >>> import rollergen as rg
    >>> rg.ops.split(rg.tensor("x", (5, 2)), 2)[2].shape
    (1, 2)

    Raises ShapeError where the extents do not add up to that of the axis.
    """
    require_tensor(tensor, "split")
    position = axis_of(dim, tensor, "split")
    extent, one = tensor.shape[position], integer(split_size_or_sections)
    sizes = integers(split_size_or_sections) if one is None else None
    if one is not None and (one > 0 or one == extent == 0):
        sizes = tuple(min(one, extent - start) for start in range(0, max(extent, 1), max(one, 1)))
    if sizes is None or sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ShapeError(
            f"split: split_size_or_sections is {shown(split_size_or_sections)}; expected an integer of at least 1, or "
            f"integers of at least 0 that add up to the {extent} elements of axis {position} of {tensor.label}"
        )
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return tuple(
        slice(tensor, position, start, start + size, name=f"{name}{n}" if name else None)
        for n, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )


def chunk(input: Tensor, chunks: int, dim: int = 0, *, name: str | None = None) -> tuple[Tensor, ...]:
    """At most `chunks` parts of equal extent along `dim`; the last may be shorter.

    >>> import rollergen as rg
    >>> rg.ops.chunk(rg.tensor("x", (5,)), 3)[2].shape
    (1,)
    """
    require_tensor(input, "chunk")
    count = integer(chunks)
    if count is None or count < 1:
        raise ShapeError(f"chunk: chunks is {shown(chunks)}; expected an integer of at least 1")
    return split(input, -(-input.shape[axis_of(dim, input, "chunk")] // count), dim, name=name)


def stack(tensors: Sequence[Tensor], dim: int = 0, *, name: str | None = None) -> Tensor:
    """Tensors of equal shape side by side along a new axis `dim`.

    >>> import rollergen as rg
    >>> rg.ops.stack([rg.tensor("a", (2, 3)), rg.tensor("b", (2, 3))], -1).shape
    (2, 3, 2)
    """
    if not isinstance(tensors, (tuple, list)) or not tensors:
        raise ExpressionError(f"stack: tensors is {shown(tensors)}; expected a list of at least one tensor")
    for one in tensors:
        require_tensor(one, "stack")
        if one.shape != tensors[0].shape:
            raise ShapeError(f"stack: {one.label} has shape {one.shape}; expected {tensors[0].shape}, as the first")
    rank, position = tensors[0].ndim + 1, integer(dim)
    if position is None or not -rank <= position < rank:
        raise ShapeError(f"stack: axis is {shown(dim)}; expected one of {-rank} to {rank - 1}")
    position %= rank
    shape = (*tensors[0].shape[:position], 1, *tensors[0].shape[position:])
    return concat([reshape(one, shape) for one in tensors], position, name=name)


def tile(input: Tensor, dims: Sequence[int], *, name: str | None = None) -> Tensor:
    """`input` repeated ``dims[d]`` times along axis d.

    Of fewer `dims` than axes, or more, the last belong to the last.

    >>> import rollergen as rg
    >>> rg.ops.tile(rg.tensor("x", (2,)), (2, 2)).evaluate([1.0, 2.0])
    array([[1., 2., 1., 2.],
           [1., 2., 1., 2.]])
    """
    require_tensor(input, "tile")
    times = integers(dims)
    if times is None or any(one < 0 for one in times):
        raise ShapeError(f"tile: dims is {shown(dims)}; expected integers of at least 0")
    rank = max(input.ndim, len(times))
    return _repeated(input, (1,) * (rank - len(times)) + times, name)


def repeat(input: Tensor, repeats: Sequence[int], *, name: str | None = None) -> Tensor:
    """`input` repeated along its axes, and along new ones before them: an integer for each axis of the result.

    >>> import rollergen as rg
    >>> rg.ops.repeat(rg.tensor("x", (2, 3)), (4, 1, 2)).shape
    (4, 2, 6)
    """
    require_tensor(input, "repeat")
    times = integers(repeats)
    if times is None or len(times) < input.ndim or any(one < 0 for one in times):
        raise ShapeError(
            f"repeat: repeats is {shown(repeats)}; expected at least {input.ndim} integers of at least 0 for "
            f"{input.label} {input.shape}"
        )
    return _repeated(input, times, name)


def _repeated(x: Tensor, times: Sequence[int], name: str | None) -> Tensor:
    own = (1,) * (len(times) - x.ndim) + x.shape
    added = len(times) - x.ndim
    shape = tuple(extent * count for extent, count in zip(own, times, strict=True))
    return rg.compute(shape, lambda *i: x[tuple(i[added + d] % extent for d, extent in enumerate(x.shape))], name)


def flip(input: Tensor, dims: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """`input` in reverse order along the axes `dims`.

    >>> import rollergen as rg
    >>> rg.ops.flip(rg.tensor("x", (3,)), 0).evaluate([1.0, 2.0, 3.0])
    array([3., 2., 1.])
    """
    require_tensor(input, "flip")
    turned = () if dims in ((), []) else axes_of(dims, input, "flip")
    at = lambda i: tuple(input.shape[d] - 1 - one if d in turned else one for d, one in enumerate(i))
    return rg.compute(input.shape, lambda *i: input[at(i)], name)


def roll(
    input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None, *, name: str | None = None
) -> Tensor:
    """`input` with its elements moved by `shifts` along `dims`; what leaves at the end comes in at the beginning.

    Without `dims` the elements move in row-major order, as if there were one axis.

    >>> import rollergen as rg
    >>> rg.ops.roll(rg.tensor("x", (3,)), 1).evaluate([1.0, 2.0, 3.0])
    array([3., 1., 2.])
    """
    require_tensor(input, "roll")
    moved = integers(shifts)
    if dims is None or dims == () or dims == []:
        if moved is None or len(moved) != 1:
            raise ShapeError(f"roll: shifts is {shown(shifts)} without dims; expected one integer")
        flat = reshape(input, (-1,))
        return reshape(roll(flat, moved, (0,)), input.shape, name=name)
    axes = integers(dims)
    if moved is None or axes is None or len(moved) != len(axes):
        raise ShapeError(f"roll: shifts is {shown(shifts)} and dims {shown(dims)}; expected as many integers")
    by: dict[int, int] = {}
    for axis, shift in zip(axes, moved, strict=True):
        position = axis_of(axis, input, "roll")
        by[position] = by.get(position, 0) + shift
    back = {d: -shift % max(input.shape[d], 1) for d, shift in by.items()}
    at = lambda i: tuple((one + back[d]) % input.shape[d] if back.get(d) else one for d, one in enumerate(i))
    return rg.compute(input.shape, lambda *i: input[at(i)], name)


def tril(input: Tensor, diagonal: int = 0, *, name: str | None = None) -> Tensor:
    """The lower triangle of the last two axes, up to that diagonal (1: the one above the main); 0 beyond.

    >>> import rollergen as rg
    >>> rg.ops.tril(rg.tensor("x", (2, 2))).evaluate([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 0.],
           [3., 4.]])
    """
    return _triangle("tril", input, diagonal, name, lambda row, column, last: column <= row + last)


def triu(input: Tensor, diagonal: int = 0, *, name: str | None = None) -> Tensor:
    """The upper triangle of the last two axes, from that diagonal on; 0 below.

    >>> import rollergen as rg
    >>> rg.ops.triu(rg.tensor("x", (2, 2))).evaluate([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 2.],
           [0., 4.]])
    """
    return _triangle("triu", input, diagonal, name, lambda row, column, first: column >= row + first)


def _triangle(operation: str, x: Tensor, diagonal: int, name: str | None, kept: Any) -> Tensor:
    require_tensor(x, operation)
    offset = integer(diagonal)
    if x.ndim < 2 or offset is None:
        raise ShapeError(
            f"{operation}: {x.label} has shape {x.shape} and diagonal is {shown(diagonal)}; expected at least two "
            "axes, and an integer"
        )
    zero = False if x.dtype == "bool" else 0
    return rg.compute(x.shape, lambda *i: rg.select(kept(i[-2], i[-1], offset), x[i], zero), name)


def one_hot(input: Tensor, num_classes: int, *, dtype: Any = "int64", name: str | None = None) -> Tensor:
    """A new last axis of extent `num_classes`: 1 at the integer that `input` holds, else 0.

    The number of classes is required, for the values are not known; integers outside give rows of 0.

    >>> import rollergen as rg
    >>> rg.ops.one_hot(rg.tensor("x", (2,), "int64"), 3).evaluate([2, 0])
    array([[0, 0, 1],
           [1, 0, 0]])
    """
    require_tensor(input, "one_hot")
    classes = integer(num_classes)
    if classes is None or classes < 1:
        raise ShapeError(f"one_hot: num_classes is {shown(num_classes)}; expected an integer of at least 1")
    if not is_integer(input.dtype):
        raise DtypeError(f"one_hot: {input.label} has dtype {input.dtype}; expected integers")

    def element(*i: Any) -> Any:
        here = rg.cast(input[i[:-1]], "int64") == rg.cast(i[-1], "int64")
        return rg.cast(rg.select(here, 1, 0), dtype)

    return rg.compute((*input.shape, classes), element, name)


def pixel_shuffle(input: Tensor, upscale_factor: int, *, name: str | None = None) -> Tensor:
    """(..., C r r, H, W) as (..., C, H r, W r), with r the `upscale_factor` (Shi et al., arXiv:1609.05158).

    >>> import rollergen as rg
    >>> rg.ops.pixel_shuffle(rg.tensor("x", (1, 8, 2, 3)), 2).shape
    (1, 2, 4, 6)
    """
    r = _factor("pixel_shuffle", input, upscale_factor, lambda x, r: x.shape[-3] % (r * r) == 0)
    (*lead, c, h, w), n = input.shape, input.ndim - 3
    parts = reshape(input, (*lead, c // (r * r), r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(permute(parts, order), (*lead, c // (r * r), h * r, w * r), name=name)


def pixel_unshuffle(input: Tensor, downscale_factor: int, *, name: str | None = None) -> Tensor:
    """(..., C, H r, W r) as (..., C r r, H, W): what undoes `pixel_shuffle`.

    >>> import rollergen as rg
    >>> rg.ops.pixel_unshuffle(rg.tensor("x", (1, 2, 4, 6)), 2).shape
    (1, 8, 2, 3)
    """
    fits = lambda x, r: x.shape[-1] % r == x.shape[-2] % r == 0
    r = _factor("pixel_unshuffle", input, downscale_factor, fits)
    (*lead, c, h, w), n = input.shape, input.ndim - 3
    parts = reshape(input, (*lead, c, h // r, r, w // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return reshape(permute(parts, order), (*lead, c * r * r, h // r, w // r), name=name)


def _factor(operation: str, x: Tensor, factor: int, fits: Any) -> int:
    require_tensor(x, operation)
    r = integer(factor)
    if r is None or r < 1 or x.ndim < 3 or not fits(x, r):
        raise ShapeError(
            f"{operation}: {x.label} has shape {x.shape} and the factor is {shown(factor)}; expected "
            "(..., C, H, W), and a factor that divides them"
        )
    return r


def unfold(
    input: Tensor, kernel_size: int | Sequence[int], dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, stride: int | Sequence[int] = 1, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Windows of `input` (N, C, H, W) or (C, H, W) as columns (N, C KH KW, windows): torch.nn.functional's, im2col.

    >>> import rollergen as rg
    >>> rg.ops.unfold(rg.tensor("x", (1, 3, 5, 5)), 3, padding=1).shape
    (1, 27, 25)
    """
    require_tensor(input, "unfold")
    if input.ndim not in (3, 4):
        raise ShapeError(f"unfold: {input.label} has shape {input.shape}; expected (N, C, H, W) or (C, H, W)")
    taps = setting(kernel_size, "unfold", "kernel_size", 2, 1)
    windows = sliding("unfold", input.shape[-2:], taps, stride, padding, dilation)
    zero = False if input.dtype == "bool" else 0
    outs = tuple(one.out for one in windows)

    def element(*i: Any) -> Any:
        (*lead, row, place), count = i, taps[0] * taps[1]
        channel, ky, kx = row // count, row % count // taps[1], row % taps[1]
        at = [w.position(o, t) for w, o, t in zip(windows, (place // outs[1], place % outs[1]), (ky, kx), strict=True)]
        return padded_with_zeros(input, (*lead, channel), windows, at, zero)

    lead = input.shape[:-3]
    return rg.compute((*lead, input.shape[-3] * taps[0] * taps[1], math.prod(outs)), element, name)


def unfold_copy(input: Tensor, dimension: int, size: int, step: int, *, name: str | None = None) -> Tensor:
    """Windows of `size` elements along axis `dimension`, one every `step`, as a new last axis.

    It is the method `unfold` of tensors.

    >>> import rollergen as rg
    >>> rg.ops.unfold_copy(rg.tensor("x", (4,)), 0, 3, 1).evaluate([1.0, 2.0, 3.0, 4.0])
    array([[1., 2., 3.],
           [2., 3., 4.]])

    Raises ShapeError for windows longer than the axis.
    """
    require_tensor(input, "unfold_copy")
    taps, stride = integer(size), integer(step)
    axis = axis_of(dimension, input, "unfold_copy") if input.ndim else 0
    extent = input.shape[axis] if input.ndim else 1
    if taps is None or stride is None or not 1 <= taps <= extent or stride < 1:
        raise ShapeError(
            f"unfold_copy: size is {shown(size)} and step {shown(step)}; expected 1 to {extent}, the extent of axis "
            f"{axis} of {input.label}, and a step of at least 1"
        )
    if not input.ndim:
        return reshape(input, (1,), name=name)
    shape = (*input.shape[:axis], (extent - taps) // stride + 1, *input.shape[axis + 1 :], taps)
    return rg.compute(shape, lambda *i: input[(*i[:axis], i[axis] * stride + i[-1], *i[axis + 1 : -1])], name)
