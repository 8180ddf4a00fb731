"""Narrow factors of a product in rows along the sum, for threads that compute their part of it from neighbours there.

Bytes are transposed, nibbles that are packed along another axis packed along the sum, and what is the same for many
neighbours along the sum (scales, zero points of a group) is laid out along the other axis.  Each copy is an elementwise
tensor op; of constants it runs once.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.packing import Prepared, fresh_buffer, replace_load
from rollergen.expr.runs import of_runs, run_along
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Buffer, Cast, Const, IndexValue, Load, Value, substitute_axes, transform, walk
from rollergen.expr.views import reduced
from rollergen.hal.dtypes import FLOAT8

_BYTE = "uint8"


def has_narrow_factor(op: TensorOp) -> bool:
    """Whether a sum over products reads bytes beside wider floats, or none but float8: what `narrow_rows` may be of use
    for."""
    if len(op.reductions) != 1 or op.of_role("row") or op.reductions[0].combiner.name != "sum":
        return False
    dtypes = {load.dtype for load in op.body_loads()}
    wide = bool(dtypes & {"float16", "bfloat16"})
    return dtypes <= set(FLOAT8) or (wide and bool(dtypes & {"int8", _BYTE, *FLOAT8}))


def narrow_rows(op: TensorOp) -> Prepared | None:
    """`op`, a sum over one axis, over narrow factors in rows along it, and the copies that make them; None where all
    lie so."""
    if len(op.of_role("reduce")) != 1 or op.where:
        return None
    k, copies = op.of_role("reduce")[0], []
    for load in op.body_loads():
        others = [axis for axis in op.of_role("spatial") if axis.name in load.axes()]
        if len(others) != 1 or k.name not in load.axes() or load.guard or load.fill:
            continue
        axis, along = others[0], run_along(load, k.name, op.ranges())
        made = None
        if along == 1 and ITEMSIZE[load.dtype] == 1 and load.offset().coefficient(k.name) != 1:
            made = _bytes_along(op, load, axis, k) or _nibbles_along(op, load, axis, k)
        elif along > 2 and load.offset().coefficient(axis.name) != 1:
            made = _columns_apart(op, load, axis, k, along)
        if made is not None:
            copies.append(made.copies[0])
            op = made.op
    return Prepared(tuple(copies), op) if copies else None


def _rows(op: TensorOp, load: Load, shape: tuple[Axis, ...]) -> Buffer:
    name = fresh_buffer(op, f"{load.buffer.name}_rows")
    return Buffer(name, tuple(axis.extent for axis in shape), load.dtype, "temporary")


def _bytes_along(op: TensorOp, load: Load, axis: Axis, k: Axis) -> Prepared | None:
    """Bytes of which each is one element; None of others."""
    if load.buffer.packs or run_along(load, axis.name, op.ranges()) != 1:
        return None
    rows = _rows(op, load, (axis, k))
    place = (Index.axis(axis.name), Index.axis(k.name))
    copy = TensorOp(rows, (replace(axis, role="spatial"), replace(k, role="spatial")), place, load)
    return Prepared((copy,), replace_load(op, load, Load(rows, place)))


def _nibbles_along(op: TensorOp, load: Load, axis: Axis, k: Axis) -> Prepared | None:
    """Bytes of two neighbours along the other axis: packed along the sum instead."""
    shifts = {node for body in op.reductions[0].bodies for node in walk(body) if _is_nibble(node, load)}
    if len(shifts) != 1 or k.extent % 2:
        return None
    (shift,) = shifts
    pair = Axis(k.name, k.extent // 2)
    rows, place = _rows(op, load, (axis, pair)), (Index.axis(axis.name), Index.axis(k.name))
    at = lambda second: Binary(
        "bitand", _at(shift, k.name, Index.axis(k.name) * 2 + second, op), Const(15, _BYTE), _BYTE
    )
    high = Binary("shl", at(1), Const(4, _BYTE), _BYTE)
    copy = TensorOp(rows, (replace(axis, role="spatial"), pair), place, Binary("bitor", at(0), high, _BYTE))
    whole = Index.axis(k.name)
    by = Cast(IndexValue(whole % 2 * 4), _BYTE)
    taken = Binary("shr", Load(rows, (Index.axis(axis.name), whole // 2)), by, _BYTE)
    change = lambda node: taken if node == shift else None
    reduction = op.reductions[0]
    bodies = tuple(transform(body, change) for body in reduction.bodies)
    return Prepared((copy,), replace(op, reductions=(replace(reduction, bodies=bodies),)))


def _is_nibble(node: Value, load: Load) -> bool:
    return isinstance(node, Binary) and node.op == "shr" and node.a == load and node.dtype == _BYTE


def _at(value: Value, axis: str, place: Index, op: TensorOp) -> Value:
    """`value` at a place along an axis, its indices simplified."""
    ranges = op.ranges()

    def simple(node: Value) -> Value | None:
        if isinstance(node, Load):
            return replace(node, indices=tuple(reduced(index, ranges) for index in node.indices))
        return replace(node, index=reduced(node.index, ranges)) if isinstance(node, IndexValue) else None

    return transform(substitute_axes(value, {axis: place}), simple)


def _columns_apart(op: TensorOp, load: Load, axis: Axis, k: Axis, along: int) -> Prepared | None:
    """What neighbours share, one run after the other."""
    alone = of_runs(load, k.name, along, op.ranges())
    if alone is None:
        return None
    runs = Axis(k.name, k.extent // along)
    rows, place = _rows(op, load, (runs, axis)), (Index.axis(k.name), Index.axis(axis.name))
    copy = TensorOp(rows, (runs, replace(axis, role="spatial")), place, alone)
    return Prepared((copy,), replace_load(op, load, Load(rows, (Index.axis(k.name) // along, place[1]))))


def with_one_row(op: TensorOp) -> TensorOp | None:
    """A vector times a matrix that is computed, with an axis of extent 1 that the vector and the output have, in front;
    None where `op` is something else."""
    spatial = {axis.name for axis in op.of_role("spatial")}
    vectors = [load for load in op.body_loads() if not load.axes() & spatial and ITEMSIZE[load.dtype] == 2]
    if not spatial or len(vectors) != 1 or vectors[0].guard or op.where:
        return None
    name = fresh_buffer(op, "row")
    vector = vectors[0]
    row = replace(vector, buffer=replace(vector.buffer, shape=(1, *vector.buffer.shape)),
                  indices=(Index.axis(name), *vector.indices))  # fmt: skip
    output = replace(op.output, shape=(1, *op.output.shape))
    made = replace_load(op, vector, row)
    return replace(made, axes=(Axis(name, 1), *op.axes), output=output, target=(Index.axis(name), *op.target))
