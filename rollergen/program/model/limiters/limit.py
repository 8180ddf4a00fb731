"""A limiter's clocks, and how it joins the others."""

from __future__ import annotations

from rollergen.program.model.numeric import Number

OVERLAPS, ADDS, TAKES_TURNS = "overlaps", "adds", "takes turns"
"""How a limiter joins the others: in the p-norm, or on top; those that take turns join the p-norm as one."""
Limit = tuple[str, Number, str]
"""A limiter's name, its clocks, and how it joins the others."""
