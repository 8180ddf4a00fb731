"""Which results lie farther from the oracle than `tolerance` allows."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from rollergen.expr.dtypes import is_float, rounded
from rollergen.gate.tolerance import CONFIDENCE, smallest_normal, unit_roundoff
from rollergen.hal.dtypes import DTYPES


def allowed_error(
    want: np.ndarray, variance: float, dtype: str, steps: float = 0.0, scale: np.ndarray | None = None
) -> np.ndarray:
    """The formula at the head of `tolerance`, for the wants (float64) of one output of `dtype`.

    ``scale``: of the errors where it is known, instead of the wants' own size and their root mean square.
    """
    size = sizes(want)
    if scale is None:
        scale = np.maximum(size, root_mean_square(want))
    margin, unit, tiny = allowance(variance, dtype)
    return margin * scale + unit * size + tiny + steps if variance else margin * scale


def allowance(variance: float, dtype: str) -> tuple[float, float, float]:
    """Factors of the formula at the head of `tolerance`: (of the scale, of the want's own size, the tiny one)."""
    unit = unit_roundoff(dtype)
    tiny = smallest_normal(dtype) if variance or dtype != "float64" else 0.0
    return CONFIDENCE * math.sqrt(variance), unit, tiny


def sizes(values: np.ndarray) -> np.ndarray:
    """Magnitudes of float64 values, 0 of what is not finite."""
    return np.abs(np.where(np.isfinite(values), values, 0.0))


def root_mean_square(values: np.ndarray) -> float:
    """The root mean square of float64 values; values that are not finite count as 0."""
    return math.sqrt(float(np.mean(sizes(values) ** 2))) if values.size else 0.0


def differences(
    got: np.ndarray, want: np.ndarray, variance: float, dtype: str, exact: bool, steps: float = 0.0,
    scale: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Where `got` (any dtype) is not an acceptable value of `want` (float64, or integers); bool, same shape.

    ``exact``: `got` must be `want` rounded once to `dtype`.  NaN matches NaN, an infinity itself and what is beyond
    the dtype's range.  Truth values are compared as the bytes 0 and 1 that NumPy knows.
    """
    if want.dtype.kind in "iub" and (exact or variance == 0.0):
        raw = got.view(np.uint8) if got.dtype == np.bool_ else got
        return np.asarray(raw != want.astype(raw.dtype))
    actual = got.astype(np.float64)
    if exact or variance == 0.0:
        with np.errstate(invalid="ignore", over="ignore"):
            nearest = rounded(want, dtype).astype(np.float64)
        return ~((actual == nearest) | (np.isnan(actual) & np.isnan(nearest)))
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(ml_dtypes.finfo(dtype).max) if unit_roundoff(dtype) else math.inf
        finite = is_float(dtype) and not DTYPES[dtype].infinite
        beyond = np.isnan(actual) if finite else np.isinf(actual)
        actual = np.where(beyond & (np.abs(want) > largest), want if finite else np.copysign(want, actual), actual)
        near = np.abs(actual - want) <= allowed_error(want, variance, dtype, steps, scale)
    return ~(near | (actual == want) | (np.isnan(actual) & np.isnan(want)))
