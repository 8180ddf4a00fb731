"""Pooling: a reduction over a sliding window of each channel, or over the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, bounds, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators import reductions
from rollergen.expr.operators.arguments import Setting, flag, integer, require_float, require_tensor, setting
from rollergen.expr.operators.windows import IMAGE, Window, inside, over_images, padded_with_zeros, sliding
from rollergen.expr.positions import LAST_PLACE, better_of

TAPS = {1: ("kx",), 2: ("ky", "kx"), 3: ("kz", "ky", "kx")}


def max_pool1d(
    input: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    dilation: Setting = 1, ceil_mode: bool = False, return_indices: bool = False, *, name: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """The largest element of each window of `input` (N, C, L); arguments as `max_pool2d`.

    >>> import rollergen as rg
    >>> rg.ops.max_pool1d(rg.tensor("x", (1, 1, 4)), 2).evaluate([[[1, 3, 4, 2]]])
    array([[[3., 4.]]])
    """
    settings = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool1d", 1, input, settings, return_indices, name)


def max_pool2d(
    input: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    dilation: Setting = 1, ceil_mode: bool = False, return_indices: bool = False, *, name: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """The largest element of each window of `input` (N, C, H, W) or (C, H, W) into (N, C, OH, OW); NaN if any is.

    `kernel_size`, `stride` (None: the kernel's size), `padding` and `dilation` are one number or (vertical,
    horizontal); padding never wins.  `ceil_mode` keeps a last window that is cut off by the border.  With
    `return_indices` a pair: also where in its image (row-major, int64) each stands, the first of equals and the last of
    NaN.

    >>> import rollergen as rg
    >>> rg.ops.max_pool2d(rg.tensor("x", (1, 64, 112, 112)), 3, stride=2, padding=1).shape
    (1, 64, 56, 56)

    Raises ShapeError for padding of more than half a window (which could hold nothing else).
    """
    settings = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool2d", 2, input, settings, return_indices, name)


def max_pool3d(
    input: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    dilation: Setting = 1, ceil_mode: bool = False, return_indices: bool = False, *, name: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """The largest element of each window of `input` (N, C, D, H, W); arguments as `max_pool2d`.

    >>> import rollergen as rg
    >>> rg.ops.max_pool3d(rg.tensor("x", (1, 4, 8, 8, 8)), 2).shape
    (1, 4, 4, 4, 4)
    """
    settings = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool3d", 3, input, settings, return_indices, name)


def avg_pool1d(
    input: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of `input` (N, C, L), floating; arguments as `avg_pool2d`.

    >>> import rollergen as rg
    >>> rg.ops.avg_pool1d(rg.tensor("x", (1, 1, 4)), 2).evaluate([[[1, 3, 4, 2]]])
    array([[[2., 3.]]])
    """
    settings = (kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool1d", 1, input, settings, count_include_pad, None, name)


def avg_pool2d(
    input: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of `input` (N, C, H, W) or (C, H, W), floating, into (N, C, OH, OW); as `max_pool2d`.

    Zeros of the padding count as elements, unless `count_include_pad` is False; what `ceil_mode` adds beyond
    the padding never counts.  `divisor_override` divides by itself instead.

    >>> import rollergen as rg
    >>> rg.ops.avg_pool2d(rg.tensor("x", (1, 1, 2, 2)), 2).evaluate([[[[1.0, 2.0], [3.0, 4.0]]]])
    array([[[[2.5]]]])
    """
    settings = (kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool2d", 2, input, settings, count_include_pad, divisor_override, name)


def avg_pool3d(
    input: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of `input` (N, C, D, H, W), floating; arguments as `avg_pool2d`.

    >>> import rollergen as rg
    >>> rg.ops.avg_pool3d(rg.tensor("x", (1, 4, 8, 8, 8)), 2).shape
    (1, 4, 4, 4, 4)
    """
    settings = (kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool3d", 3, input, settings, count_include_pad, divisor_override, name)


def _max_pool(
    operation: str, rank: int, x: Tensor, settings: tuple[Any, ...], return_indices: bool, name: str | None
) -> Tensor | tuple[Tensor, Tensor]:
    windows = _windows(operation, rank, x, *settings)
    taps = [rg.reduce_axis(n, w.taps) for n, w in zip(TAPS[rank], windows, strict=True)]
    read = lambda n, c, o: _read(x, windows, taps, n, c, o)
    return largest(operation, x, [w.out for w in windows], taps, read, return_indices, name)


def largest(
    operation: str, x: Tensor, outs: Sequence[int], taps: Sequence[Any], read: Callable[..., Any],
    return_indices: bool, name: str | None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """The largest element over `taps` of ``read(n, c, outputs)``: an element, its position, and the condition that it
    counts (None: it always does); with `return_indices` a pair, also where in its image it stands."""
    rank, fill = len(outs), bounds(x.dtype)[0]
    counted = lambda condition, value, other: value if condition is None else rg.select(condition, value, other)

    def element(n: Any, c: Any, o: Any) -> Any:
        pixel, _, condition = read(n, c, o)
        return rg.cast(rg.max(counted(condition, pixel, fill), axis=tuple(taps)), x.dtype)

    values = over_images(x, rank, "c", x.shape[-rank - 1], outs, element, name)
    if not flag(return_indices, operation, "return_indices"):
        return values
    better = better_of(is_float(x.dtype), 1, last_nan=True)  # as torch's poolings have it

    def place(n: Any, c: Any, o: Any) -> Any:
        pixel, at, condition = read(n, c, o)
        flat = at[0]
        for extent, one in zip(x.shape[-rank + 1 :], at[1:], strict=True) if rank > 1 else ():
            flat = flat * extent + one
        known = counted(condition, pixel, fill), counted(condition, flat, LAST_PLACE)
        return rg.cast(rg.reduce(better, (fill, LAST_PLACE), known, axis=tuple(taps))[1], "int64")

    return values, over_images(x, rank, "c", x.shape[-rank - 1], outs, place, None)


def _read(
    x: Tensor, windows: Sequence[Window], taps: Sequence[Any], n: Any, c: Any, o: Any
) -> tuple[Any, list[Any], Any]:
    """The element under a window, its position, and the condition that it is no padding."""
    at = [w.position(one, t) for w, one, t in zip(windows, o, taps, strict=True)]
    return x[(*n, c, *at)], at, inside(windows, at)


def _avg_pool(
    operation: str, rank: int, x: Tensor, settings: tuple[Any, ...], count_include_pad: bool,
    divisor_override: int | None, name: str | None,
) -> Tensor:  # fmt: skip
    require_float(x, operation)
    windows = _windows(operation, rank, x, *settings)
    include = flag(count_include_pad, operation, "count_include_pad")
    divisor = integer(divisor_override)
    if divisor_override is not None and not divisor:
        raise ShapeError(
            f"{operation}: divisor_override is {shown(divisor_override)}; expected None or an integer but 0"
        )
    taps = [rg.reduce_axis(n, w.taps) for n, w in zip(TAPS[rank], windows, strict=True)]
    wide = accumulator_dtype(x.dtype)

    def element(n: Any, c: Any, o: Any) -> Any:
        at = [w.position(one, t) for w, one, t in zip(windows, o, taps, strict=True)]
        counted = padded_with_zeros(x, (*n, c), windows, at)
        total = rg.sum(counted, axis=tuple(taps), dtype=wide)
        count = divisor or _counted(windows, o, include)
        return rg.cast(total / (count if isinstance(count, int) else rg.cast(count, wide)), x.dtype)

    return over_images(x, rank, "c", x.shape[-rank - 1], [w.out for w in windows], element, name)


def global_avg_pool(input: Tensor, keepdim: bool = True, *, name: str | None = None) -> Tensor:
    """The mean of every channel of `input` (N, C, ...), floating, into (N, C, 1, ...), or (N, C) without `keepdim`.

    >>> import rollergen as rg
    >>> rg.ops.global_avg_pool(rg.tensor("x", (2, 64, 7, 7))).shape
    (2, 64, 1, 1)
    """
    return reductions.mean(input, _channel_axes("global_avg_pool", input), keepdim, name=name)


def global_max_pool(input: Tensor, keepdim: bool = True, *, name: str | None = None) -> Tensor:
    """The largest element of every channel of `input` (N, C, ...) into (N, C, 1, ...), or (N, C) without `keepdim`.

    >>> import rollergen as rg
    >>> rg.ops.global_max_pool(rg.tensor("x", (2, 64, 7, 7)), keepdim=False).shape
    (2, 64)
    """
    return reductions.amax(input, _channel_axes("global_max_pool", input), keepdim, name=name)


def _channel_axes(operation: str, x: Tensor) -> tuple[int, ...]:
    require_tensor(x, operation)
    if x.ndim < 3:
        raise ShapeError(f"{operation}: {x.label} has shape {x.shape}; expected (N, C, ...) with an axis to pool over")
    return tuple(range(2, x.ndim))


def _windows(
    operation: str, rank: int, x: Tensor, kernel_size: Setting, stride: Setting | None, padding: Setting | str,
    dilation: Setting, ceil_mode: bool,
) -> tuple[Window, ...]:  # fmt: skip
    require_tensor(x, operation)
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{operation}: {x.label} has shape {x.shape}; expected {IMAGE[rank]}")
    taps = setting(kernel_size, operation, "kernel_size", rank, 1)
    steps = taps if stride is None or stride == () or stride == [] else stride
    ceil_mode = flag(ceil_mode, operation, "ceil_mode")
    windows = sliding(operation, x.shape[-rank:], taps, steps, padding, dilation, what="window", ceil_mode=ceil_mode)
    if any(2 * w.before > w.taps for w in windows) and not isinstance(padding, str):
        raise ShapeError(
            f"{operation}: padding is {shown(padding)}; "
            f"expected at most half of the window, {tuple(k // 2 for k in taps)}"
        )
    return windows


def _counted(windows: Sequence[Window], outputs: Sequence[Any], include_padding: bool) -> Any:
    """How many elements each window averages over: a number where all are alike, else an expression."""
    count: Any = 1
    for window, output in zip(windows, outputs, strict=True):
        low, high = (-window.before, window.size + window.after) if include_padding else (0, window.size)
        if low <= -window.before and window.last < high:
            count = count * window.taps
            continue
        first, end = window.position(output, 0), window.position(output, window.taps)
        first = first if low == -window.before else rg.maximum(first, low)
        count = (rg.minimum(end, high) - first) * count
    return count
