"""The order in which the blocks of a grid run, and which of them run as one or side by side."""

from __future__ import annotations

from rollergen.expr.limits import Count
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """Rasterization order of the grid: row by row (``group_rows`` 0), or swizzled.

    Swizzled blocks run, for the last two grid loops (p of P, q of Q), through groups of g = ``group_rows`` rows, each
    column by column, which keeps a wave's footprint square: ``group, rest = divmod(id, g * Q);
    rows = min(g, P - group * g); p = group * g + rest % rows; q = rest // rows``.

    ``launched``: a persistent grid: so many blocks are launched, and block b computes what blocks b, b + launched, ...
    of this order would, one after the other; its copies run ahead from one to the next.  0: a block is launched for
    each.

    ``cluster``: so many blocks with neighbouring numbers, which lie below each other in a group of rows, run side by
    side as a cluster: of the tiles that they read alike each brings a part, for all of them (multicast).  0: none do.

    ``descending``: longest blocks first, where later rows take longer: the last grid loop (R rows) runs from its last
    row to its first, around so many blocks f of the other loops.  ``row = R - 1 - id // f % R``, and the others are
    number ``id // (f * R) * f + id % f`` of theirs.  0: as above.
    """

    group_rows: Count = 0
    launched: Count = 0
    cluster: Count = 0
    descending: Count = 0


ROW_BY_ROW = BlockOrder()


@dataclass(frozen=True, slots=True)
class StageLaunch:
    """How a stage is launched.

    ``alone``: the calling thread runs all blocks, one after another: that takes less time than waking the threads of
    other units. ``resident_blocks``: how many blocks are meant to share a unit, so that a compiler gives each thread
    the registers that this leaves it (CUDA's `__launch_bounds__`); 0: the compiler is told nothing.
    """

    alone: bool = False
    resident_blocks: Count = 0
