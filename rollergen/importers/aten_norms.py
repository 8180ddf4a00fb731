"""ATen's norms by `rg.ops`: arguments are ATen's."""

from __future__ import annotations

from typing import Any

from rollergen import ops
from rollergen.expr.language import Tensor


def layer_norm(x: Tensor, shape: Any, w: Any = None, b: Any = None, eps: float = 1e-5, cudnn: Any = None) -> Tensor:
    return ops.layer_norm(x, tuple(shape), w, b, eps)


def group_norm(
    x: Tensor, groups: int, w: Tensor | None = None, b: Tensor | None = None, eps: float = 1e-5, cudnn: Any = None
) -> Tensor:
    rows = ops.reshape(x, (x.shape[0], groups, -1))
    flat = ops.reshape(ops.layer_norm(rows, rows.shape[-1:], eps=eps), x.shape)
    channels = lambda v: ops.reshape(v, (x.shape[1], *(1,) * (x.ndim - 2)))
    flat = flat if w is None else ops.mul(flat, channels(w))
    return flat if b is None else ops.add(flat, channels(b))


def batch_norm(x: Tensor, w: Any, b: Any, mean: Tensor, var: Tensor, momentum: float, eps: float) -> Any:
    return ops.batch_norm(x, mean, var, w, b, eps=eps), None, None


def instance_norm(
    x: Tensor, w: Any, b: Any, mean: Any, var: Any, of_input: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    return ops.instance_norm(x, mean, var, w, b, of_input, momentum, eps)


def rms_norm(x: Tensor, shape: Any, w: Any = None, eps: float | None = None) -> Tensor:
    return ops.rms_norm(x, tuple(shape), w, eps)
