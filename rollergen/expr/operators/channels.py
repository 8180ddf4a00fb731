"""Normalisation over groups of channels and their neighbourhoods."""

from __future__ import annotations

from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Number, flag, integer, number, require_float, require_vector
from rollergen.expr.operators.normalisation import batch_norm, normalised, standard
from rollergen.expr.operators.views import reshape


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: Number = 1e-5, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``(x - mean) * rsqrt(var + eps) * weight[c] + bias[c]`` of `input` (N, C, ...), mean and variance of `num_groups`
    groups of neighbouring channels each (Wu and He, arXiv:1803.08494).

    >>> import rollergen as rg
    >>> rg.ops.group_norm(rg.tensor("x", (1, 2, 2)), 1, eps=0).evaluate([[[1.0, 3.0], [3.0, 1.0]]])
    array([[[-1.,  1.],
            [ 1., -1.]]])

    Raises ShapeError where the channels are no multiple of the groups.
    """
    require_float(input, "group_norm")
    groups = integer(num_groups)
    if input.ndim < 2 or groups is None or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"group_norm: {input.label} has shape {input.shape} and num_groups is {shown(num_groups)}; expected "
            "(N, C, ...), and a divisor of C"
        )
    _check_vectors("group_norm", input, weight, bias)
    (batch, channels, *size), wide = input.shape, accumulator_dtype(input.dtype)
    per = channels // groups
    parts = reshape(input, (batch, groups, per, *size))
    value_at = standard("group_norm", parts, tuple(range(2, parts.ndim)), eps)

    def element(*i: Any) -> Any:
        value = value_at((i[0], i[1] // per, i[1] % per, *i[2:]))
        value = value if weight is None else value * rg.cast(weight[i[1]], wide)
        return rg.cast(value if bias is None else value + rg.cast(bias[i[1]], wide), input.dtype)

    return rg.compute(input.shape, element, name)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True, momentum: Number = 0.1,
    eps: Number = 1e-5, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`group_norm` of every channel by itself: `input` (N, C, ...), over the axes after C.

    Without `use_input_stats` it is `batch_norm` with the running statistics.

    >>> import rollergen as rg
    >>> rg.ops.instance_norm(rg.tensor("x", (1, 1, 2)), eps=0).evaluate([[[1.0, 3.0]]])
    array([[[-1.,  1.]]])

    Raises ExpressionError for running statistics with `use_input_stats`, which a call would change.
    """
    require_float(input, "instance_norm")
    if input.ndim < 3:
        raise ShapeError(f"instance_norm: {input.label} has shape {input.shape}; expected (N, C, ...)")
    if not flag(use_input_stats, "instance_norm", "use_input_stats"):
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps, name=name)
    if not running_mean is running_var is None:
        raise ExpressionError(
            "instance_norm: use_input_stats is True with running_mean and running_var, which a call would change; "
            "expected None"
        )
    number(momentum, "instance_norm", "momentum")
    _check_vectors("instance_norm", input, weight, bias)
    return normalised("instance_norm", input, tuple(range(2, input.ndim)), weight, bias, eps, name)


def local_response_norm(
    input: Tensor, size: int, alpha: Number = 1e-4, beta: Number = 0.75, k: Number = 1.0, *, name: str | None = None
) -> Tensor:
    """``x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta`` of `input` (N, C, ...), beyond C 0.

    >>> import rollergen as rg
    >>> rg.ops.local_response_norm(rg.tensor("x", (1, 1, 1)), 1, 1, 1, 0).evaluate([[[4.0]]])
    array([[[0.25]]])
    """
    require_float(input, "local_response_norm")
    count = integer(size)
    if input.ndim < 3 or count is None or count < 1:
        raise ShapeError(
            f"local_response_norm: {input.label} has shape {input.shape} and size is {shown(size)}; expected "
            "(N, C, ...), and an integer of at least 1"
        )
    scale, power, least = (
        number(value, "local_response_norm", what) for value, what in ((alpha, "alpha"), (beta, "beta"), (k, "k"))
    )
    wide, channels = accumulator_dtype(input.dtype), input.shape[1]
    window = rg.reduce_axis("window", count)

    def element(*i: Any) -> Any:
        at = i[1] + window - count // 2
        near = rg.cast(input[(i[0], at, *i[2:])], wide)
        squares = rg.sum(rg.select((at >= 0) & (at < channels), near * near, 0), axis=window)
        value = rg.cast(input[i], wide) / rg.pow(least + squares * (scale / count), power)
        return rg.cast(value, input.dtype)

    return rg.compute(input.shape, element, name)


def _check_vectors(operation: str, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    for what, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            require_vector(vector, x.shape[1], operation, what, f"one for each channel of {x.label} {x.shape}")
