"""Statements for tiles that a copy engine brings in boxes, and the barriers that count their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from rollergen.expr.index import Index
from rollergen.lower.expressions import Pointer


@dataclass(frozen=True, slots=True)
class StartBarriers:
    """``count`` barriers at ``pointer`` in local memory begin to count so many ``arrivals`` and the bytes that come
    with them; all threads know it behind the next `Barrier`."""

    pointer: Pointer
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a tensor map (the parameter of that name) whose first element is at the ``coordinates``, innermost
    first, goes to ``pointer[offset]`` on, in rows of 128 bytes whose pieces of 16 are swizzled over 8 rows."""

    map: str
    coordinates: tuple[Index, ...]
    pointer: Pointer
    offset: Index


@dataclass(frozen=True, slots=True)
class FillTile:
    """One thread of the block's execution width ``width`` starts the copies of the boxes, and tells barrier ``number``
    how many bytes they have.

    The bytes are in local memory once a thread's `WaitTile` for this filling of the barrier is through; until then
    their places hold nothing."""

    pointer: Pointer
    number: Index
    bytes: int
    boxes: tuple[Box, ...]
    width: int = 0


@dataclass(frozen=True, slots=True)
class WaitTile:
    """The thread waits until barrier ``number`` has counted all arrivals and bytes of its last filling of this
    ``parity``, fillings being numbered from 0; of the filling before the first one, of parity 1, it has."""

    pointer: Pointer
    number: Index
    parity: Index


@dataclass(frozen=True, slots=True)
class FreeTile:
    """Each execution width arrives once at barrier ``number``: its products that have ended read the tile no more."""

    pointer: Pointer
    number: Index


@dataclass(frozen=True, slots=True)
class Leave:
    """The thread is through."""


BoxStatement = Union[StartBarriers, FillTile, WaitTile, FreeTile, Leave]
