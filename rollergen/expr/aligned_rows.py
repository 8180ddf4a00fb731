"""Factors of a product whose rows begin at no multiple of a vector, copied into rows that do.

Like packing, each copy is an ordinary elementwise tensor op into a temporary.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.packing import Prepared, fresh_buffer, replace_load
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Buffer, Cast, Load, Value, Within

REUSE = 256
"""Results for which an element of each copied factor is read, at least: a copy reads and writes it once more."""


def aligned_rows(op: TensorOp, row_bytes: int) -> Prepared | None:
    """`op` over factors whose rows along the reduce axis are multiples of `row_bytes`, and the copies that make them.

    The factor of shape [.., k, ..] becomes one of shape [its spatial axes.., k'], where k' is the least multiple at or
    above k, with zeros behind k.  None where `op` is no sum of products of two plain loads over one axis, where rows
    are aligned, or where few results read what would be copied.
    """
    loads = _factors(op)
    if not loads:
        return None
    (k,) = op.of_role("reduce")
    elements = max(1, row_bytes // min(ITEMSIZE[load.dtype] for load in loads))
    longer = -(-k.extent // elements) * elements
    chosen = [load for load in loads if longer > k.extent or load.buffer.shape[-1] % elements]
    if not chosen or any(_reuse(op, load) < REUSE for load in chosen):
        return None
    copies, made = [], replace(op, axes=tuple(replace(a, extent=longer) if a == k else a for a in op.axes))
    for load in chosen:
        copy = _copy(made, load, k, longer)
        places = tuple(Index.axis(axis.name) for axis in copy.axes)
        copies.append(copy)
        made = replace_load(made, load, Load(copy.output, places))
    return Prepared(tuple(copies), made)


def _factors(op: TensorOp) -> tuple[Load, ...]:
    """The loads that are multiplied; none where the tensor op is something else."""
    if len(op.reductions) != 1 or len(op.of_role("reduce")) != 1 or op.of_role("row") or op.where:
        return ()
    (reduction,), (k,) = op.reductions, op.of_role("reduce")
    found: dict[Load, None] = {}
    for body in reduction.bodies:
        parts = (body.a, body.b) if isinstance(body, Binary) and body.op == "mul" else ()
        factors = [_plain(part, k.name) for part in parts]
        if reduction.combiner.name != "sum" or not factors or None in factors:
            return ()
        found |= dict.fromkeys(factors)  # type: ignore[arg-type]
    return tuple(found)


def _plain(value: Value, k: str) -> Load | None:
    """The load that `value` is, but for a conversion, if its indices are axes, k among them, and nothing guards it."""
    load = value.x if isinstance(value, Cast) else value
    if not isinstance(load, Load) or load.guard or load.buffer.packs or k not in load.axes():
        return None
    axes = [index.axes() for index in load.indices]
    plain = all(len(own) == 1 and index == Index.axis(min(own)) for own, index in zip(axes, load.indices, strict=True))
    return load if plain and len(load.axes()) == len(axes) else None


def _reuse(op: TensorOp, load: Load) -> int:
    return prod(axis.extent for axis in op.of_role("spatial") if axis.name not in load.axes())


def _copy(op: TensorOp, load: Load, k: Axis, longer: int) -> TensorOp:
    """``rows[its spatial axes.., k'] = load``, zero behind k."""
    own = [axis for axis in op.of_role("spatial") if axis.name in load.axes()]
    axes = (*own, Axis(k.name, longer))
    name = fresh_buffer(op, f"{load.buffer.name}_rows")
    rows = Buffer(name, tuple(axis.extent for axis in axes), load.dtype, "temporary")
    guard = (Within(Index.axis(k.name), 0, k.extent),) if longer > k.extent else ()
    return TensorOp(rows, axes, tuple(Index.axis(axis.name) for axis in axes), replace(load, guard=guard))
