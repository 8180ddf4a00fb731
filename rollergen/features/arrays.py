"""Lists as arrays, and logarithms that zeros and signs survive."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np


def slog(x: np.ndarray) -> np.ndarray:
    """``sign(x) log2(1 + |x|)``."""
    found = np.abs(x)
    found += 1
    return np.copysign(np.log2(found, out=found), x, out=found)


def integers(values: Sequence[int]) -> np.ndarray:
    """int64, in a third of the time of `np.array`, which asks each value for its type."""
    return np.frombuffer(_packed("q", values), dtype=np.int64)


def floats(values: Sequence[float]) -> np.ndarray:
    """As `integers`, float64."""
    return np.frombuffer(_packed("d", values))


def _packed(code: str, values: Sequence[float]) -> bytes:
    try:
        return struct.pack(f"{len(values)}{code}", *values)
    except struct.error as problem:
        raise OverflowError(f"a program's figures: {problem}") from None
