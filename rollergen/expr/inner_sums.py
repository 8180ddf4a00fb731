"""Factors of a convolution, copied so that the longest axis of its sum is the innermost in memory.

Of images that lie channels first, neighbours along the sum are far apart, and windows are gathered element by element.
A copy with the channels last has rows that vectors move.  Like packing, each copy is an ordinary elementwise tensor op
into a temporary; weights that are constant are copied once.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.canonical import canonical_op
from rollergen.expr.index import Index
from rollergen.expr.packing import Prepared, fresh_buffer, replace_load
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load


def sums_inside(op: TensorOp) -> Prepared | None:
    """`op` over factors that lie so, and the copies that make them.

    None where the sum has a single axis (then nothing is gathered), where no axis of it is a dimension of every factor,
    and where all factors lie so already.
    """
    reduced, loads = op.of_role("reduce"), list(dict.fromkeys(op.body_loads()))
    if len(op.reductions) != 1 or len(reduced) < 2 or op.of_role("row") or any(x.buffer.packs for x in loads):
        return None
    common = [axis for axis in reduced if all(Index.axis(axis.name) in load.indices for load in loads)]
    if not common:
        return None
    inner = Index.axis(max(common, key=lambda axis: axis.extent).name)
    copies: dict[tuple[Buffer, int], tuple[Buffer, TensorOp]] = {}
    made = op
    for load in loads:
        dim = load.indices.index(inner)
        if dim == len(load.indices) - 1:
            continue
        order = (*(d for d in range(len(load.indices)) if d != dim), dim)
        output, _ = copies.setdefault((load.buffer, dim), _copy(made, load, order))
        turned = replace(load, buffer=output, indices=tuple(load.indices[d] for d in order))
        made = replace_load(made, load, turned)
    return Prepared(tuple(copy for _, copy in copies.values()), made) if copies else None


def _copy(op: TensorOp, load: Load, order: tuple[int, ...]) -> tuple[Buffer, TensorOp]:
    """The load's buffer with its dimensions in another order; those that stay neighbours are one axis of the copy."""
    axes = tuple(Axis(f"dim{d}", load.buffer.shape[d]) for d in order)
    name = fresh_buffer(op, f"{load.buffer.name}_turned")
    output = Buffer(name, tuple(axis.extent for axis in axes), load.dtype, "temporary")
    source = Load(load.buffer, tuple(Index.axis(f"dim{d}") for d in range(len(order))))
    return output, canonical_op(TensorOp(output, axes, tuple(Index.axis(axis.name) for axis in axes), source))
