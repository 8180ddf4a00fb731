"""A result inside a constant frame, such as an image inside its padding: what is computed and what is not, apart.

Both store into the same output, each element once: no sum is computed for an element of the frame, and no other is
copied to the place that the frame leaves for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollergen.expr.edges import Span, part
from rollergen.expr.guards import bounds_of, negated_bounds
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Const, Select, Within


def without_frame(op: TensorOp) -> tuple[TensorOp, tuple[TensorOp, ...]] | None:
    """(`op` within its frame, the sides of the frame); None where `op` reduces nothing, or where its result is not a
    constant outside of spans of spatial axes."""
    match op.result:
        case Select(cond, inner, Const() as constant):
            bounds = bounds_of(cond)
        case Select(cond, Const() as constant, inner):
            bounds = negated_bounds(cond)
        case _:
            return None
    spans = _spans(op, bounds or ()) if op.reductions and not op.where else None
    if not spans:
        return None
    stored = tuple(replace(axis, role="spatial") for axis in op.axes if axis.role in ("spatial", "row"))
    filled = replace(op, axes=stored, result=constant, reductions=())
    sides: list[TensorOp] = []
    within: dict[str, Span] = {}
    for axis, (first, end) in spans.items():
        outside = [span for span in ((0, first), (end, op.axis(axis).extent)) if span[0] < span[1]]
        sides += [part(filled, {**within, axis: span}) for span in outside]
        within[axis] = (first, end)
    return part(replace(op, result=inner), spans), tuple(sides)


def _spans(op: TensorOp, bounds: Sequence[Within]) -> dict[str, Span] | None:
    """Of each axis that the ``bounds`` are of, where they hold; None where one is of something else, or none holds."""
    spatial = {axis.name: axis.extent for axis in op.of_role("spatial")}
    found: dict[str, Span] = {}
    for bound in bounds:
        (name, scale), *others = bound.index.terms or (("", 0),)
        if others or scale != 1 or name not in spatial or name in found:
            return None
        low, high = (limit - bound.index.const for limit in (bound.low, bound.high))
        found[name] = max(0, low), min(spatial[name], high)
    return found if all(first < end for first, end in found.values()) else None
