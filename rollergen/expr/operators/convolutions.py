"""Convolutions (without flipping the kernel, as deep learning has it) and their transposes."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, reduced_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Setting, integer, require_tensor, require_vector, setting
from rollergen.expr.operators.contractions import sum_and_bias, with_bias
from rollergen.expr.operators.windows import IMAGE, every, over_images, padded_with_zeros, sliding

_KERNEL = {1: "K", 2: "KH, KW", 3: "KD, KH, KW"}
_TAPS = {1: ("kx",), 2: ("ky", "kx"), 3: ("kz", "ky", "kx")}
_MOST_TERMS = 8
"""So many products of one output are added up term by term, so that outputs lie in the lanes of vectors, more in a loop
over the taps: as many as a kernel twice its stride has, along three axes."""


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting | str = 0,
    dilation: Setting = 1, groups: int = 1, *, acc: Any = None, dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of `input` (N, C, L) with weight (F, C / groups, K) into (N, F, OL); arguments as `conv2d`.

    >>> import rollergen as rg
    >>> rg.ops.conv1d(rg.tensor("x", (1, 1, 4)), rg.tensor("w", (1, 1, 2))).evaluate([[[1, 2, 3, 4]]], [[[1, 10]]])
    array([[[21., 32., 43.]]])
    """
    return _convolution("conv1d", 1, input, weight, bias, stride, padding, dilation, groups, acc, dtype, name)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting | str = 0,
    dilation: Setting = 1, groups: int = 1, *, acc: Any = None, dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of `input` (N, C, H, W) with weight (F, C / groups, KH, KW) into (N, F, OH, OW), plus bias (F,).

    `stride`, `padding` and `dilation` are one number or (vertical, horizontal); `padding` may be
    "valid" (none), "same" (OH = ceil(H / stride), the odd row or column at the end), "same_lower" (at the
    beginning), or a pair (before, after) for each direction.

    >>> import rollergen as rg
    >>> x, w = rg.tensor("x", (1, 3, 224, 224)), rg.tensor("w", (64, 3, 7, 7))
    >>> rg.ops.conv2d(x, w, stride=2, padding=3).shape
    (1, 64, 112, 112)

    Raises ShapeError for channels that do not match or a kernel larger than the padded image.
    """
    return _convolution("conv2d", 2, input, weight, bias, stride, padding, dilation, groups, acc, dtype, name)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting | str = 0,
    dilation: Setting = 1, groups: int = 1, *, acc: Any = None, dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of `input` (N, C, D, H, W) with weight (F, C / groups, KD, KH, KW); arguments as `conv2d`.

    >>> import rollergen as rg
    >>> rg.ops.conv3d(rg.tensor("x", (1, 3, 8, 9, 10)), rg.tensor("w", (4, 3, 3, 3, 3)), padding=1).shape
    (1, 4, 8, 9, 10)
    """
    return _convolution("conv3d", 3, input, weight, bias, stride, padding, dilation, groups, acc, dtype, name)


