"""Figures with their units, as people are told them."""

from __future__ import annotations


def seconds_text(seconds: float) -> str:
    """A time with the unit that suits: ``1.23 ms``."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
