"""Reductions that find a place, where terms come in order (see `Accumulators.in_order`): how they begin."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.expr.values import IndexValue
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.expressions import Number
from rollergen.lower.masks import widen
from rollergen.lower.place import Scope
from rollergen.lower.reductions import Accumulators, loops_over
from rollergen.lower.writer import Writer
from rollergen.program.loops import is_chained


def start_places(out: Writer, scope: Scope, acc: Accumulators) -> None:
    """Each accumulator's place at that of its first term, which no equal one moves."""
    nest, place = scope.place.nest, acc.reduction.bodies[1]
    assert isinstance(place, IndexValue)
    loops = [p for p in range(nest.tile_depth, len(nest.loops)) if nest.loops[p].axis in acc.reduction.axes]
    first = {p: Index() for p in loops if is_chained(nest.stage, p, nest.loops[p])}
    places = acc.components[1]
    with loops_over(out, scope.place, acc.positions):
        value = evaluate(out, replace(scope, place=scope.place.bind(first)), place)
        target = scope.place.element(places)
        out.assign(target, widen(value, Number(0, places.dtype, places.lanes))[0])
