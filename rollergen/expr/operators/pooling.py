"""Pooling: a reduction over a sliding window of each channel, or over the whole of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators import reductions
from rollergen.expr.operators.arguments import Setting, flag, integer, require_float, require_tensor, setting
from rollergen.expr.operators.windows import Window, inside, sliding

_LEAST = {"int8": -(2**7), "int32": -(2**31), "int64": -(2**63)}


def max_pool2d(
    x: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0, dilation: Setting = 1,
    ceil_mode: bool = False, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window of x (N, C, H, W) into (N, C, OH, OW); NaN if any is.

    `kernel_size`, `stride` (None: the kernel's size), `padding` and `dilation` are one number or (vertical,
    horizontal); padding never wins.  `ceil_mode` keeps a last window that is cut off by the border.

    >>> import rollergen as rg
    >>> rg.ops.max_pool2d(rg.tensor("x", (1, 64, 112, 112)), 3, stride=2, padding=1).shape
    (1, 64, 56, 56)

    Raises ShapeError for padding of more than half a window (which could hold nothing else).
    """
    windows = _windows("max_pool2d", x, kernel_size, stride, padding, dilation, ceil_mode)
    fill = _LEAST.get(x.dtype, -math.inf)
    ky, kx = taps = [rg.reduce_axis(n, w.taps) for n, w in zip(("ky", "kx"), windows, strict=True)]

    def element(n: Any, c: Any, oy: Any, ox: Any) -> Any:
        at = [w.position(o, t) for w, o, t in zip(windows, (oy, ox), taps, strict=True)]
        condition = inside(windows, at)
        pixel = x[n, c, at[0], at[1]]
        largest = rg.max(pixel if condition is None else rg.select(condition, pixel, fill), axis=(ky, kx))
        return rg.cast(largest, x.dtype)

    return rg.compute((*x.shape[:2], *(w.out for w in windows)), element, name)


def avg_pool2d(
    x: Tensor, kernel_size: Setting, stride: Setting | None = None, padding: Setting | str = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of x (N, C, H, W), floating, into (N, C, OH, OW); arguments as `max_pool2d`.

    Zeros of the padding count as elements, unless `count_include_pad` is False; what `ceil_mode` adds beyond
    the padding never counts.  `divisor_override` divides by itself instead.

    >>> import rollergen as rg
    >>> rg.ops.avg_pool2d(rg.tensor("x", (1, 1, 2, 2)), 2).evaluate([[[[1.0, 2.0], [3.0, 4.0]]]])
    array([[[[2.5]]]])
    """
    require_float(x, "avg_pool2d")
    windows = _windows("avg_pool2d", x, kernel_size, stride, padding, 1, ceil_mode)
    include = flag(count_include_pad, "avg_pool2d", "count_include_pad")
    divisor = integer(divisor_override)
    if divisor_override is not None and not divisor:
        raise ShapeError(
            f"avg_pool2d: divisor_override is {shown(divisor_override)}; expected None or an integer but 0"
        )
    ky, kx = taps = [rg.reduce_axis(n, w.taps) for n, w in zip(("ky", "kx"), windows, strict=True)]
    wide = accumulator_dtype(x.dtype)

    def element(n: Any, c: Any, oy: Any, ox: Any) -> Any:
        at = [w.position(o, t) for w, o, t in zip(windows, (oy, ox), taps, strict=True)]
        condition = inside(windows, at)
        pixel = x[n, c, at[0], at[1]]
        total = rg.sum(pixel if condition is None else rg.select(condition, pixel, 0), axis=(ky, kx), dtype=wide)
        count = divisor or _counted(windows, (oy, ox), include)
        return rg.cast(total / (count if isinstance(count, int) else rg.cast(count, wide)), x.dtype)

    return rg.compute((*x.shape[:2], *(w.out for w in windows)), element, name)


def global_avg_pool(x: Tensor, keepdims: bool = True, *, name: str | None = None) -> Tensor:
    """The mean of every channel of x (N, C, ...), floating, into (N, C, 1, ...), or (N, C) without `keepdims`.

    >>> import rollergen as rg
    >>> rg.ops.global_avg_pool(rg.tensor("x", (2, 64, 7, 7))).shape
    (2, 64, 1, 1)
    """
    return reductions.mean(x, _channel_axes("global_avg_pool", x), keepdims, name=name)


def global_max_pool(x: Tensor, keepdims: bool = True, *, name: str | None = None) -> Tensor:
    """The largest element of every channel of x (N, C, ...) into (N, C, 1, ...), or (N, C) without `keepdims`.

    >>> import rollergen as rg
    >>> rg.ops.global_max_pool(rg.tensor("x", (2, 64, 7, 7)), keepdims=False).shape
    (2, 64)
    """
    return reductions.max(x, _channel_axes("global_max_pool", x), keepdims, name=name)


def _channel_axes(operation: str, x: Tensor) -> tuple[int, ...]:
    require_tensor(x, operation)
    if x.ndim < 3:
        raise ShapeError(f"{operation}: {x.label} has shape {x.shape}; expected (N, C, ...) with an axis to pool over")
    return tuple(range(2, x.ndim))


def _windows(
    operation: str, x: Tensor, kernel_size: Setting, stride: Setting | None, padding: Setting | str,
    dilation: Setting, ceil_mode: bool,
) -> tuple[Window, ...]:  # fmt: skip
    require_tensor(x, operation)
    if x.ndim != 4:
        raise ShapeError(f"{operation}: {x.label} has shape {x.shape}; expected (N, C, H, W)")
    taps = setting(kernel_size, operation, "kernel_size", 2, 1)
    steps = taps if stride is None else stride
    ceil_mode = flag(ceil_mode, operation, "ceil_mode")
    windows = sliding(operation, x.shape[2:], taps, steps, padding, dilation, what="window", ceil_mode=ceil_mode)
    if any(2 * w.before > w.taps for w in windows) and padding != "same":
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
