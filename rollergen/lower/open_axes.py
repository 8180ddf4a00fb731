"""Axes whose extents are known at the call, and where elements of tensors with such extents lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from rollergen.expr.index import Bounds, Index, linear
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OpenAxes:
    """Axes whose extents are known at the call: each its factor times an argument of the kernel, within ``bounds``.

    ``buffers``: those whose number of elements is a multiple of the argument too, by name, with the elements of the
    dimensions outside the open one (`open_dimension`); in the program that is lowered they are as long as for the
    largest argument.
    """

    factors: Mapping[str, int]
    bounds: Bounds
    buffers: Mapping[str, int]

    def outside(self, load: Load) -> Index | None:
        """The number of the element's block among those that are as long as the open extent says; None where the first
        dimension is the open one, or none is."""
        if load.buffer.name not in self.buffers:
            return None
        p = open_dimension(load.buffer.shape, self.buffers[load.buffer.name])
        return linear(load.indices[:p], load.buffer.shape[:p]) if p else None

    def offset(self, load: Load, begin: str) -> Index:
        """The element's offset, where an integer ``begin`` of the kernel is `outside` times the argument.

        x[h, s, d] of an open s lies at (h * S) * D + s * D + d.
        """
        shape = load.buffer.shape
        p = open_dimension(shape, self.buffers[load.buffer.name])
        return Index.axis(begin) * (prod(shape[p:]) // self.bounds[1]) + linear(load.indices[p:], shape[p:])


def outsides(opened: OpenAxes, accesses: Iterable[Load]) -> list[Index]:
    """The distinct `OpenAxes.outside` of what a stage reads and writes."""
    return [*dict.fromkeys(index for load in accesses if (index := opened.outside(load)) is not None)]


def open_dimension(shape: tuple[int, ...], outer: int) -> int:
    """The open dimension of a tensor that has as many elements in the dimensions outside of it, or where some of these
    are merged with it, what they are merged to.

    >>> open_dimension((4, 96, 64), 4), open_dimension((384, 64), 4), open_dimension((96, 256), 1)
    (1, 0, 0)
    """
    before = 1
    for p, extent in enumerate(shape if outer > 1 else ()):
        before *= extent
        if before > outer:
            return p
    return 0
