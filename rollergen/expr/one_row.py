"""A vector times a matrix as a product whose first factor has one row.

The canonical form leaves out axes of a single element; matrix instructions want one along each side of their tiles.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_buffer, replace_load
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Load


def one_row(op: TensorOp) -> TensorOp | None:
    """`op` with an axis of extent 1 that the vector and the output have, in front; None where `op` is no vector times a
    matrix."""
    spatial, loads = op.of_role("spatial"), list(dict.fromkeys(op.body_loads()))
    if len(op.reductions) != 1 or len(op.of_role("reduce")) != 1 or op.of_role("row") or len(loads) != 2:
        return None
    vectors = [load for load in loads if not load.axes() & {axis.name for axis in spatial}]
    if len(spatial) != 1 or len(vectors) != 1 or any(load.guard or load.buffer.packs for load in loads) or op.where:
        return None
    name = fresh_buffer(op, "row")
    place = Index.axis(name)
    vector, buffer = vectors[0], vectors[0].buffer
    row: Load = replace(vector, buffer=replace(buffer, shape=(1, *buffer.shape)), indices=(place, *vector.indices))
    made = replace_load(op, vector, row)
    output = replace(op.output, shape=(1, *op.output.shape))
    return replace(made, axes=(Axis(name, 1), *op.axes), output=output, target=(place, *op.target))
