"""Packing: an operand copied into panels before it is used.

The copy is an ordinary elementwise tensor op into a temporary, so all readers of a program treat it
like any other stage.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load, Value, Within, transform


def replace_load(op: TensorOp, old: Load, new: Load) -> TensorOp:
    """`op` with every occurrence of one load replaced."""

    def change(value: Value) -> Value | None:
        return new if value == old else None

    reductions = tuple(
        replace(reduction, bodies=tuple(transform(body, change) for body in reduction.bodies))
        for reduction in op.reductions
    )
    return replace(op, reductions=reductions, result=transform(op.result, change))


def pack_operand(
    op: TensorOp, load: Load, axis: str, width: int, pad_value: float = 0.0
) -> tuple[TensorOp, TensorOp]:
    """`load` copied once into panels of `width` along `axis`; (the copying stage, the rewritten user).

    The panel buffer has shape [other spatial axes..., ceil(extent / width), reduce axes..., width],
    padded beyond the axis with `pad_value`, or with the fill of a load that is guarded itself: a view is
    materialised as it is iterated, so packing the image of a convolution is im2col.
    """
    extent = op.axis(axis).extent
    used = load.axes()
    outer = [a for a in op.of_role("spatial", "row") if a.name in used and a.name != axis]
    reduced = [a for a in op.of_role("reduce") if a.name in used]
    panel, column = fresh_axis(op, axis + "_panel"), fresh_axis(op, axis + "_column")
    axes = (
        *(replace(a, role="spatial") for a in outer),
        Axis(panel, -(-extent // width)),
        *(replace(a, role="spatial") for a in reduced),
        Axis(column, width),
    )
    name = fresh_buffer(op, f"{load.buffer.name}_packed")
    packed = Buffer(name, tuple(a.extent for a in axes), load.buffer.dtype, "temporary")
    position = Index.axis(panel) * width + Index.axis(column)
    guard = tuple(bound.substitute({axis: position}) for bound in load.guard)
    if extent % width:
        guard = (Within(position, 0, extent), *guard)
    indices = tuple(i.substitute({axis: position}) for i in load.indices)
    source = replace(load, indices=indices, guard=guard, fill=_fill(load, pad_value))
    copy = TensorOp(packed, axes, tuple(Index.axis(a.name) for a in axes), source)
    here = Index.axis(axis)
    indices = (
        *(Index.axis(a.name) for a in outer),
        here // width,
        *(Index.axis(a.name) for a in reduced),
        here % width,
    )
    return copy, replace_load(op, load, Load(packed, indices))


def _fill(load: Load, pad_value: float) -> float | int:
    """What lies beyond the axis: of a guarded load its own fill, as there is one fill only."""
    if load.guard or pad_value == 0:
        return load.fill
    return pad_value if is_float(load.dtype) else int(pad_value)


def fresh_axis(op: TensorOp, name: str) -> str:
    """`name`, with underscores appended until no axis has it."""
    taken = {axis.name for axis in op.axes}
    while name in taken:
        name += "_"
    return name


def fresh_buffer(op: TensorOp, name: str) -> str:
    """`name`, with underscores appended until no buffer of the tensor op has it."""
    taken = {op.output.name, *(load.buffer.name for load in op.loads())}
    while name in taken:
        name += "_"
    return name
