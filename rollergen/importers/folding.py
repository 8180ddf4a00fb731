"""Batch norms written into the weights before them."""

from __future__ import annotations

from typing import Any

import numpy as np


def norm_folded(
    weight: np.ndarray, bias: np.ndarray | None, gamma: Any, beta: Any, mean: np.ndarray, var: np.ndarray, *,
    eps: float, transposed_groups: int = 0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(weight, bias) of a convolution whose result is that of the norm after it: scaled in float64, rounded once.

    ``transposed_groups``: of a transposed one, whose weights have the axes (in, out / groups, ...); 0 for others'
    (out, in / groups, ...).
    """
    of = lambda one, default: default if one is None else one.astype(np.float64)
    scale = of(gamma, 1.0) / np.sqrt(of(var, None) + eps)
    shift = (of(bias, 0.0) - of(mean, None)) * scale + of(beta, 0.0)
    axes = (1,) * (weight.ndim - 2)
    if transposed_groups:
        of_group = scale.reshape(transposed_groups, -1)
        spread = np.repeat(of_group, len(weight) // transposed_groups, axis=0).reshape(*weight.shape[:2], *axes)
    else:
        spread = scale.reshape(-1, 1, *axes)
    return (of(weight, None) * spread).astype(weight.dtype), shift.astype(weight.dtype)
