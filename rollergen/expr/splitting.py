"""Splitting a reduction into chunks that are summed by a stage of their own (split-K)."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.definition import Axis, Definition
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_buffer
from rollergen.expr.values import Buffer, Load, Partial, substitute_axes


def split_reduction(definition: Definition, axis: str, parts: int) -> tuple[Definition, Definition] | None:
    """(partial sums over chunks of `axis`, their combination with the original result).

    The workspace has shape [parts, *spatial extents] and the accumulator's dtype.  None for a
    tuple-valued reduction, for row axes, or if a chunk would be empty.
    """
    if len(definition.reductions) != 1 or len(definition.reductions[0].bodies) != 1 or definition.of_role("row"):
        return None
    extent = definition.axis(axis).extent
    chunk = -(-extent // parts)
    if parts < 2 or chunk * (parts - 1) >= extent or extent % chunk:
        return None
    reduction = definition.reductions[0]
    part = axis + "_part"
    spatial = definition.of_role("spatial")
    position = Index.axis(part) * chunk + Index.axis(axis)
    partial = Partial(reduction.name, reduction.bodies[0].dtype)
    name = fresh_buffer(definition, f"{definition.output.name}_parts")
    workspace = Buffer(name, (parts, *(a.extent for a in spatial)), partial.dtype, "temporary")
    reduce_axes = tuple(Axis(a.name, chunk, "reduce") if a.name == axis else a for a in definition.of_role("reduce"))
    place = tuple(Index.axis(a.name) for a in spatial)
    first = Definition(
        output=workspace,
        axes=(Axis(part, parts), *spatial, *reduce_axes),
        target=(Index.axis(part), *place),
        result=partial,
        reductions=(replace(reduction, bodies=(substitute_axes(reduction.bodies[0], {axis: position}),)),),
        where=tuple(bound for bound in definition.where),
    )
    # Spatial points outside `where` are never written: the second stage must not read them.
    load = Load(workspace, (Index.axis(part), *place), definition.where, 0)
    second = replace(
        definition,
        axes=(*spatial, Axis(part, parts, "reduce")),
        reductions=(replace(reduction, axes=(part,), bodies=(load,)),),
    )
    return first, second
