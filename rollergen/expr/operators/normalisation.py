"""Normalisation: of rows (softmax and its kin, layer and RMS norms) and of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, spacing
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Number,
    as_dtype,
    axis_of,
    flag,
    integers,
    number,
    require_float,
    require_tensor,
    require_vector,
    with_axes,
)
from rollergen.expr.operators.reductions import reduction, row_of
from rollergen.expr.operators.views import reshape


def softmax(input: Tensor, dim: int = -1, dtype: Any = None, *, name: str | None = None) -> Tensor:
    """``exp(x - max) * (1 / sum(exp(x - max)))`` along `dim`, any shape: one division a row.

    The input is converted to `dtype` first, where there is one.

    >>> import rollergen as rg
    >>> rg.ops.softmax(rg.tensor("x", (1, 4))).evaluate([[0.0, 0.0, 0.0, 0.0]])
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    x, position = _row("softmax", input, dim, dtype)
    if not input.ndim:
        return reshape(softmax(x, name=name), (), name=name)
    wide = accumulator_dtype(x.dtype)
    largest = reduction("softmax", lambda v, r: rg.max(v, axis=r), x, position, True, None)

    def power(*i: Any) -> Any:
        return rg.exp(rg.cast(x[i], wide) - rg.cast(largest[row_of(i, position)], wide))

    powers = rg.compute(x.shape, power)
    total = reduction("softmax", lambda v, r: rg.sum(v, axis=r), powers, position, True, None)
    return rg.compute(x.shape, lambda *i: rg.cast(powers[i] * (1 / total[row_of(i, position)]), x.dtype), name)


def log_softmax(input: Tensor, dim: int = -1, dtype: Any = None, *, name: str | None = None) -> Tensor:
    """``x - max - log(sum(exp(x - max)))`` along `dim`, any shape; `dtype` as of `softmax`.

    >>> import rollergen as rg
    >>> rg.ops.log_softmax(rg.tensor("x", (1, 1))).evaluate([[5.0]])
    array([[0.]])
    """
    x, position = _row("log_softmax", input, dim, dtype)
    if not input.ndim:
        return reshape(log_softmax(x, name=name), (), name=name)
    wide = accumulator_dtype(x.dtype)
    largest = reduction("log_softmax", lambda v, r: rg.max(v, axis=r), x, position, True, None)

    def shifted(*i: Any) -> Any:
        return rg.cast(x[i], wide) - rg.cast(largest[row_of(i, position)], wide)

    below = rg.compute(x.shape, shifted)
    total = reduction("log_softmax", lambda v, r: rg.sum(rg.exp(v), axis=r), below, position, True, None)
    return rg.compute(x.shape, lambda *i: rg.cast(below[i] - rg.log(total[row_of(i, position)]), x.dtype), name)


