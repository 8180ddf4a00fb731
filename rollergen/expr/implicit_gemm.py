"""A contraction over views (a convolution) as a matrix product: m, n and k are one axis each."""

from __future__ import annotations

from rollergen.expr.canonical import merged_axes, rewrite
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Load, Value, axes_of, walk
from rollergen.expr.views import Indices, Shape, merged, merged_index, reduced, simplified
from rollergen.hal.dtypes import DOTS


def implicit_gemm(op: TensorOp, by_image: bool = False) -> TensorOp | None:
    """The implicit-GEMM variant of `op`, its axes in the order batch, m, n, k.

    m has the spatial axes that only the operand with plain indices (the weights) varies along, n
    those that only the other one (the image) does, batch those of both; the reduced axes are k, in
    the weights' order.  Indices become quotients and remainders: operand tiles are gathered on load.
    None where nothing would be merged, or an operand is not reused (then it is no matrix product).

    ``by_image``: of m or n, whichever has the output's last axis, only those are merged that are neighbours in the
    output, and the others stay apart, so that the results of a row are stored by vectors; None where that are all.
    """
    operands = _operands(op)
    if operands is None:
        return None
    weight, image = operands
    spatial = sorted(op.of_role("spatial"), key=lambda axis: _place(op.target, axis))
    of_weight, of_image = axes_of(weight), axes_of(image)
    m = [axis for axis in spatial if axis.name in of_weight - of_image]
    n = [axis for axis in spatial if axis.name in of_image - of_weight]
    batch = [axis for axis in spatial if axis.name in of_image & of_weight]
    order = tuple(index for node in walk(weight) if isinstance(node, Load) for index in node.indices)
    k = sorted(op.of_role("reduce"), key=lambda axis: _place(order, axis))
    if not m or not n or len(m + n + batch) < len(spatial) or max(map(len, (m, n, batch, k))) < 2:
        return None
    rows = n if _neighbours(op.target, n) else m
    apart = rows[: -_neighbours(op.target, rows) or None] if by_image else []
    if by_image and len(apart) in (0, len(rows)):
        return None
    del rows[: len(apart)]
    for group in (batch, m, n, k):
        op = _merged(op, [axis.name for axis in group])
    first = [*(axis.name for axis in apart), *(group[0].name for group in (batch, m, n, k) if group)]
    axes = tuple(op.axis(name) for name in first)
    return TensorOp(
        op.output, axes, op.target, op.result, op.reductions, op.where
    )


def _operands(op: TensorOp) -> tuple[Value, Value] | None:
    """(weights, image): the factors of a sum of products, or of dot products."""
    if len(op.reductions) != 1 or op.of_role("row"):
        return None
    reduction = op.reductions[0]
    body = reduction.bodies[0]
    if reduction.combiner.name != "sum" or len(reduction.bodies) > 1:
        return None
    if not isinstance(body, Binary) or body.op not in ("mul", *DOTS.values()):
        return None
    if not axes_of(body.a) or not axes_of(body.b):
        return None
    return (body.b, body.a) if _is_plain(body.b) and not _is_plain(body.a) else (body.a, body.b)


def _is_plain(value: Value) -> bool:
    """Whether every load in `value` is unguarded and indexed by lone axes."""
    loads = [node for node in walk(value) if isinstance(node, Load)]
    return all(
        not load.guard and all(index == Index.axis(str(index.terms[0][0])) for index in load.indices if index.terms)
        for load in loads
    )


def _neighbours(target: Indices, axes: list[Axis]) -> int:
    """How many of the last of the axes are dimensions of the output one after the other, up to its last one."""
    count = 0
    while count < min(len(axes), len(target)) and target[-1 - count] == Index.axis(axes[-1 - count].name):
        count += 1
    return count


def _place(indices: Indices, axis: Axis) -> int:
    return next((d for d, index in enumerate(indices) if axis.name in index.axes()), len(indices))


def _merged(op: TensorOp, names: list[str]) -> TensorOp:
    """All axes of `names` as one, called as the first; innermost pairs first."""
    while len(names) > 1:
        inner = names.pop()
        op = _merged_pair(op, op.axis(names[-1]), op.axis(inner))
    return op


def _merged_pair(op: TensorOp, outer: Axis, inner: Axis) -> TensorOp:
    """Two axes as one; where an access does not allow it, the axes are quotient and remainder of the new one."""
    axes = merged_axes(op, outer, inner)
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    whole = Index.axis(outer.name)
    mapping = {outer.name: whole // inner.extent, inner.name: whole % inner.extent}

    def index(old: Index) -> Index:
        new = merged_index(old, outer.name, inner.name, inner.extent)
        return reduced(old.substitute(mapping), ranges) if new is None else new

    def access(shape: Shape, indices: Indices) -> tuple[Shape, Indices]:
        new = merged(shape, indices, outer.name, inner.name, inner.extent)
        if new is not None:
            return new
        return simplified(shape, tuple(i.substitute(mapping) for i in indices), ranges)

    return rewrite(op, axes, index, access)
