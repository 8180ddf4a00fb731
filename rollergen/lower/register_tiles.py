"""Tiles that pass through a private array, where their edges are handled element by element."""

from __future__ import annotations

from math import prod

from rollergen.expr.index import Index, linear
from rollergen.hal.dataclass import dataclass
from rollergen.lower.expressions import Expr, Number, Pointer, Read
from rollergen.lower.ir import PRIVATE, Write
from rollergen.lower.masks import widen
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place
from rollergen.lower.vectors import alignment
from rollergen.lower.writer import Writer


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """A private array through which a tile passes where its edges are handled element by element.

    Registers are only reached by unrolled loops; the edge's long code goes into a rolled one.
    """

    array: Pointer
    positions: tuple[int, ...]
    lanes: int

    @staticmethod
    def allocate(out: Writer, nest: Nest, positions: tuple[int, ...], dtype: str) -> RegisterTile:
        lanes = nest.lane.width if nest.lane else 1
        elements = lanes * prod(nest.loops[p].extent for p in positions)
        return RegisterTile(out.array("tile", PRIVATE, dtype, elements, alignment(dtype, lanes)), positions, lanes)

    def _offset(self, place: Place) -> Index:
        extents = tuple(place.nest.loops[p].extent for p in self.positions)
        return linear(tuple(place.point[p] for p in self.positions), extents) * self.lanes

    def write(self, out: Writer, place: Place, value: Expr) -> None:
        value = widen(value, Number(0, value.dtype, self.lanes))[0]
        out.write(Write(self.array, self._offset(place), value, aligned=True))

    def read(self, place: Place) -> Expr:
        return Read(self.array, self._offset(place), self.array.dtype, self.lanes, aligned=True)
