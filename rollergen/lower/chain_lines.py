"""Lines that a chain asks for while scores are computed (`program.chain_lines`)."""

from __future__ import annotations

from collections.abc import Iterable

from rollergen.expr.index import Index
from rollergen.lower.chain_operands import ChainPlaces
from rollergen.lower.expressions import position
from rollergen.lower.place import clipped
from rollergen.program.chain_lines import AskedLines


class ChainLines:
    """What one group of keys asks for: it has the number ``group`` in its block, and its first key is ``key``."""

    def __init__(self, places: ChainPlaces, asked: Iterable[AskedLines], key: Index, group: Index) -> None:
        self.places, self.asked = places, tuple(asked)
        self._first = {places.roles.rows: places.first_row, places.roles.key: key}
        self._axes = {**places.place().axes, **self._first}
        self._number = {count: self._clipped(group, count) for count in {one.groups for one in self.asked}}
        self._steps = places.nest.extents[places.roles.inner[0]]

    def ask(self, step: Index) -> None:
        """Asks for the lines of a step of the scores' sum."""
        out, nest = self.places.out, self.places.nest
        for one in self.asked:
            offset, first = nest.offset(one.load), self._first[one.row] + one.ahead
            for line in one.lines:
                flat = (self._number[one.groups] * self._steps + step) * one.step + line
                row, column = flat // one.columns, flat % one.columns
                if offset.coefficient(one.row) == one.columns:  # rows follow each other
                    row, column = Index(), flat
                axes = {**self._axes, one.row: first + row, one.column: column}
                at = offset.substitute(axes).simplify(out.ranges)
                out.prefetch_line(nest.parameters[one.load.buffer.name], at, writing=one.writing)

    def _clipped(self, group: Index, count: int) -> Index:
        """The group's number, but at most the last of so many."""
        out = self.places.out
        low, high = group.bounds(out.ranges)
        value = clipped(position(group, out.ranges), low, high, count - 1)
        return out.integer("asking", value, (0, min(high, count - 1))) if count > 1 else Index()
