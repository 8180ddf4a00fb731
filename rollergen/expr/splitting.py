"""Splitting a reduction into chunks (split-K) that are summed by a stage of their own, or added up in the output."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.definition import Axis, Definition
from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_buffer
from rollergen.expr.values import Buffer, Const, Load, Partial, substitute_axes

ADDED = ("float32", "int32")
"""Dtypes whose sums can be added to atomically."""


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


def add_reduction(definition: Definition, axis: str, parts: int) -> tuple[Definition, Definition] | None:
    """(zeros in the output, partial sums over chunks of `axis`, to be added there).

    None where `split_reduction` is, and unless the result is a bare sum in the accumulator's dtype, one of `ADDED`.
    """
    pair = split_reduction(definition, axis, parts)
    if pair is None or not is_added(definition):
        return None
    zeros = Definition(
        output=definition.output,
        axes=definition.of_role("spatial"),
        target=definition.target,
        result=Const(0.0 if is_float(definition.output.dtype) else 0, definition.output.dtype),
        where=definition.where,
    )
    return zeros, replace(pair[0], output=definition.output, target=definition.target)


def is_added(definition: Definition) -> bool:
    """Whether the result is one bare sum, in the dtype of its accumulator, of those that can be added to."""
    if len(definition.reductions) != 1:
        return False
    reduction, dtype = definition.reductions[0], definition.output.dtype
    bare = definition.result == Partial(reduction.name, dtype)
    return bare and reduction.combiner.name == "sum" and reduction.bodies[0].dtype == dtype and dtype in ADDED


def summed_axes(definition: Definition) -> tuple[Axis, ...]:
    """Spatial axes that are not in the target: points along them share a place of the output."""
    stored = {name for index in definition.target for name in index.axes()}
    return tuple(axis for axis in definition.of_role("spatial") if axis.name not in stored and axis.extent > 1)
