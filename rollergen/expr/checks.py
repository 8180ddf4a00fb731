"""What `rg.tensor` and `rg.compute` are given, held to what they take: shapes, names, depth."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.slots import IndexExpr


def check_shape(shape: Any, where: str) -> tuple[int, ...]:
    """`shape` as a tuple of extents of at least 0; ShapeError otherwise."""
    if isinstance(shape, int) or hasattr(shape, "__index__"):
        example = "(64, 32)" if getattr(shape, "shape", ()) else f"({shape},)"
        raise ShapeError(f"{where}: shape is {shown(shape)}; expected a tuple of integers, e.g. {example}")
    try:
        extents = tuple(shape)
    except TypeError:
        raise ShapeError(f"{where}: shape is {shown(shape)}; expected a tuple of integers") from None
    return tuple(check_extent(extent, f"{where}: shape {extents}") for extent in extents)


def check_extent(extent: Any, where: str) -> int:
    try:
        number = -1 if isinstance(extent, (bool, IndexExpr)) else operator.index(extent)
    except TypeError:
        number = -1
    if number < 0:
        raise ShapeError(f"{where}: an extent is {shown(extent)}; expected an integer of at least 0")
    return number


def check_name(name: Any, where: str) -> str:
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise ExpressionError(f"{where} is {name!r}; expected an identifier of ASCII letters, digits and underscores")
    return name


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
