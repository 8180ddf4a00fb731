"""What a field of a record may hold beside its type: type checkers see int and str, readers of files the limits."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from rollergen.expr.dtypes import ITEMSIZE


class AtLeast(NamedTuple):
    """Of an integer: the smallest one."""

    least: int


class Among(NamedTuple):
    """Of a text: the words that it may be."""

    words: tuple[str, ...]


Count = Annotated[int, AtLeast(0)]
Extent = Annotated[int, AtLeast(1)]
Divisor = Annotated[int, AtLeast(2)]
DtypeName = Annotated[str, Among(tuple(ITEMSIZE))]
