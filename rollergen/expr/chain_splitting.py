"""Keys of a chain of two contractions cut into chunks (decoding: few rows, many keys), put together by another stage.

Before: ``result(r1, r2)`` of the online pair r1 and the sums r2 over all keys.
After: for each chunk the sums, not divided, with the row's largest score and sum of weights behind its columns; then
``result`` of the chunks' (largest score, sum of weights, sums) combined, each shrunk to the largest score of all.
T. Dao and others, Flash-Decoding (2023), pytorch.org/blog/flash-decoding.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rollergen.expr.chains import ROW, SUM
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_buffer
from rollergen.expr.rows import online_combiner
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Combiner,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Value,
    Var,
    Within,
    substitute_axes,
    transform,
)

BEHIND = 16
"""Columns behind those of the result, of which the first two are used: tiles of any matrix instruction stay whole."""

_DTYPE = "float32"


def split_chain(op: TensorOp, key: str, column: str, chunk: int) -> tuple[TensorOp, TensorOp] | None:
    """(the chain over each chunk of so many keys, the results).

    None for chains without an online pair, and where there are no two chunks.  The chunks' tensor has shape [chunks,
    *spatial extents], with `BEHIND` more columns, in float32; what there is no key of is not read.
    """
    pair = next((one for one in op.reductions if one.name == ROW), None)
    extent, spatial = op.axis(key).extent, op.of_role("spatial")
    parts = -(-extent // chunk)
    if pair is None or parts < 2 or op.where or op.result_loads():
        return None
    part = f"{key}_part"
    wide = tuple(replace(axis, extent=axis.extent + BEHIND) if axis.name == column else axis for axis in spatial)
    place = tuple(Index.axis(axis.name) for axis in spatial)
    shape = (parts, *(axis.extent for axis in wide))
    chunks = Buffer(fresh_buffer(op, f"{op.output.name}_parts"), shape, _DTYPE, "temporary")
    of_chunk = TensorOp(
        output=chunks,
        axes=(Axis(part, parts), *wide, Axis(key, chunk, "reduce"), *op.of_role("inner")),
        target=(Index.axis(part), *place),
        result=_beside(op, column),
        reductions=_of_chunk(op, pair, Index.axis(part) * chunk + Index.axis(key), key, column, parts * chunk > extent),
    )
    return of_chunk, _combined(op, chunks, Axis(part, parts, "reduce"), column)


def _beside(op: TensorOp, column: str) -> Value:
    """The sums, and behind them the largest score and the sum of weights."""
    columns, at = op.axis(column).extent, IndexValue(Index.axis(column))
    number = lambda n: Const(n, "int32")
    behind = Select(
        Binary("eq", at, number(columns), "bool"), Partial(ROW, _DTYPE), Partial(ROW, _DTYPE, 1), _DTYPE
    )
    return Select(Binary("lt", at, number(columns), "bool"), Partial(SUM, _DTYPE), behind, _DTYPE)


def _of_chunk(
    op: TensorOp, pair: Reduction, position: Index, key: str, column: str, overhangs: bool
) -> tuple[Reduction, ...]:
    """The chain's reductions with keys at `position`; scores of keys that do not exist are -inf."""
    columns, keys = op.axis(column).extent, op.axis(key).extent

    def guarded(node: Value) -> Value | None:
        if not isinstance(node, Load):
            return None
        axes = node.axes()
        bounds = [Within(Index.axis(column), 0, columns)] if column in axes else []
        bounds += [Within(position, 0, keys)] if overhangs and key in axes else []
        return replace(node, guard=(*node.guard, *bounds)) if bounds else None

    moved = lambda body: transform(substitute_axes(body, {key: position}), guarded)
    inside = Binary("lt", IndexValue(position), Const(keys, "int32"), "bool")
    score = moved(pair.bodies[0])
    known = Select(inside, score, Const(-math.inf, _DTYPE), _DTYPE)
    masked = lambda body: transform(body, lambda node: known if overhangs and node == score else None)
    first, *others = op.reductions  # the scores themselves stay as they are
    return (
        replace(first, bodies=tuple(map(moved, first.bodies))),
        *(replace(one, bodies=tuple(masked(moved(body)) for body in one.bodies)) for one in others),
    )


def _combined(op: TensorOp, chunks: Buffer, part: Axis, column: str) -> TensorOp:
    """The result of all chunks."""
    spatial, columns = op.of_role("spatial"), op.axis(column).extent
    at = lambda last: tuple(last if axis.name == column else Index.axis(axis.name) for axis in spatial)
    read = lambda last: Load(chunks, (Index.axis(part.name), *at(last)))
    bodies = (read(Index.of(columns)), read(Index.of(columns + 1)), read(Index.axis(column)))
    name = "r"
    number = {(ROW, 0): 0, (ROW, 1): 1, (SUM, 0): 2}

    def renamed(node: Value) -> Value | None:
        return Partial(name, _DTYPE, number[node.name, node.component]) if isinstance(node, Partial) else None

    return replace(
        op,
        axes=(*spatial, part),
        result=transform(op.result, renamed),
        reductions=(Reduction(name, weighed_combiner(), (part.name,), bodies),),
    )


def weighed_combiner() -> Combiner:
    """(largest m, sum s of exp(x - m), sum o of exp(x - m) * v): `online_combiner` with sums of what is weighed."""
    online = online_combiner(_DTYPE)
    others = {"lhs1": Var("lhs2", _DTYPE), "rhs1": Var("rhs2", _DTYPE)}
    sums = transform(online.combine[1], lambda node: others.get(node.name) if isinstance(node, Var) else None)
    return Combiner("weighed", (*online.identity, Const(0.0, _DTYPE)), (*online.combine, sums))
