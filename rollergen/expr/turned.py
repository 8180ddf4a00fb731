"""Contractions whose results are computed with another axis innermost, and turned when they are stored.

Vectors run along the innermost axis of the results.  Of one that fills no whole vectors (49 pixels of a 7 x 7 image are
3.1 vectors of 16) lanes compute what nobody reads.  The filters of a convolution fill whole vectors, and a constant
weight is packed once so that they lie side by side.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.canonical import canonical_op
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_buffer
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Partial, transform
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Turned:
    """``sums``: the contraction, stored with the other axis innermost; ``output``: what makes the results of them."""

    sums: TensorOp
    output: TensorOp


def turned(op: TensorOp, n: str, lanes: int) -> Turned | None:
    """`op` by way of sums that have its longest axis innermost which is whole vectors of so many lanes, of which one
    factor is constant and the other, which has the axis ``n``, is not; None where no axis is such.

    The image's elements are then the same for all lanes, so that windows of any stride read them as they lie: with
    lanes along the pixels of 3 x 3 taps and stride 2 at 28 x 28, they are packed first, and 256 filters took 1.13
    times as long.
    """
    if len(op.reductions) != 1 or op.of_role("row", "inner"):
        return None
    if op.takes() or op.scans or op.where:
        return None
    (reduction,) = op.reductions
    loads = op.body_loads()
    across = [axis for axis in op.of_role("spatial") if axis.extent % lanes == 0 and _is_of_constants(axis.name, loads)]
    if len(reduction.bodies) != 1 or not across or _is_of_constants(n, loads):
        return None
    inner = max(across, key=lambda axis: axis.extent)
    axes = (*[axis for axis in op.of_role("spatial") if axis is not inner], inner)
    dtype = reduction.bodies[0].dtype
    shape = tuple(axis.extent for axis in axes)
    buffer = Buffer(fresh_buffer(op, f"{op.output.name}_sums"), shape, dtype, "temporary")
    sums = Load(buffer, tuple(Index.axis(axis.name) for axis in axes))
    made = TensorOp(buffer, (*axes, *op.of_role("reduce")), sums.indices, Partial(reduction.name, dtype), op.reductions)
    result = transform(op.result, lambda node: sums if isinstance(node, Partial) else None)
    return Turned(*map(canonical_op, (made, replace(op, axes=op.of_role("spatial"), reductions=(), result=result))))


def _is_of_constants(axis: str, loads: tuple[Load, ...]) -> bool:
    """Whether constants are read along the axis, and nothing else."""
    along = [load.buffer.constant for load in loads if axis in load.axes()]
    return bool(along) and all(along)
