"""Which blocks of keys a block of rows runs, and which of them are whole: all rows see all of their keys."""

from __future__ import annotations

from rollergen.expr.index import Index
from rollergen.lower.chain_operands import number_of
from rollergen.lower.expressions import Expr, Inside, Operation, position
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, clipped, conjunction
from rollergen.lower.writer import Writer
from rollergen.program.chains import ChainRoles, key_bounds, steps_of


class ChainBounds:
    """Bounds of keys at ``rows`` neighbouring rows, the first one at `place`; keys come ``keys`` at a time.

    ``most``: blocks of keys there are at most; ``overhang``: whether the last one may have keys that do not exist."""

    def __init__(self, out: Writer, nest: Nest, roles: ChainRoles, rows: int, keys: int, place: Place) -> None:
        self.out, self.stage, self.roles, self.keys = out, nest.stage, roles, keys
        self.most, self.overhang = steps_of(nest.extents[roles.key], keys), nest.overhangs(roles.key, keys)
        self._size = nest.size(roles.key)
        self._axes = {axis: index for axis, index in place.axes.items() if axis != roles.key}
        self._low = place.axes[roles.rows]
        self._high = self._low + (rows - 1)
        if nest.overhangs(roles.rows, rows):
            low, high = self._high.bounds(out.ranges)
            last = nest.size(roles.rows) - 1
            row = clipped(position(self._high, out.ranges), low, high, number_of(last, out.ranges))
            self._high = out.integer("last_row", row, (0, nest.extents[roles.rows] - 1))

    def _at(self, bounds: tuple[Index, ...], *, least: bool) -> list[Index]:
        """Bounds at the row where they are least, or largest."""
        found = key_bounds(bounds, self.roles.rows, self._low, self._high, least=least)
        return [index.substitute(self._axes).simplify(self.out.ranges) for index in found]

    def blocks(self) -> tuple[int | Expr, int | Expr]:
        """The first block of keys that some row sees, and the one behind the last."""
        inner, out = self.stage.inner, self.out
        assert inner is not None
        found: list[int | Expr] = []
        behind = number_of(((self._size + (self.keys - 1)) // self.keys).simplify(out.ranges), out.ranges)
        for bounds, least, limit in ((inner.first, True, 0), (inner.last, False, behind)):
            values: list[Expr] = []
            for index in self._at(bounds, least=least):
                at = (index // self.keys + (0 if least else 1)).simplify(out.ranges)
                low, high = at.bounds(out.ranges)
                values.append(clipped(position(at, out.ranges), low, high, behind))
            if not values:
                found.append(limit)
                continue
            value, *others = values
            for other in others:
                order = Operation("gt" if least else "lt", (value, other), "bool")
                value = Operation("select", (order, value, other), value.dtype)
            found.append(out.let("first" if least else "end", value))
        return found[0], found[1]

    def is_whole(self, number: Index) -> Expr | None:
        """Whether every row sees every key of a block, and all exist; None where that always holds."""
        inner = self.stage.inner
        assert inner is not None
        begin = number * self.keys
        last = begin + (self.keys - 1)
        inside = [begin - index for index in self._at(inner.first, least=False)]
        inside += [index - last for index in self._at(inner.last, least=True)]
        if self.overhang:
            inside.append(last * -1 + (self._size - 1))
        return conjunction(Inside(index.simplify(self.out.ranges), 0, None) for index in inside)
