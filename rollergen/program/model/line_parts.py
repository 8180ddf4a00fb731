"""What is computed of the elements of a line alone, before the lines of a window are put together."""

from __future__ import annotations

from functools import lru_cache

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import walk
from rollergen.program.model.facts import count_operations
from rollergen.program.model.indices import count_of
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, product
from rollergen.program.rprogram import LANE, UNROLL


@lru_cache(maxsize=64)
def _operations(op: TensorOp) -> tuple[tuple[str, int], ...]:
    """Of the values that the one reduction puts together."""
    (reduction,) = op.reductions
    return count_operations(tuple(dict.fromkeys(node for body in reduction.bodies for node in walk(body))), (), op)


def saved_operations(nest: Nest) -> tuple[tuple[tuple[str, int], ...], Number]:
    """(Operations on the elements of a line, the share of them that unrolled outputs and taps have in common): where
    everything is read of lines along which both slide, one line's values are those of all pairs that add up to it."""
    op = nest.facts.op
    lane = next((loop.axis for loop in nest.loops if loop.kind == LANE), "")
    if len(op.reductions) != 1 or op.of_role("row") or not op.body_loads():
        return (), 0
    own = [p for p, loop in enumerate(nest.loops) if loop.kind == UNROLL and loop.axis != lane]
    unrolled = {nest.loops[p].axis for p in own}
    lines = {Index(index.terms) for load in op.body_loads() for index in load.indices if index.axes() & unrolled}
    if len(lines) != 1:
        return (), 0
    (line,) = lines
    if {nest.facts.roles[axis] for axis in line.axes()} != {"spatial", "reduce"} or not line.axes() <= unrolled:
        return (), 0
    spans = {axis: nest.extent(tuple([p for p in own if nest.loops[p].axis == axis])) for axis in line.axes()}
    return _operations(op), 1 - count_of(line, spans) / product(list(spans.values()))
