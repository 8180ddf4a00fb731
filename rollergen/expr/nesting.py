"""Expressions nested more deeply than Python recurses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rollergen.errors import ExpressionError


@contextmanager
def shallow_enough(where: str) -> Iterator[None]:
    """Raises ExpressionError, named by `where`, in place of a RecursionError."""
    try:
        yield
    except RecursionError:
        raise ExpressionError(
            f"{where}: its operations are nested too deeply for Python's recursion limit of {sys.getrecursionlimit()}; "
            "expected shorter chains: sum many terms with rg.sum over an axis, or raise sys.setrecursionlimit"
        ) from None
