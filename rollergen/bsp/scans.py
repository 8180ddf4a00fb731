"""Scans of machines whose tiles continue nothing: each element is a reduction of its own over all before it."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.guards import push_guards
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_axis
from rollergen.expr.tensor_op import Axis, Reduction, Running, TensorOp
from rollergen.expr.values import Binary, Const, IndexValue, Select, Value, is_named, substitute_axes


def without_scan(op: TensorOp) -> TensorOp | None:
    """The tensor op with a reduction over the whole row for each of its elements, n squared of a row of n; itself where
    it is no scan.  None where the order of what is combined counts, which reductions do not keep."""
    scans = [one for one in op.reductions if isinstance(one, Running)]
    if not scans:
        return op
    if not all(is_named(one.combiner) for one in scans):
        return None
    row = op.axis(scans[0].axes[0])
    before = fresh_axis(op, f"{row.name}_before")
    axes = [replace(axis, role="spatial") if axis == row else axis for axis in op.axes]
    made = replace(op, axes=(*axes, Axis(before, row.extent, "reduce")))
    behind = lambda one: Index.axis(row.name) - Index.axis(before) - int(one.exclusive)

    def body(one: Running, component: int) -> Value:
        read = substitute_axes(one.bodies[component], {row.name: Index.axis(before)})
        chosen = Binary("ge", IndexValue(behind(one), "int32"), Const(0, "int32"), "bool")
        return push_guards(Select(chosen, read, one.combiner.identity[component], read.dtype), made.ranges())

    bodies = lambda one: tuple(body(one, component) for component in range(len(one.bodies)))
    reductions = tuple(Reduction(one.name, one.combiner, (before,), bodies(one)) for one in scans)
    return replace(made, reductions=reductions)
