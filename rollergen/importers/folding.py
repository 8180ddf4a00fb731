"""Batch norms written into the weights before them."""

from __future__ import annotations

from typing import Any

import numpy as np


def norm_folded(
    weight: np.ndarray, bias: np.ndarray | None, gamma: Any, beta: Any, mean: np.ndarray, var: np.ndarray, *, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """(weight, bias) of a convolution whose result is that of the norm after it: scaled in float64, rounded once."""
    of = lambda one, default: default if one is None else one.astype(np.float64)
    scale = of(gamma, 1.0) / np.sqrt(of(var, None) + eps)
    shift = (of(bias, 0.0) - of(mean, None)) * scale + of(beta, 0.0)
    spread = scale.reshape(-1, *(1,) * (weight.ndim - 1))
    return (of(weight, None) * spread).astype(weight.dtype), shift.astype(weight.dtype)
