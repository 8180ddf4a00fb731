"""The state that all steps of one stage's lowering share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rollergen.expr.index import Index
from rollergen.hal.dataclass import dataclass
from rollergen.lower.copies import Staged
from rollergen.lower.expressions import Pointer
from rollergen.lower.nest import Nest
from rollergen.lower.reductions import Threads
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import Copy


@dataclass(frozen=True, slots=True)
class Ring:
    """Buffers of all ``copies``, ``depth`` of each, refilled so many iterations ``ahead``: their barriers for tiles
    that came and, with a producer, for buffers that are free; ``width``: the execution width that starts copies.
    ``before``: tiles that came for the block's earlier outputs.  ``cluster``: blocks that share tiles.
    ``results``: the array from which results leave in boxes."""

    copies: list[Copy]
    depth: int
    ahead: int
    filled: Pointer
    freed: Pointer | None
    width: int
    before: Index
    cluster: int
    results: Pointer | None = None

    def turn(self, out: Writer, tile: Index) -> tuple[Index, Index]:
        """The buffer of a tile, and the parity of how often it was filled before."""
        at = self.before + tile
        return (at % self.depth).simplify(out.ranges), (at // self.depth % 2).simplify(out.ranges)


@dataclass(frozen=True, slots=True)
class Context:
    """The state that all steps of one stage's lowering share. ``filled``: shared buffers that are in use; ``block``:
    the launched block's number; ``ring``: of copies in boxes, once it is begun."""

    out: Writer
    nest: Nest
    buffers: Mapping[Copy, Staged]
    threads: Threads
    step: str
    block: str = ""
    ring: Ring | None = None
    filled: set[Copy] = field(default_factory=set)
