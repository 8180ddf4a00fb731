"""Rows of scores in the accumulators of matrix instructions: the largest so far, and the sum of their weights.

Four threads share a row.  They know its largest score alike (it is exchanged at each block); of the sum
each has that of its own columns until the end.
"""

from __future__ import annotations

import math

from rollergen.expr.chains import SCORE
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Binary, Const, Partial, Select, Value
from rollergen.lower.expressions import Call, Element, Exchange, Expr, Number, Operation
from rollergen.lower.maths import LOG2E
from rollergen.lower.writer import Writer
from rollergen.program.matrix import COLUMNS, ROWS, Accumulators

_F32 = "float32"


def scaled_score(score: Value) -> tuple[Value, float]:
    """(what is left of a score, the positive factor that its multiplication is left to the weights' own)."""
    match score:
        case Binary(op="mul", a=Partial(name="r0"), b=Const(value=factor)) if 0 < factor < math.inf:
            return Partial(SCORE, _F32), float(factor)
        case Select(a=inner, b=Const(value=value)) if value == -math.inf:
            left, factor = scaled_score(inner)
            return Select(score.cond, left, score.b, score.dtype), factor
        case Select(b=inner, a=Const(value=value)) if value == -math.inf:
            left, factor = scaled_score(inner)
            return Select(score.cond, score.a, left, score.dtype), factor
    return score, 1.0


class OnlineRows:
    """The pair of each row of a thread: ``tiles`` x ``halves`` of them; scores lack the factor of `scaled_score`."""

    def __init__(self, out: Writer, pair: Reduction, tiles: int, halves: int, spread: Accumulators) -> None:
        self.out, self.tiles, self.halves, self.spread = out, tiles, halves, spread
        self.factor = scaled_score(pair.bodies[0])[1]
        self.least = float(pair.combiner.identity[0].value)
        self._largest, self._total, self._shrink, self._scaled = (
            out.register(name, _F32, (tiles, halves)) for name in ("largest", "total", "shrink", "scaled")
        )
        for at in self._each():
            for half in range(halves):
                out.assign(self._of(self._largest, at, half), Number(self.least, _F32))
                out.assign(self._of(self._total, at, half), Number(0.0, _F32))
                out.assign(self._of(self._scaled, at, half), Number(self.least, _F32))

    def _each(self):  # type: ignore[no-untyped-def]
        out = self.out
        with out.loop(out.names.fresh("tile"), self.tiles, (0, self.tiles - 1), unroll=True) as at:
            yield at

    def _of(self, name: str, tile: Index, half: int) -> Element:
        return Element(name, (tile, Index.of(half)), _F32)

    def shrink(self, tile: Index, half: int) -> Element:
        return self._of(self._shrink, tile, half)

    def gather(self, scores: str, parts: int) -> None:
        """The largest score of each row with those of a block; sums shrink by the difference."""
        out, larger = self.out, self.out.native["max_number"]
        for at in self._each():
            for half in range(self.halves):
                largest = self._of(self._largest, at, half)
                with out.loop(out.names.fresh("part"), parts, (0, parts - 1), unroll=True) as part:
                    for e in range(len(self.spread.places)):
                        score = Element(scores, (at, part, Index.of(half), Index.of(e)), _F32)
                        out.assign(largest, Call(larger, (largest, score), _F32))
                for apart in self.spread.apart:
                    other = out.let("other", Exchange(largest, "xor", Index.of(apart), ROWS * COLUMNS))
                    out.assign(largest, Call(larger, (largest, other), _F32))
                scaled, total = self._of(self._scaled, at, half), self._of(self._total, at, half)
                exponent = Operation("mul", (largest, Number(self.factor * LOG2E, _F32)), _F32)
                least = Number(self.least, _F32)
                new = out.let("new", Call(larger, (exponent, least), _F32))  # a finite one: -inf - -inf is NaN
                below = Operation("sub", (scaled, new), _F32)
                out.assign(self.shrink(at, half), self._power(below))
                out.assign(scaled, new)
                out.assign(total, Operation("mul", (total, self.shrink(at, half)), _F32))

    def _power(self, exponent: Expr) -> Expr:
        return Call(self.out.native["exp2_approx"], (exponent,), _F32)

    def weight(self, score: Expr, tile: Index, half: int) -> Expr:
        """The weight of a score, added to its row's sum."""
        product = Operation("mul", (score, Number(self.factor * LOG2E, _F32)), _F32)
        exponent = Operation("sub", (product, self._of(self._scaled, tile, half)), _F32)
        weight = self.out.let("weight", self._power(exponent))
        total = self._of(self._total, tile, half)
        self.out.assign(total, Operation("add", (total, weight), _F32))
        return weight

    def finish(self) -> None:
        """The sums of whole rows."""
        out = self.out
        for at in self._each():
            for half in range(self.halves):
                total = self._of(self._total, at, half)
                for apart in self.spread.apart:
                    other = out.let("other", Exchange(total, "xor", Index.of(apart), ROWS * COLUMNS))
                    out.assign(total, Operation("add", (total, other), _F32))

    def pair(self, tile: Index, half: int) -> tuple[Expr, Expr]:
        """(the largest score, the sum of weights) of a row."""
        largest: Expr = self._of(self._largest, tile, half)
        if self.factor != 1.0:
            largest = Operation("mul", (largest, Number(self.factor, _F32)), _F32)
        return largest, self._of(self._total, tile, half)
