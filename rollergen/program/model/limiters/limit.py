"""A limiter's clocks, and how it joins the others."""

from __future__ import annotations

from rollergen.program.model.numeric import Number

OVERLAPS, ADDS, TAKES_TURNS, IN_SERIES = "overlaps", "adds", "takes turns", "in series"
"""How a limiter joins the others: in the p-norm, or on top; those that take turns join the p-norm as one; of those in
series the slowest counts, beside the norm of the rest."""
Limit = tuple[str, Number, str]
"""A limiter's name, its clocks, and how it joins the others."""
