"""Statements for tiles that a copy engine brings in boxes, and the barriers that count their bytes."""

from __future__ import annotations

from typing import Union, get_args

from rollergen.expr.index import Index
from rollergen.hal.dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class FreeResults:
    """The threads of each asynchronous instruction may write to the buffer from which their results leave: the engine
    has read what it was told of before, and all of them know it."""


@dataclass(frozen=True, slots=True)
class ShowResults:
    """What the threads of each asynchronous instruction wrote is known to the engine, and to all of them."""


@dataclass(frozen=True, slots=True)
class StoreBoxes:
    """One thread of those of each asynchronous instruction starts copies of the boxes from local memory to the tensor
    of the map; what lies outside the tensor is not copied."""

    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class WaitStores:
    """All boxes that the thread has stored are in the tensor."""


BoxStatement = Union[
    StartBarriers, FillTile, WaitTile, FreeTile, MeetCluster, Leave, FreeResults, ShowResults, StoreBoxes, WaitStores
]
BOX_STATEMENTS = get_args(BoxStatement)


def map_name(parameter: str, which: int) -> str:
    """The parameter that is the map of that number of a tensor's."""
    return f"{parameter}_row_{which}" if which else parameter
