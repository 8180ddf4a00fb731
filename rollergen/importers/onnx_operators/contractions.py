"""ONNX products, convolutions and poolings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.dtypes import accumulator_dtype, bounds
from rollergen.expr.einsum import einsum
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import broadcast_index
from rollergen.expr.operators.windows import Window, every, inside
from rollergen.importers.onnx_operators.pointwise import pointwise
from rollergen.importers.onnx_operators.reductions import along
from rollergen.importers.onnx_operators.table import Node, operator, operators
from rollergen.importers.refusals import Refused

operators(
    MatMul=lambda n: product(n.tensor(0), n.tensor(1)),
    Einsum=lambda n: einsum(n.get("equation"), *(n.tensor(i) for i in range(len(n.inputs)))),
    GlobalAveragePool=lambda n: ops.global_avg_pool(n.tensor(0)),
    GlobalMaxPool=lambda n: ops.global_max_pool(n.tensor(0)),
)


def product(a: Tensor, b: Tensor) -> Tensor:
    """NumPy's matmul: vectors, matrices, and leading axes that broadcast."""
    if a.ndim == 1 or b.ndim == 1:
        wide = product(ops.reshape(a, (1, -1)) if a.ndim == 1 else a, ops.reshape(b, (-1, 1)) if b.ndim == 1 else b)
        shape = wide.shape[: -2 if a.ndim == 1 else -1] + (() if b.ndim == 1 else wide.shape[-1:])
        return ops.reshape(wide, shape)
    if a.ndim == b.ndim == 2:
        return ops.matmul(a, b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.shape[:-2] == b.shape[:-2]:
        return ops.batch_matmul(a, b)
    k = rg.reduce_axis("k", a.shape[-1])

    def element(*i: Any) -> Any:
        *batch, row, column = i
        left, right = (broadcast_index(t.shape[:-2], batch) for t in (a, b))
        return rg.sum(a[(*left, row, k)] * b[(*right, k, column)], axis=k)

    return rg.compute((*lead, a.shape[-2], b.shape[-1]), element)


@operator("Gemm")
def gemm(n: Node) -> Tensor:
    made = ops.matmul(
        n.tensor(0), n.tensor(1), transpose_a=bool(n.get("transA", 0)), transpose_b=bool(n.get("transB", 0))
    )
    alpha, beta = n.get("alpha", 1.0), n.get("beta", 1.0)
    scaled = lambda x, factor: x if factor == 1 else pointwise(lambda v: v * factor, x)
    return ops.add(scaled(made, alpha), scaled(n.tensor(2), beta)) if n.has(2) else scaled(made, alpha)


def taps_within(window: Window, low: int, high: int) -> np.ndarray:
    """Taps of each output that lie from `low` to `high`."""
    at = window.position(np.arange(window.out)[:, None], np.arange(window.taps))
    return ((at >= low) & (at < high)).sum(axis=1)


def windows_of(n: Node, size: Sequence[int], taps: Sequence[int]) -> list[Window]:
    rank = len(size)
    strides, dilations = n.get("strides") or [1] * rank, n.get("dilations") or [1] * rank
    pads, automatic = n.get("pads") or [0] * 2 * rank, n.get("auto_pad", "NOTSET")
    made = []
    for d, (h, k, s, spread) in enumerate(zip(size, taps, strides, dilations, strict=True)):
        reach = (k - 1) * spread + 1
        before, after = pads[d], pads[d + rank]
        if automatic.startswith("SAME"):
            total = max((-(-h // s) - 1) * s + reach - h, 0)
            before = total // 2 if automatic == "SAME_UPPER" else total - total // 2
            after = total - before
        elif automatic == "VALID":
            before = after = 0
        room = h + before + after - reach
        out = (-(-room // s) if n.get("ceil_mode", 0) else room // s) + 1
        if (out - 1) * s >= h + before:
            out -= 1
        made.append(Window(h, k, s, spread, before, after, out))
    return made


def symmetric(windows: Sequence[Window]) -> bool:
    return all(w.before == w.after for w in windows)


@operator("Conv")
def convolution(n: Node) -> Tensor:
    return convolved(n, n.tensor(0), n.tensor(1), n.optional(2))


def convolved(n: Node, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    windows = windows_of(n, x.shape[2:], weight.shape[2:])
    function = {3: ops.conv1d, 4: ops.conv2d, 5: ops.conv3d}.get(x.ndim)
    if function is None:
        raise Refused("attribute", f"a convolution of rank {x.ndim}")
    padding = tuple(w.before for w in windows)
    if not symmetric(windows):
        x = ops.pad(x, [width for w in reversed(windows) for width in (w.before, w.after)])
        padding = (0,) * len(windows)
    strides, dilations = tuple(w.stride for w in windows), tuple(w.dilation for w in windows)
    return function(x, weight, bias, strides, padding, dilations, n.get("group", 1))


@operator("CausalConvWithState")
def causal_convolution(n: Node) -> Any:
    x, weight, past = n.tensor(0), n.tensor(1), n.optional(3)
    kept = weight.shape[2] - 1
    padded = ops.pad(x, (kept, 0)) if past is None else ops.concat([past, x], 2)
    made = ops.conv1d(padded, weight, n.optional(2), groups=x.shape[1])
    if n.get("activation", "none") != "none":
        made = ops.silu(made)
    return made, ops.getitem(padded, (..., slice(padded.shape[2] - kept, None)))


@operator("ConvTranspose")
def transposed_convolution(n: Node) -> Tensor:
    x, weight, bias, groups = n.tensor(0), n.tensor(1), n.optional(2), n.get("group", 1)
    rank = x.ndim - 2
    strides, dilations = n.get("strides") or [1] * rank, n.get("dilations") or [1] * rank
    extra, shape = n.get("output_padding") or [0] * rank, n.get("output_shape")
    full = [
        (h - 1) * s + (k - 1) * d + 1 + e
        for h, k, s, d, e in zip(x.shape[2:], weight.shape[2:], strides, dilations, extra, strict=True)
    ]
    automatic, pads = n.get("auto_pad", "NOTSET"), n.get("pads") or [0] * 2 * rank
    if automatic.startswith("SAME") and shape is None:
        shape = [h * s for h, s in zip(x.shape[2:], strides, strict=True)]
    if shape is not None:
        total = [f - o for f, o in zip(full, shape, strict=True)]
        first = [t // 2 if automatic == "SAME_UPPER" else t - t // 2 for t in total]
        pads = [*first, *(t - a for t, a in zip(total, first, strict=True))]
    before, after = pads[:rank], pads[rank:]
    if rank == 2 and before == after:
        settings = (tuple(strides), tuple(before), tuple(extra), groups, tuple(dilations))
        return ops.conv_transpose2d(x, weight, bias, *settings)
    out = [f - a - b for f, a, b in zip(full, before, after, strict=True)]
    made = _gathered(x, weight, groups, strides, dilations, before, out)
    return made if bias is None else ops.add(made, along(bias, 1, x.ndim))


def _gathered(x: Tensor, weight: Tensor, groups: int, strides: Any, dilations: Any, before: Any, out: Any) -> Tensor:
    """Each output from the pixels that reach it: ``i * stride + k * dilation = o + before``."""
    channels, per_group = x.shape[1] // groups, weight.shape[1]
    c = rg.reduce_axis("c", channels)
    taps = [rg.reduce_axis(f"t{d}", k) for d, k in enumerate(weight.shape[2:])]

    def element(b: Any, f: Any, *o: Any) -> Any:
        reached = [p + a - t * d for p, a, t, d in zip(o, before, taps, dilations, strict=True)]
        source = [r // s for r, s in zip(reached, strides, strict=True)]
        here = [(r >= 0) & (q < h) for r, q, h in zip(reached, source, x.shape[2:], strict=True)]
        here += [r % s == 0 for r, s in zip(reached, strides, strict=True) if s > 1]
        channel = f // per_group * channels + c
        pixel = rg.select(every(here), x[(b, channel, *source)], 0)
        return rg.sum(pixel * weight[(channel, f % per_group, *taps)], axis=(c, *taps))

    return rg.compute((x.shape[0], per_group * groups, *out), element)


@operator("Col2Im")
def column_to_image(n: Node) -> Tensor:
    x, image, block = n.tensor(0), n.integers(1), n.integers(2)
    windows = windows_of(n, image, block)
    channels = x.shape[1] // math.prod(block)
    split = ops.reshape(x, (x.shape[0], channels, *block, *(w.out for w in windows)))
    taps = [rg.reduce_axis(f"t{d}", k) for d, k in enumerate(block)]

    def element(b: Any, c: Any, *o: Any) -> Any:
        reached = [p + w.before - t * w.dilation for p, w, t in zip(o, windows, taps, strict=True)]
        source = [r // w.stride for r, w in zip(reached, windows, strict=True)]
        here = [(r >= 0) & (q < w.out) for r, q, w in zip(reached, source, windows, strict=True)]
        here += [r % w.stride == 0 for r, w in zip(reached, windows, strict=True) if w.stride > 1]
        return rg.sum(rg.select(every(here), split[(b, c, *taps, *source)], 0), axis=tuple(taps))

    return rg.compute((x.shape[0], channels, *image), element)


def gathered(n: Node) -> tuple[Tensor, list[Window], list[Any], Any]:
    """(x, windows, taps, read): ``read(indices, fill)`` is the element under the window, and its position."""
    x = n.tensor(0)
    windows = windows_of(n, x.shape[2:], n.get("kernel_shape"))
    taps = [rg.reduce_axis(f"t{d}", w.taps) for d, w in enumerate(windows)]

    def read(i: Any, fill: Any) -> tuple[Any, list[Any]]:
        at = [w.position(o, t) for w, o, t in zip(windows, i[2:], taps, strict=True)]
        condition, value = inside(windows, at), x[(*i[:2], *at)]
        return (value if condition is None else rg.select(condition, value, fill)), at

    return x, windows, taps, read


def _library(windows: Sequence[Window]) -> bool:
    """Whether `rg.ops` has the pooling: two axes, equal padding of at most half a window on both sides."""
    return len(windows) == 2 and symmetric(windows) and all(2 * w.before <= w.taps for w in windows)


@operator("MaxPool")
def max_pool(n: Node) -> Any:
    x, windows, taps, read = gathered(n)
    shape = (*x.shape[:2], *(w.out for w in windows))
    if _library(windows) and not n.wants(1):
        kernel, stride, padding, dilation = (
            tuple(getattr(w, what) for w in windows) for what in ("taps", "stride", "before", "dilation")
        )
        return ops.max_pool2d(x, kernel, stride, padding, dilation, bool(n.get("ceil_mode", 0)))
    fill = bounds(x.dtype)[0]
    largest = rg.compute(shape, lambda *i: rg.max(read(i, fill)[0], axis=tuple(taps), dtype=x.dtype))
    if not n.wants(1):
        return largest
    order = list(range(x.ndim - 2))
    if n.get("storage_order", 0):
        order.reverse()

    def place(*i: Any) -> Any:
        value, at = read(i, fill)
        flat = i[0] * x.shape[1] + i[1]
        for d in order:
            flat = flat * x.shape[2 + d] + at[d]
        better = lambda a, b: (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        choose = lambda a, b: tuple(rg.select(better(a, b), p, q) for p, q in zip(a, b, strict=True))
        return rg.cast(rg.reduce(choose, (fill, 2**31 - 1), (value, flat), axis=tuple(taps))[1], "int64")

    return largest, rg.compute(shape, place)


@operator("AveragePool")
def average_pool(n: Node) -> Tensor:
    x, windows, taps, read = gathered(n)
    include, ceil = bool(n.get("count_include_pad", 0)), bool(n.get("ceil_mode", 0))
    if _library(windows) and all(w.dilation == 1 for w in windows):
        kernel, stride, padding = (tuple(getattr(w, what) for w in windows) for what in ("taps", "stride", "before"))
        return ops.avg_pool2d(x, kernel, stride, padding, ceil, include)
    counts: Any = np.ones(())
    for w in windows:
        low, high = (-w.before, w.size + w.after) if include else (0, w.size)
        counts = np.multiply.outer(counts, taps_within(w, low, high))
    wide = accumulator_dtype(x.dtype)
    total = rg.compute(
        (*x.shape[:2], *(w.out for w in windows)), lambda *i: rg.sum(read(i, 0)[0], axis=tuple(taps), dtype=wide)
    )
    return ops.cast(ops.div(total, n.constant(counts.astype(wide))), x.dtype)


@operator("LpPool")
def lp_pool(n: Node) -> Tensor:
    x, windows, taps, read = gathered(n)
    power = n.get("p", 2)

    def element(*i: Any) -> Any:
        size = rg.abs(read(i, 0)[0])
        return rg.pow(rg.sum(rg.pow(size, power), axis=tuple(taps)), 1 / power)

    return rg.compute((*x.shape[:2], *(w.out for w in windows)), element)


@operator("AffineGrid")
def affine_grid(n: Node) -> Tensor:
    """``theta @ (x, y, z, 1)`` for a grid of fixed coordinates."""
    theta, size = n.tensor(0), n.integers(1)[2:]
    if n.get("align_corners", 0):
        lines = [np.linspace(-1, 1, extent) for extent in size]
    else:
        lines = [(2 * np.arange(extent) + 1) / extent - 1 for extent in size]
    points = np.array([(*reversed(p), 1.0) for p in itertools.product(*lines)], theta.dtype)
    made = product(n.constant(points), ops.permute(theta, (0, 2, 1)))
    return ops.reshape(made, (theta.shape[0], *size, len(size)))