def layer_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: Number = 1e-5, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(x - mean) * rsqrt(var + eps) * weight + bias``, mean and variance over the last axes of x, floating.

    `normalized_shape` gives the extents of these axes; weight and bias have that shape.

    >>> import rollergen as rg
    >>> rg.ops.layer_norm(rg.tensor("x", (1, 2)), 2, eps=0).evaluate([[1.0, 3.0]])
    array([[-1.,  1.]])

    Raises ShapeError for a `normalized_shape` that x does not end with.
    """
    x = input
    axes = _normalized_axes("layer_norm", x, normalized_shape, weight, bias)
    value_at, wide = standard("layer_norm", x, axes, eps), accumulator_dtype(x.dtype)

    def element(*i: Any) -> Any:
        return rg.cast(_scaled(value_at(i), weight, bias, i[axes[0] :], wide), x.dtype)

    return rg.compute(x.shape, element, name)


def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: Number | None = None, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``x * rsqrt(mean(x^2) + eps) * weight``, the mean over the last axes of x, floating; as `layer_norm`.

    `eps` is the spacing of numbers at 1 in the accumulator's dtype (2^-23; of float64 2^-52) where it is None, as torch
    has it.

    >>> import rollergen as rg
    >>> rg.ops.rms_norm(rg.tensor("x", (1, 2)), 2, eps=0).evaluate([[3.0, -3.0]])
    array([[ 1., -1.]])
    """
    x = input
    axes = _normalized_axes("rms_norm", x, normalized_shape, weight, None)
    wide, count = accumulator_dtype(x.dtype), _elements(x, axes)
    square = reduction("rms_norm", lambda v, r: rg.sum(v * v, axis=r, dtype=wide) / count, x, axes, True, None)
    least = spacing(wide) if eps is None else number(eps, "rms_norm", "eps")

    def element(*i: Any) -> Any:
        value = rg.cast(x[i], wide) * rg.rsqrt(square[row_of(i, *axes)] + least)
        return rg.cast(_scaled(value, weight, None, i[axes[0] :], wide), x.dtype)

    return rg.compute(x.shape, element, name)


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: Number = 0.1, eps: Number = 1e-5, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(x - mean[c]) * (rsqrt(var[c] + eps) * weight[c]) + bias[c]`` for the channels c of `input` (N, C, ...).

    With `training`, mean and variance (of the population) are those of x itself; then running statistics, which a
    call of torch's would change, are None, and `momentum` means nothing.

    >>> import rollergen as rg
    >>> x, (m, v) = rg.tensor("x", (1, 2)), (rg.tensor(n, (2,)) for n in "mv")
    >>> rg.ops.batch_norm(x, m, v, eps=0).evaluate([[3.0, 4.0]], [1.0, 2.0], [4.0, 1.0])
    array([[1., 2.]])

    Raises ShapeError for vectors that do not have one element for each channel.
    """
    x = input
    require_float(x, "batch_norm")
    if x.shape == (0,):  # which torch takes for one without channels
        own = (running_mean, running_var, weight, bias, training, momentum, eps)
        return reshape(batch_norm(reshape(x, (0, 0)), *own), (0,), name=name)
    if x.ndim < 2:
        raise ShapeError(f"batch_norm: {x.label} has shape {x.shape}; expected (N, C, ...)")
    if flag(training, "batch_norm", "training") and not running_mean is running_var is None:
        raise ExpressionError(
            "batch_norm: training is True with running_mean and running_var, which a call would change; expected None "
            "for both, and their next values as outputs of their own"
        )
    number(momentum, "batch_norm", "momentum")
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for what, vector in vectors.items():
        if vector is not None or (what.startswith("running") and not training):
            require_vector(vector, x.shape[1], "batch_norm", what, f"one for each channel of {x.label} {x.shape}")
    if training:
        return normalised("batch_norm", x, tuple(d for d in range(x.ndim) if d != 1), weight, bias, eps, name)
    least, wide = number(eps, "batch_norm", "eps"), accumulator_dtype(x.dtype)
    assert running_mean is not None and running_var is not None

    def element(*i: Any) -> Any:
        c = i[1]
        scale = rg.rsqrt(rg.cast(running_var[c], wide) + least)
        if weight is not None:
            scale = scale * rg.cast(weight[c], wide)
        value = (rg.cast(x[i], wide) - rg.cast(running_mean[c], wide)) * scale
        return rg.cast(value if bias is None else value + rg.cast(bias[c], wide), x.dtype)

    return rg.compute(x.shape, element, name)


def normalised(
    operation: str, x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: Number,
    name: str | None,
) -> Tensor:  # fmt: skip
    """`x` without the mean and over the deviation along `axes`, times weight[c] plus bias[c] of channel c."""
    value_at = standard(operation, x, axes, eps)
    wide = accumulator_dtype(x.dtype)
    channel = lambda vector, i: None if vector is None else rg.cast(vector[i[1]], wide)

    def element(*i: Any) -> Any:
        value, scale, shift = value_at(i), channel(weight, i), channel(bias, i)
        value = value if scale is None else value * scale
        return rg.cast(value if shift is None else value + shift, x.dtype)

    return rg.compute(x.shape, element, name)


def standard(operation: str, x: Tensor, axes: tuple[int, ...], eps: Number) -> Any:
    """A function of the indices: ``(x - mean) * rsqrt(var + eps)`` over `axes`, in the accumulator's dtype."""
    wide, count, least = accumulator_dtype(x.dtype), _elements(x, axes), number(eps, operation, "eps")
    mean = reduction(operation, lambda v, r: rg.sum(v, axis=r, dtype=wide) / count, x, axes, True, None)
    centred = rg.compute(x.shape, lambda *i: rg.cast(x[i], wide) - mean[row_of(i, *axes)])
    variance = reduction(operation, lambda v, r: rg.sum(v * v, axis=r) / count, centred, axes, True, None)
    return lambda i: centred[i] * rg.rsqrt(variance[row_of(i, *axes)] + least)


def _row(operation: str, x: Tensor, dim: int, dtype: Any) -> tuple[Tensor, int]:
    """What is normalised along which axis."""
    require_tensor(x, operation)
    given = x if dtype is None else as_dtype(x, dtype_name(dtype, f"rg.ops.{operation}'s dtype"))
    require_float(given, operation)
    if not x.ndim:
        return with_axes(given), 0
    return given, axis_of(dim, given, operation)


def _elements(x: Tensor, axes: Sequence[int]) -> int:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return count


def _normalized_axes(
    operation: str, x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None, bias: Tensor | None
) -> tuple[int, ...]:
    require_float(x, operation)
    shape = integers(normalized_shape)
    if shape is None:
        raise ShapeError(
            f"{operation}: normalized_shape is {shown(normalized_shape)}; expected an integer or a tuple: the last "
            f"extents of {x.label} {x.shape} (the weight comes after it)"
        )
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{operation}: normalized_shape is {shown(normalized_shape)}; "
            f"expected the last extents of {x.label} {x.shape}"
        )
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None:
            require_tensor(tensor, operation, what)
            if tensor.shape != shape:
                raise ShapeError(f"{operation}: {what} {tensor.label} has shape {tensor.shape}; expected {shape}")
    return tuple(range(x.ndim - len(shape), x.ndim))


def _scaled(value: Any, weight: Tensor | None, bias: Tensor | None, at: tuple[Any, ...], wide: str) -> Any:
    value = value if weight is None else value * rg.cast(weight[at], wide)
    return value if bias is None else value + rg.cast(bias[at], wide)