def depthwise_conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting | str = 0,
    dilation: Setting = 1, *, acc: Any = None, dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Each channel of `input` (N, C, H, W) with M filters of its own, weight (C * M, 1, KH, KW): (N, C * M, OH, OW).

    M is the channel multiplier: channel c gives the outputs c * M to c * M + M - 1.  Other arguments as `conv2d`.

    >>> import rollergen as rg
    >>> rg.ops.depthwise_conv2d(rg.tensor("x", (1, 8, 9, 9)), rg.tensor("w", (16, 1, 3, 3)), padding="same").shape
    (1, 16, 9, 9)
    """
    operation, x = "depthwise_conv2d", input
    _check_ranks(operation, 2, x, weight, "(C * M, 1, KH, KW)")
    channels = x.shape[-3]
    if weight.shape[1] != 1 or weight.shape[0] % channels:
        raise ShapeError(
            f"{operation}: {weight.label} has shape {weight.shape}; expected (C * M, 1, KH, KW) "
            f"with the C = {channels} channels of {x.label} {x.shape}"
        )
    return _convolution(operation, 2, x, weight, bias, stride, padding, dilation, channels, acc, dtype, name)


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting = 0,
    output_padding: Setting = 0, groups: int = 1, dilation: Setting = 1, *, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv1d`: `input` (N, C, L), weight (C, F / groups, K) into (N, F, OL); as `conv_transpose2d`.

    >>> import rollergen as rg
    >>> x, w = rg.tensor("x", (1, 1, 2)), rg.tensor("w", (1, 1, 2))
    >>> rg.ops.conv_transpose1d(x, w, stride=2).evaluate([[[1, 2]]], [[[1, 10]]])
    array([[[ 1., 10.,  2., 20.]]])
    """
    settings = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose1d", 1, input, weight, bias, settings, acc, dtype, name)


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting = 0,
    output_padding: Setting = 0, groups: int = 1, dilation: Setting = 1, *, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv2d`: `input` (N, C, H, W), weight (C, F / groups, KH, KW) into (N, F, OH, OW).

    OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.  Nothing is multiplied by
    inserted zeros: with a stride, all products of pixels and taps are one matrix product, of which each
    output then sums the few that reach it; without, each output gathers pixels as a convolution does.

    >>> import rollergen as rg
    >>> x, w = rg.tensor("x", (1, 8, 7, 7)), rg.tensor("w", (8, 4, 3, 3))
    >>> rg.ops.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1).shape
    (1, 4, 14, 14)

    Raises ShapeError for channels that do not match, an `output_padding` that neither stride nor dilation
    exceeds, and outputs without elements.
    """
    settings = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose2d", 2, input, weight, bias, settings, acc, dtype, name)


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Setting = 1, padding: Setting = 0,
    output_padding: Setting = 0, groups: int = 1, dilation: Setting = 1, *, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv3d`: `input` (N, C, D, H, W), weight (C, F / groups, KD, KH, KW); as `conv_transpose2d`.

    >>> import rollergen as rg
    >>> x, w = rg.tensor("x", (1, 8, 3, 4, 5)), rg.tensor("w", (8, 4, 2, 2, 2))
    >>> rg.ops.conv_transpose3d(x, w, stride=2).shape
    (1, 4, 6, 8, 10)
    """
    settings = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose3d", 3, input, weight, bias, settings, acc, dtype, name)


def _transposed(
    operation: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...], acc: Any,
    dtype: Any, name: str | None,
) -> Tensor:  # fmt: skip
    stride, padding, output_padding, groups, dilation = settings
    _check_ranks(operation, rank, x, weight, f"(C, F / groups, {_KERNEL[rank]})")
    channels = x.shape[-rank - 1]
    groups = _checked_groups(operation, groups, channels, weight.shape[1] * (integer(groups) or 0))
    if weight.shape[0] != channels:
        raise ShapeError(
            f"{operation}: {weight.label} {weight.shape} has {weight.shape[0]} channels; {x.label} {x.shape} has "
            f"{channels}; expected equal ones, (C, F / groups, {_KERNEL[rank]})"
        )
    spreads = _spreads(operation, x.shape[-rank:], weight.shape[2:], stride, padding, output_padding, dilation)
    filters = weight.shape[1] * groups
    if bias is not None:
        require_vector(bias, filters, operation, "bias", "one for each filter")
    strided = any(s.stride * s.common > 1 for s in spreads)
    element = (_tap_sums if strided else _gathered_taps)(x, weight, bias, spreads, groups, acc, dtype)
    return over_images(x, rank, "f", filters, [s.out for s in spreads], element, name)


def _tap_sums(
    x: Tensor, weight: Tensor, bias: Tensor | None, spreads: Sequence[_Spread], groups: int, acc: Any, dtype: Any
) -> Any:
    """A function of the output's indices: the products that reach it, summed."""
    rank = len(spreads)
    (*lead, channels), size, (_, per_group, *kernel) = x.shape[:-rank], x.shape[-rank:], weight.shape
    wide = accumulator_dtype(x.dtype) if acc is None else acc
    c = rg.reduce_axis("c", channels // groups)

    def product(*i: Any) -> Any:
        n, f, at_kernel, at_image = i[: len(lead)], i[len(lead)], i[len(lead) + 1 : -rank], i[-rank:]
        channel, filter_ = _in_group(f, c, channels, per_group, groups)
        term = x[(*n, channel, *at_image)] * weight[(channel, filter_, *at_kernel)]
        return rg.sum(term, axis=c, acc=acc, dtype=wide)

    names = (*("n" for _ in lead), "f", *_TAPS[rank], *(f"i{one[-1]}" for one in _TAPS[rank]))
    shape = (*lead, per_group * groups, *kernel, *size)
    products = rg.compute_named(tuple(zip(names, shape, strict=True)), product)

    def reaching(n: Sequence[Any], f: Any, o: Sequence[Any], taps: Sequence[Any]) -> Any:
        read = [s.read(one, t) for s, one, t in zip(spreads, o, taps, strict=True)]
        at_kernel, at_image, conditions = zip(*read, strict=True)
        return rg.select(every(conditions), products[(*n, f, *at_kernel, *at_image)], 0)

    def total(n: Sequence[Any], f: Any, o: Sequence[Any]) -> Any:
        wanted = reduced_dtype(x.dtype) if dtype is None else dtype
        added = None if bias is None else bias[f]
        if math.prod(s.taps for s in spreads) > _MOST_TERMS:
            taps = [rg.reduce_axis(n, s.taps) for n, s in zip(_TAPS[rank], spreads, strict=True)]
            return sum_and_bias(reaching(n, f, o, taps), tuple(taps), added, None, wanted)
        first, *others = (reaching(n, f, o, taps) for taps in itertools.product(*(range(s.taps) for s in spreads)))
        return with_bias(builtins.sum(others, first), added, wanted)

    return total


def _gathered_taps(
    x: Tensor, weight: Tensor, bias: Tensor | None, spreads: Sequence[_Spread], groups: int, acc: Any, dtype: Any
) -> Any:
    """A function of the output's indices: one sum over channels and taps."""
    rank = len(spreads)
    channels, per_group = x.shape[-rank - 1], weight.shape[1]
    c = rg.reduce_axis("c", channels // groups)
    taps = [rg.reduce_axis(n, s.taps) for n, s in zip(_TAPS[rank], spreads, strict=True)]

    def total(n: Sequence[Any], f: Any, o: Sequence[Any]) -> Any:
        channel, filter_ = _in_group(f, c, channels, per_group, groups)
        read = [s.read(one, t) for s, one, t in zip(spreads, o, taps, strict=True)]
        at_kernel, at_image, conditions = zip(*read, strict=True)
        pixel = rg.select(every(conditions), x[(*n, channel, *at_image)], 0)
        product = pixel * weight[(channel, filter_, *at_kernel)]
        return sum_and_bias(product, (c, *taps), None if bias is None else bias[f], acc, dtype)

    return total


def _in_group(f: Any, c: Any, channels: int, per_group: int, groups: int) -> tuple[Any, Any]:
    """(channel, filter within the group) for output filter `f` and the group's channel `c`."""
    return (c, f) if groups == 1 else ((f // per_group) * (channels // groups) + c, f % per_group)


class _Spread:
    """How outputs of a transposed convolution find their taps, along one axis.

    Output ``o`` receives x[i] * w[k] where ``i * stride + k * dilation = o + padding =: t``.  With g = gcd of
    both, t must be a multiple of g, and ``k = (t / g * inverse) % (stride / g) + (stride / g) * j`` for a
    running number j, where ``inverse`` is that of dilation / g modulo stride / g.
    """

    def __init__(self, size: int, kernel: int, stride: int, padding: int, dilation: int, out: int) -> None:
        self.size, self.kernel, self.padding, self.out = size, kernel, padding, out
        self.common = math.gcd(stride, dilation)
        self.stride, self.dilation = stride // self.common, dilation // self.common
        self.inverse = builtins.pow(self.dilation, -1, self.stride) if self.stride > 1 else 0
        self.taps = -(-kernel // self.stride)

    def read(self, output: Any, number: Any) -> tuple[Any, Any, Any]:
        """(index in the kernel, index in x, condition under which both exist)."""
        at = output + self.padding
        reached = None
        if self.common > 1:
            reached = at % self.common == 0
            at = at // self.common
        first = (at * self.inverse) % self.stride if self.stride > 1 else 0
        tap = number * self.stride + first
        source = (at - first * self.dilation) // self.stride - number * self.dilation
        condition = (source >= 0) & (source < self.size)
        if self.kernel % self.stride:
            condition = condition & (tap < self.kernel)
        return tap, source, condition if reached is None else condition & reached


def _spreads(
    operation: str, size: Sequence[int], kernel: Sequence[int], stride: Setting, padding: Setting,
    output_padding: Setting, dilation: Setting,
) -> tuple[_Spread, ...]:  # fmt: skip
    count = len(size)
    steps, spread = (setting(v, operation, n, count, 1) for v, n in ((stride, "stride"), (dilation, "dilation")))
    pads, extra = (
        setting(v, operation, n, count, 0) for v, n in ((padding, "padding"), (output_padding, "output_padding"))
    )
    made = []
    for h, k, s, d, p, e in zip(size, kernel, steps, spread, pads, extra, strict=True):
        if e >= builtins.max(s, d):
            raise ShapeError(
                f"{operation}: output_padding is {shown(output_padding)}; "
                f"expected less than stride or dilation, {s} and {d}"
            )
        out = (h - 1) * s - 2 * p + d * (k - 1) + e + 1
        if out < 1:
            raise ShapeError(
                f"{operation}: padding is {shown(padding)}; it leaves {out} outputs of {h} inputs and {k} taps"
            )
        made.append(_Spread(h, k, s, p, d, out))
    return tuple(made)


def _convolution(
    operation: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Setting,
    padding: Setting | str, dilation: Setting, groups: int, acc: Any, dtype: Any, name: str | None,
) -> Tensor:  # fmt: skip
    groups = _check_convolution(operation, rank, x, weight, groups)
    filters, channels, *kernel = weight.shape
    windows = sliding(operation, x.shape[-rank:], kernel, stride, padding, dilation)
    c, *taps = (rg.reduce_axis(n, e) for n, e in zip(("c", *_TAPS[rank]), (channels, *kernel), strict=True))
    per_group = filters // groups
    if bias is not None:
        require_vector(bias, filters, operation, "bias", f"one for each filter of {weight.label} {weight.shape}")

    def element(n: Sequence[Any], f: Any, o: Sequence[Any]) -> Any:
        at = tuple(w.position(output, tap) for w, output, tap in zip(windows, o, taps, strict=True))
        channel = c if groups == 1 else (f // per_group) * channels + c
        pixel = padded_with_zeros(x, (*n, channel), windows, at)
        return sum_and_bias(pixel * weight[(f, c, *taps)], (c, *taps), None if bias is None else bias[f], acc, dtype)

    return over_images(x, rank, "f", filters, [w.out for w in windows], element, name)


def _check_ranks(operation: str, rank: int, x: Tensor, weight: Tensor, kernel: str) -> None:
    require_tensor(x, operation)
    require_tensor(weight, operation)
    if x.ndim not in (rank + 1, rank + 2) or weight.ndim != rank + 2:
        raise ShapeError(
            f"{operation}: {x.label} has shape {x.shape} and {weight.label} {weight.shape}; "
            f"expected {IMAGE[rank]} and {kernel}"
        )


def _checked_groups(operation: str, given: Any, channels: int, filters: int) -> int:
    groups = integer(given)
    if groups is None or groups < 1 or channels % groups or filters % groups:
        raise ShapeError(
            f"{operation}: groups is {shown(given)}; "
            f"expected a divisor of the {channels} channels and {filters} filters"
        )
    return groups


def _check_convolution(operation: str, rank: int, x: Tensor, weight: Tensor, given: int) -> int:
    """The groups."""
    _check_ranks(operation, rank, x, weight, f"(F, C / groups, {_KERNEL[rank]})")
    channels = x.shape[-rank - 1]
    groups = _checked_groups(operation, given, channels, weight.shape[0])
    if channels // groups != weight.shape[1]:
        swapped = weight.shape[1] % builtins.max(1, channels) == 0 and weight.shape[-1] > x.shape[-1]
        raise ShapeError(
            f"{operation}: {weight.label} {weight.shape} has {weight.shape[1]} channels; {x.label} {x.shape} has "
            f"{channels} in {groups} groups, so {channels // groups} are expected"
            + (f"; the arguments look swapped: {operation}(x, weight)" if swapped else "")
        )
    return groups
