"""Tiles that a thread keeps in an array of its own, as caches see them.

The array lies at one place, from one pass to the next and from one block to the next: it is written from its start,
then read by what stands inside.  Between a pass's last use of it and its first write of the next nothing passes but
what fills it, so that it is still where it was if the cache holds both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rollergen.expr.index import Index
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.program.model.facts import Operand
from rollergen.program.model.memory import FILL, Stream
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, gcd, least
from rollergen.program.model.tiles import tile_shape
from rollergen.program.rprogram import Copy


@dataclass(frozen=True, slots=True, eq=False)
class OwnTile(Operand):
    """A tile of ``extents`` elements, which may be those of a batch: its indices run no further."""

    extents: tuple[Number, ...] = ()

    def reach(self, dim: int, spans: Mapping[str, Number]) -> tuple[Number, Number]:
        span = least(spans.get(self.plain[dim] or "", 1), self.extents[dim])
        return span, span

    def distinct(self, dim: int, spans: Mapping[str, Number]) -> Number:
        return self.reach(dim, spans)[0]

    def row_alignment(self, line: int) -> Any:
        found: Number = line
        for stride in self.strides[:-1]:
            found = gcd(stride, found)
        return found


def is_own(nest: Nest, copy: Copy) -> bool:
    """Whether the copy goes into an array of the one thread of its block, out of which a reduction reads it again."""
    staged = copy.to_layer != "registers" and not copy.window
    return nest.lockstep == 1 and staged and bool(nest.facts.op.reductions) and not nest.facts.by_row


def own_streams(nest: Nest, copy: Copy, filling: Stream) -> Sequence[Stream]:
    """What fills the array (``filling``: the tensor, touched by the copy), its being written, and its being read."""
    tile = own_tile(nest, copy)
    written = Stream(tile, FILL, copy.at_loop, array=copy.at_loop, fills=True)
    return replace(filling, fills=True), written, Stream(tile, copy.load, len(nest.loops), array=copy.at_loop)


def own_tile(nest: Nest, copy: Copy) -> OwnTile:
    load = nest.facts.loads[copy.load]
    shape = tile_shape(nest, copy, block=True)
    strides: list[Any] = [load.itemsize]
    step: Number = (shape[-1] + copy.padding) * load.itemsize
    for extent in reversed(shape[:-1]):
        strides.append(step)
        step = step * extent
    strides.reverse()
    indices = tuple(Index.axis(axis) for axis in copy.order)
    buffer = Buffer(f"{load.buffer.name} tile", load.buffer.shape, load.buffer.dtype, "temporary")
    return OwnTile(
        buffer, indices, Index(), frozenset(copy.order), load.itemsize, tuple(strides), (), copy.order, {},
        extents=shape,
    )  # fmt: skip
