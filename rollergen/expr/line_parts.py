"""Windows of which each line's part is put together first: several outputs take it from the same line.

Before (maxima of windows): ``max(x[y + i, z + j], axis=(i, j))``.
After: ``max(maximum(maximum(x[y + i, z], x[y + i, z + 1]), x[y + i, z + 2]), axis=i)``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from rollergen.expr.canonical import simplify
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, is_named, substitute_axes

MOST_TAPS = 8
"""Of a line: longer ones would be written out at length."""


def line_parts(op: TensorOp, tap: str) -> TensorOp | None:
    """`op` with the reduce axis `tap` written out in what is reduced over the others.

    None where there are no others, or many taps, or where operands or several components are combined in a way of their
    own.
    """
    (reduction,) = op.reductions
    taps, combiner = op.axis(tap), reduction.combiner
    others = tuple(axis for axis in reduction.axes if axis != tap)
    if not others or taps.extent > MOST_TAPS or len(reduction.bodies) > 1 or not is_named(combiner):
        return None
    (body,), (together,) = reduction.bodies, combiner.combine
    if not isinstance(together, Binary):
        return None
    parts = [substitute_axes(body, {tap: Index.of(number)}) for number in range(taps.extent)]
    whole = reduce(lambda a, b: replace(together, a=a, b=b), parts)
    made = replace(reduction, axes=others, bodies=(whole,))
    return simplify(replace(op, axes=tuple(axis for axis in op.axes if axis != taps), reductions=(made,)))
