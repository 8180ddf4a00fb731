"""Operators on whole tensors (`rg.ops`), written in the public language only."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor

Axes = int | Sequence[int] | None


def matmul(
    a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``C[m, n] = sum_k a[m, k] * b[k, n]``; a transposed operand is given as (k, m) or (n, k).

    >>> import rollergen as rg
    >>> rg.ops.matmul(rg.tensor("A", (2, 3)), rg.tensor("B", (4, 3)), transpose_b=True).shape
    (2, 4)

    Raises ShapeError where k differs, or for operands that are not matrices.
    """
    for operand, position in ((a, "first"), (b, "second")):
        _require_tensor(operand, "matmul")
        if operand.ndim != 2:
            advice = "rg.ops.batch_matmul takes leading axes" if operand.ndim > 2 else "rg.einsum takes vectors"
            raise ShapeError(
                f"matmul: the {position} operand {operand.label} has shape {operand.shape}; "
                f"expected a matrix ({advice})"
            )
    m, k = reversed(a.shape) if transpose_a else a.shape
    n = _match_k("matmul", a, b, k, transpose_a, transpose_b)
    r = rg.reduce_axis("k", k)

    def element(i: Any, j: Any) -> Any:
        x = a[r, i] if transpose_a else a[i, r]
        y = b[j, r] if transpose_b else b[r, j]
        return rg.sum(x * y, axis=r, acc=acc, dtype=dtype)

    return rg.compute((m, n), element, name)


