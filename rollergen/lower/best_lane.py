"""The best of a vector's lanes and its place: the best element, then the first place among those that equal it."""

from __future__ import annotations

from collections.abc import Callable

from rollergen.expr.dtypes import is_float
from rollergen.expr.positions import LAST_PLACE, worst
from rollergen.expr.values import Combiner
from rollergen.lower.arithmetic import extreme
from rollergen.lower.expressions import Expr, Number, Operation, Pick
from rollergen.lower.masks import compare, select
from rollergen.lower.writer import Writer


def best_lane(out: Writer, combiner: Combiner, elements: Expr, places: Expr) -> tuple[Expr, Expr]:
    """Of pairs that `combiner` would put together (see `combiner_in_order`), in a third of its operations."""
    dtype = elements.dtype
    which = "max" if combiner.identity[0].value == worst(dtype, 1) else "min"
    elements = out.atom("lanes", elements)
    best = _halved(out, elements, lambda a, b: extreme(out, which, a, b, dtype))
    equal = compare("eq", elements, best)
    if is_float(dtype):  # the best is NaN where any element is
        lost = compare("ne", elements, elements)
        equal = Operation("or", (equal, lost), lost.dtype, lost.lanes)
    candidates = select(equal, places, Number(LAST_PLACE, places.dtype, places.lanes))
    return best, _halved(out, out.let("places", candidates), lambda a, b: extreme(out, "min", a, b, places.dtype))


def _halved(out: Writer, lanes: Expr, put_together: Callable[[Expr, Expr], Expr]) -> Expr:
    while lanes.lanes > 1:
        last = lanes.lanes == 2
        halves = Pick(lanes, 0 if last else "lo"), Pick(lanes, 1 if last else "hi")
        lanes = out.let("lanes", put_together(*halves))
    return lanes
