"""Packing: an operand copied into panels before it is used.

The copy is an ordinary elementwise definition into a temporary, so all readers of a program treat it
like any other stage.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.definition import Axis, Definition
from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Index, Within
from rollergen.expr.values import Buffer, Load, Value, transform


def replace_load(definition: Definition, old: Load, new: Load) -> Definition:
    """`definition` with every occurrence of one load replaced."""

    def change(value: Value) -> Value | None:
        return new if value == old else None

    reductions = tuple(
        replace(reduction, bodies=tuple(transform(body, change) for body in reduction.bodies))
        for reduction in definition.reductions
    )
    return replace(definition, reductions=reductions, result=transform(definition.result, change))


def pack_operand(
    definition: Definition, load: Load, axis: str, width: int, pad_value: float = 0.0
) -> tuple[Definition, Definition]:
    """`load` copied once into panels of `width` along `axis`; (the copying stage, the rewritten user).

    The panel buffer has shape [other spatial axes..., ceil(extent / width), reduce axes..., width],
    padded beyond the axis with `pad_value`, or with the fill of a load that is guarded itself: a view is
    materialised as it is iterated, so packing the image of a convolution is im2col.
    """
    extent = definition.axis(axis).extent
    used = load.axes()
    outer = [a for a in definition.of_role("spatial", "row") if a.name in used and a.name != axis]
    reduced = [a for a in definition.of_role("reduce") if a.name in used]
    panel, column = fresh_axis(definition, axis + "_panel"), fresh_axis(definition, axis + "_column")
    axes = (
        *(replace(a, role="spatial") for a in outer),
        Axis(panel, -(-extent // width)),
        *(replace(a, role="spatial") for a in reduced),
        Axis(column, width),
    )
    name = fresh_buffer(definition, f"{load.buffer.name}_packed")
    packed = Buffer(name, tuple(a.extent for a in axes), load.buffer.dtype, "temporary")
    position = Index.axis(panel) * width + Index.axis(column)
    guard = tuple(bound.substitute({axis: position}) for bound in load.guard)
    if extent % width:
        guard = (Within(position, 0, extent), *guard)
    indices = tuple(i.substitute({axis: position}) for i in load.indices)
    source = replace(load, indices=indices, guard=guard, fill=_fill(load, pad_value))
    copy = Definition(packed, axes, tuple(Index.axis(a.name) for a in axes), source)
    here = Index.axis(axis)
    indices = (
        *(Index.axis(a.name) for a in outer),
        here // width,
        *(Index.axis(a.name) for a in reduced),
        here % width,
    )
    return copy, replace_load(definition, load, Load(packed, indices))


def _fill(load: Load, pad_value: float) -> float | int:
    """What lies beyond the axis: of a guarded load its own fill, as there is one fill only."""
    if load.guard or pad_value == 0:
        return load.fill
    return pad_value if is_float(load.dtype) else int(pad_value)


def fresh_axis(definition: Definition, name: str) -> str:
    """`name`, with underscores appended until no axis has it."""
    taken = {axis.name for axis in definition.axes}
    while name in taken:
        name += "_"
    return name


def fresh_buffer(definition: Definition, name: str) -> str:
    """`name`, with underscores appended until no buffer of the definition has it."""
    taken = {definition.output.name, *(load.buffer.name for load in definition.loads())}
    while name in taken:
        name += "_"
    return name
