"""Points of a row that go into an online pair together: held in registers, then their largest, then the sum.

held[...] = each point's element
most = the largest of them and of the pair's
sum = sum * exp(largest - most) + exp(held[...] - most) + ...
largest = most
"""

from __future__ import annotations

from rollergen.expr.rows import PART, WHOLE, shrinking
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.expressions import Call, Expr, Number, Operation
from rollergen.lower.masks import compare, select
from rollergen.lower.place import Place, Registers, Scope
from rollergen.lower.reductions import Accumulators, loops_over, unmasked
from rollergen.lower.writer import Writer


def hold(out: Writer, place: Place, acc: Accumulators) -> Registers:
    """Registers for the elements of all points that go into `acc` together."""
    positions = place.nest.stage.accumulator.gathered
    shape = tuple(place.nest.loops[p].extent for p in positions)
    dtype = acc.components[0].dtype
    return Registers(out.register("held", dtype, shape), tuple(((p, 1),) for p in positions), dtype, 1)


def take(out: Writer, scope: Scope, acc: Accumulators, held: Registers, element: Expr) -> None:
    """Puts one point's element into the registers; for a masked point, an element that adds nothing to any sum."""
    condition = unmasked(out, scope, acc.reduction)
    if condition is not None:
        element = select(condition, element, Number(float("-inf"), element.dtype))
    out.assign(scope.place.element(held), element)


def put_together(out: Writer, scope: Scope, acc: Accumulators, held: Registers) -> None:
    """All elements that are held into the pair."""
    place, positions = scope.place, scope.place.nest.stage.accumulator.gathered
    largest, total = (place.element(registers) for registers in acc.components)
    most = place.element(Registers(out.register("most", held.dtype), (), held.dtype, 1))
    out.assign(most, largest)
    with loops_over(out, place, positions):
        out.assign(most, _larger(out, most, place.element(held)))
    out.assign(total, Operation("mul", (total, _shrunk(out, scope, largest, most)), total.dtype))
    with loops_over(out, place, positions):
        term = _shrunk(out, scope, place.element(held), most)
        out.assign(total, Operation("add", (total, term), total.dtype))
    out.assign(largest, most)


def _larger(out: Writer, a: Expr, b: Expr) -> Expr:
    """The larger of two; of a NaN and a number any (the sum tells of NaN)."""
    if a.dtype == "float32" and "max_number" in out.native:
        return Call(out.native["max_number"], (a, b), a.dtype)
    return select(compare("gt", a, b), a, b)


def _shrunk(out: Writer, scope: Scope, part: Expr, whole: Expr) -> Expr:
    inner = Scope(scope.place, None, scope.load, scope.partial, {PART: part, WHOLE: whole})
    return evaluate(out, inner, shrinking(part.dtype))
