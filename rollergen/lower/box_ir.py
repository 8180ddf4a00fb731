"""Statements for tiles that a copy engine brings in boxes, and the barriers that count their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from rollergen.expr.index import Index
from rollergen.lower.expressions import Pointer


@dataclass(frozen=True, slots=True)
class StartBarriers:
    """Initialises ``count`` mbarriers at ``pointer`` in local memory.

    A phase of each ends after so many ``arrivals`` and the bytes that they announce.  The next `Barrier` makes this
    known to all threads."""

    pointer: Pointer
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a tensor map (the parameter of that name) whose first element is at the ``coordinates``, innermost
    first, goes to ``pointer[offset]`` on, in rows of 128 bytes whose pieces of 16 are swizzled over 8 rows; where
    ``blocks`` are more than 1, in all so many blocks of the cluster, whose barriers count it."""

    map: str
    coordinates: tuple[Index, ...]
    pointer: Pointer
    offset: Index
    blocks: int


@dataclass(frozen=True, slots=True)
class FillTile:
    """One thread of warp number ``width`` starts the copies of the boxes, and announces their bytes to barrier
    ``number``.

    A thread may read the bytes behind its `WaitTile` for this phase of the barrier, and not before."""

    pointer: Pointer
    number: Index
    bytes: int
    boxes: tuple[Box, ...]
    width: int = 0


@dataclass(frozen=True, slots=True)
class WaitTile:
    """The thread waits until the latest phase of this ``parity`` of barrier ``number`` has ended.

    Phases are numbered from 0.  A wait for parity 1 before phase 0 has ended returns at once."""

    pointer: Pointer
    number: Index
    parity: Index


@dataclass(frozen=True, slots=True)
class FreeTile:
    """Each warp arrives once at barrier ``number``: its products have read the tile, all but those of the latest
    ``pending`` groups; where ``blocks`` are more than 1, at that of all so many blocks of the cluster."""

    pointer: Pointer
    number: Index
    pending: int
    blocks: int


@dataclass(frozen=True, slots=True)
class MeetCluster:
    """All threads of all blocks of the cluster wait for each other; what they did before is known to all."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The thread returns from the kernel."""


BoxStatement = Union[StartBarriers, FillTile, WaitTile, FreeTile, MeetCluster, Leave]
