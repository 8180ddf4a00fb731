"""Chains of a single row (one query, as in decoding) with an axis of rows, which tiles of matrix instructions have."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.canonical import divisions, split_axis
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Load, Value, loads, transform
from rollergen.program.chains import chain_factors, chain_roles


def with_rows(op: TensorOp) -> TensorOp:
    """`op` with an axis of rows: those of the heads that share keys where some do, else one of extent 1.

    Before: ``q[h, d] * k[h // 4, j, d]``.  After, with h of h * 4 + h_1: ``q[h, h_1, d] * k[h, j, d]``.
    Before: ``q[h, d] * k[h, j, d]``.  After, with a row: ``q[h, row, d] * k[h, j, d]``, queries viewed so.
    """
    if op.inner is None or chain_roles(op) is not None:
        return op
    for name, divisor in divisions(op):
        shared = split_axis(op, name, divisor)
        if chain_roles(shared) is not None:
            return shared
    return _with_one_row(op)


def _with_one_row(op: TensorOp) -> TensorOp:
    row = next(name for n in range(len(op.axes) + 1) if (name := f"row{n or ''}") not in op.extents())
    queries = set(loads(chain_factors(op).queries))

    def with_row(node: Value) -> Value | None:
        if not isinstance(node, Load) or node not in queries:
            return None
        shape = (*node.buffer.shape[:-1], 1, node.buffer.shape[-1])
        indices = (*node.indices[:-1], Index.axis(row), node.indices[-1])
        return replace(node, buffer=replace(node.buffer, shape=shape), indices=indices)

    rewritten = tuple(
        replace(one, bodies=tuple(transform(body, with_row) for body in one.bodies)) for one in op.reductions
    )
    return replace(op, axes=(Axis(row, 1), *op.axes), reductions=rewritten)