def batch_matmul(
    a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``C[..., m, n] = sum_k a[..., m, k] * b[..., k, n]`` for equal leading axes.

    >>> import rollergen as rg
    >>> rg.ops.batch_matmul(rg.tensor("A", (5, 2, 3)), rg.tensor("B", (5, 3, 4))).shape
    (5, 2, 4)
    """
    _require_tensor(a, "batch_matmul")
    _require_tensor(b, "batch_matmul")
    if a.ndim < 3 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"batch_matmul: {a.label} has shape {a.shape} and {b.label} {b.shape}; "
            "expected (..., m, k) and (..., k, n) with equal leading axes, at least one"
        )
    m, k = reversed(a.shape[-2:]) if transpose_a else a.shape[-2:]
    n = _match_k("batch_matmul", a, b, k, transpose_a, transpose_b)
    r = rg.reduce_axis("k", k)

    def element(*i: Any) -> Any:
        *batch, row, column = i
        x = a[(*batch, r, row)] if transpose_a else a[(*batch, row, r)]
        y = b[(*batch, column, r)] if transpose_b else b[(*batch, r, column)]
        return rg.sum(x * y, axis=r, acc=acc, dtype=dtype)

    return rg.compute((*a.shape[:-2], m, n), element, name)


def conv2d(
    x: Tensor, weight: Tensor, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1, groups: int = 1, acc: Any = None, dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of x (N, C, H, W) with weight (F, C / groups, KH, KW) into (N, F, OH, OW).

    `stride`, `padding` and `dilation` are one number or (vertical, horizontal); `padding` may be
    "valid" (none) or "same" (OH = ceil(H / stride), the odd row or column at the end).

    >>> import rollergen as rg
    >>> x, w = rg.tensor("x", (1, 3, 224, 224)), rg.tensor("w", (64, 3, 7, 7))
    >>> rg.ops.conv2d(x, w, stride=2, padding=3).shape
    (1, 64, 112, 112)

    Raises ShapeError for channels that do not match or a kernel larger than the padded image.
    """
    _require_tensor(x, "conv2d")
    _require_tensor(weight, "conv2d")
    _check_convolution(x, weight, groups)
    (batch, _, *size), (filters, channels, *kernel) = x.shape, weight.shape
    steps, spread = _pair(stride, "stride", 1), _pair(dilation, "dilation", 1)
    before, out = _convolution_extents(size, kernel, steps, spread, padding)
    c, ky, kx = (rg.reduce_axis(n, e) for n, e in zip(("c", "ky", "kx"), (channels, *kernel), strict=True))
    per_group = filters // groups

    def element(n: Any, f: Any, oy: Any, ox: Any) -> Any:
        iy = oy * steps[0] + ky * spread[0] - before[0]
        ix = ox * steps[1] + kx * spread[1] - before[1]
        channel = c if groups == 1 else (f // per_group) * channels + c
        pixel = x[n, channel, iy, ix]
        inside = (iy >= 0) & (iy < size[0]) & (ix >= 0) & (ix < size[1])
        return rg.sum(rg.select(inside, pixel, 0) * weight[f, c, ky, kx], axis=(c, ky, kx), acc=acc, dtype=dtype)

    return rg.compute((batch, filters, *out), element, name)


def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """``max(x, 0)``, any shape.

    >>> import rollergen as rg
    >>> rg.ops.relu(rg.tensor("x", (3,))).evaluate([-1.0, 0.5, 2.0])
    array([0. , 0.5, 2. ])
    """
    return _elementwise("relu", lambda v: rg.maximum(v, 0), x, name=name)


def exp(x: Tensor, *, name: str | None = None) -> Tensor:
    """e to the power of every element, any shape.

    >>> import rollergen as rg
    >>> rg.ops.exp(rg.tensor("x", (2,))).evaluate([0.0, 0.0])
    array([1., 1.])
    """
    return _elementwise("exp", rg.exp, x, name=name)


def add(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """``a + b``, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.add(rg.tensor("a", (4, 3)), rg.tensor("b", (3,))).shape
    (4, 3)
    """
    return _elementwise("add", lambda x, y: x + y, a, b, name=name)


def mul(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """``a * b``, broadcast as NumPy does.

    >>> import rollergen as rg
    >>> rg.ops.mul(rg.tensor("a", (4, 1)), rg.tensor("b", (3,))).shape
    (4, 3)
    """
    return _elementwise("mul", lambda x, y: x * y, a, b, name=name)


def bias_add(x: Tensor, bias: Tensor, *, axis: int = 1, name: str | None = None) -> Tensor:
    """`x` plus `bias`, a vector along `axis` (1: channels of (N, C, ...) or columns of a matrix; -1: the last).

    >>> import rollergen as rg
    >>> rg.ops.bias_add(rg.tensor("x", (1, 8, 5, 5)), rg.tensor("b", (8,))).shape
    (1, 8, 5, 5)
    """
    _require_tensor(x, "bias_add")
    _require_tensor(bias, "bias_add")
    if bias.ndim != 1 and x.ndim == 1:
        raise ExpressionError("bias_add(x, bias): the arguments look swapped: the vector goes second")
    (position,) = _axes(axis, x, "bias_add")
    if bias.shape != (x.shape[position],):
        raise ShapeError(
            f"bias_add: {bias.label} has shape {bias.shape}; expected ({x.shape[position]},), "
            f"the extent of axis {position} of {x.label} {x.shape}"
        )
    return rg.compute(x.shape, lambda *i: x[i] + bias[i[position]], name)


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False, *, acc: Any = None, dtype: Any = None,
        name: str | None = None) -> Tensor:  # fmt: skip
    """Sum over one axis, several, or (None) all; `keepdims` leaves them with extent 1.

    >>> import rollergen as rg
    >>> rg.ops.sum(rg.tensor("x", (2, 3, 4)), axis=(0, 2)).shape
    (3,)
    """
    return _reduction("sum", lambda v, r: rg.sum(v, axis=r, acc=acc, dtype=dtype), x, axis, keepdims, name)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Largest element over `axis`, as `sum`; NaN if any is.

    >>> import rollergen as rg
    >>> rg.ops.max(rg.tensor("x", (2, 2)), axis=-1).evaluate([[1.0, 2.0], [4.0, 3.0]])
    array([2., 4.])
    """
    return _reduction("max", lambda v, r: rg.max(v, axis=r), x, axis, keepdims, name)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Arithmetic mean over `axis`, as `sum`; divided before rounding to a narrow dtype.

    >>> import rollergen as rg
    >>> rg.ops.mean(rg.tensor("x", (2, 2)), axis=1).evaluate([[1.0, 2.0], [4.0, 6.0]])
    array([1.5, 5. ])
    """
    _require_tensor(x, "mean")
    count = prod(x.shape[position] for position in _axes(axis, x, "mean"))
    wide = accumulator_dtype(x.dtype)

    def element(v: Any, r: Any) -> Any:
        return rg.cast(rg.sum(v, axis=r, dtype=wide) / count, x.dtype)

    return _reduction("mean", element, x, axis, keepdims, name)


def softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """``exp(x - max) * (1 / sum(exp(x - max)))`` along `axis`, any shape: one division a row.

    >>> import rollergen as rg
    >>> rg.ops.softmax(rg.tensor("x", (1, 4))).evaluate([[0.0, 0.0, 0.0, 0.0]])
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    _require_tensor(x, "softmax")
    (position,) = _axes(axis, x, "softmax")
    wide = accumulator_dtype(x.dtype)
    largest = max(x, axis=position, keepdims=True)

    def power(*i: Any) -> Any:
        row = (*i[:position], 0, *i[position + 1 :])
        return rg.exp(rg.cast(x[i], wide) - rg.cast(largest[row], wide))

    powers = rg.compute(x.shape, power)
    total = sum(powers, axis=position, keepdims=True)

    def share(*i: Any) -> Any:
        return rg.cast(powers[i] * (1 / total[(*i[:position], 0, *i[position + 1 :])]), x.dtype)

    return rg.compute(x.shape, share, name)


def transpose(x: Tensor, axes: Sequence[int] | None = None, *, name: str | None = None) -> Tensor:
    """`x` with its axes permuted: axis d of the result is axis ``axes[d]`` of `x` (None: reversed).

    >>> import rollergen as rg
    >>> rg.ops.transpose(rg.tensor("x", (2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    _require_tensor(x, "transpose")
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(axes)
    positions = tuple(d + x.ndim if isinstance(d, int) and d < 0 else d for d in order)
    if sorted(positions) != list(range(x.ndim)):
        raise ShapeError(f"transpose: axes is {axes!r}; expected a permutation of 0 to {x.ndim - 1}, one for each axis")

    def element(*i: Any) -> Any:
        return x[tuple(i[positions.index(d)] for d in range(x.ndim))]

    return rg.compute(tuple(x.shape[d] for d in positions), element, name)


def _elementwise(operation: str, function: Callable[..., Any], *tensors: Tensor, name: str | None) -> Tensor:
    for tensor in tensors:
        _require_tensor(tensor, operation)
    rank = builtins.max(tensor.ndim for tensor in tensors)
    shape = []
    for extents in zip(*((1,) * (rank - t.ndim) + t.shape for t in tensors), strict=True):
        extent = builtins.max(extents)
        if any(e not in (1, extent) for e in extents):
            shapes = " and ".join(f"{t.label} {t.shape}" for t in tensors)
            raise ShapeError(f"{operation}: {shapes} do not broadcast; expected extents equal or 1, last axes first")
        shape.append(extent)

    def element(*i: Any) -> Any:
        return function(*(t[_broadcast(t.shape, i)] for t in tensors))

    return rg.compute(shape, element, name)


def _broadcast(shape: tuple[int, ...], indices: tuple[Any, ...]) -> tuple[Any, ...]:
    own = indices[len(indices) - len(shape) :]
    return tuple(0 if extent == 1 else index for extent, index in zip(shape, own, strict=True))


def _reduction(
    operation: str, function: Callable[..., Any], x: Tensor, axis: Axes, keepdims: bool, name: str | None
) -> Tensor:
    _require_tensor(x, operation)
    positions = _axes(axis, x, operation)
    if not positions:
        raise ShapeError(f"{operation}: {x.label} has no axis to reduce; expected at least one")
    reduced = {d: rg.reduce_axis(f"k{n}" if len(positions) > 1 else "k", x.shape[d]) for n, d in enumerate(positions)}
    kept = [d for d in range(x.ndim) if keepdims or d not in reduced]

    def element(*i: Any) -> Any:
        at = dict(zip(kept, i, strict=True)) | reduced
        return function(x[tuple(at[d] for d in range(x.ndim))], tuple(reduced.values()))

    return rg.compute(tuple(1 if d in reduced else x.shape[d] for d in kept), element, name)


def _axes(axis: Axes, x: Tensor, operation: str) -> tuple[int, ...]:
    """Positions from 0, in rising order."""
    if axis is None:
        return tuple(range(x.ndim))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in given:
        if not isinstance(one, int) or isinstance(one, bool) or not -x.ndim <= one < x.ndim:
            raise ShapeError(f"{operation}: axis is {axis!r}; {x.label} has axes {-x.ndim} to {x.ndim - 1}")
    positions = sorted(one % x.ndim for one in given)
    if len(set(positions)) != len(positions):
        raise ShapeError(f"{operation}: axis={axis!r} names an axis twice")
    return tuple(positions)


def _require_tensor(x: Any, operation: str) -> None:
    if isinstance(x, rg.Expr):
        raise ExpressionError(f"rg.ops.{operation} takes whole tensors; got one element, {x!r}")
    if not isinstance(x, Tensor):
        raise ExpressionError(f"rg.ops.{operation} of {x!r} ({type(x).__name__}); expected a rollergen tensor")


def _match_k(operation: str, a: Tensor, b: Tensor, k: int, transpose_a: bool, transpose_b: bool) -> int:
    """The extent n of `b`, whose k must be that of `a`."""
    kb, n = reversed(b.shape[-2:]) if transpose_b else b.shape[-2:]
    if kb != k:
        hint = "" if n != k else f"; transpose_b={not transpose_b} would match"
        raise ShapeError(
            f"{operation}: {a.label} {a.shape}{' transposed' if transpose_a else ''} has k = {k}, "
            f"{b.label} {b.shape}{' transposed' if transpose_b else ''} has k = {kb}; expected equal k{hint}"
        )
    return n


def _check_convolution(x: Tensor, weight: Tensor, groups: int) -> None:
    if x.ndim != 4 or weight.ndim != 4:
        raise ShapeError(
            f"conv2d: {x.label} has shape {x.shape} and {weight.label} {weight.shape}; "
            "expected (N, C, H, W) and (F, C / groups, KH, KW)"
        )
    if not isinstance(groups, int) or groups < 1 or x.shape[1] % groups or weight.shape[0] % groups:
        raise ShapeError(
            f"conv2d: groups is {groups!r}; expected a divisor of the {x.shape[1]} channels and "
            f"{weight.shape[0]} filters"
        )
    if x.shape[1] // groups != weight.shape[1]:
        swapped = weight.shape[1] % builtins.max(1, x.shape[1]) == 0 and weight.shape[2] > x.shape[2]
        raise ShapeError(
            f"conv2d: {weight.label} {weight.shape} has {weight.shape[1]} channels; {x.label} {x.shape} has "
            f"{x.shape[1]} in {groups} groups, so {x.shape[1] // groups} are expected"
            + ("; the arguments look swapped: conv2d(x, weight)" if swapped else "")
        )


def _pair(value: int | Sequence[int], what: str, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) and v >= least for v in pair):
        raise ShapeError(
            f"conv2d: {what} is {value!r}; expected an integer of at least {least}, or two (vertical, horizontal)"
        )
    return pair[0], pair[1]


def _convolution_extents(
    size: Sequence[int], kernel: Sequence[int], stride: tuple[int, int], dilation: tuple[int, int],
    padding: int | Sequence[int] | str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    """Padding before and output extent, vertical and horizontal ("same": TensorFlow's rule)."""
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ShapeError(f'conv2d: padding is {padding!r}; expected an integer, two, "same" or "valid"')
    pads = (0, 0) if isinstance(padding, str) else _pair(padding, "padding", 0)
    before, out = [], []
    for h, k, s, d, p in zip(size, kernel, stride, dilation, pads, strict=True):
        reach = (k - 1) * d + 1
        if padding == "same":
            extent = -(-h // s)
            p = builtins.max((extent - 1) * s + reach - h, 0) // 2
        else:
            extent = (h + 2 * p - reach) // s + 1
        if extent < 1:
            raise ShapeError(
                f"conv2d: a kernel of {k} (dilation {d}) reaches over {reach}; the padded image has {h + 2 * p}"
            )
        before.append(p)
        out.append(extent)
    return tuple(before), tuple(out)
