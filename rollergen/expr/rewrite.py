"""Changing the axes of a tensor op: one function rewrites all its indices and views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rollergen.expr.guards import relative_to
from rollergen.expr.index import Index, Within
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, IndexValue, Load, Value, transform, walk

Indices = tuple[Index, ...]
IndexChange = Callable[[Index], Index]
AccessChange = Callable[[tuple[int, ...], Indices], tuple[tuple[int, ...], Indices]]


def rewrite(op: TensorOp, axes: tuple[Axis, ...], index: IndexChange, access: AccessChange) -> TensorOp:
    """`op` over `axes`.

    ``index`` changes a lone index (guards, numbers); ``access`` changes the shape and indices of
    each access together: it may view a buffer with another shape of as many elements.
    """
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    known: dict[Load, Load] = {}

    def bounds(guard: tuple[Within, ...]) -> tuple[Within, ...]:
        changed = (Within(index(bound.index), bound.low, bound.high) for bound in guard)
        return tuple(bound for bound in changed if not bound.always(ranges))

    def load(old: Load) -> Load:
        if old not in known:
            shape, indices = access(old.buffer.shape, old.indices)
            guard = relative_to(bounds(old.guard), indices)
            known[old] = replace(old, buffer=_viewed(old.buffer, shape), indices=indices, guard=guard)
        return known[old]

    def change(node: Value) -> Value | None:
        if isinstance(node, Load):
            return load(node)
        return replace(node, index=index(node.index)) if isinstance(node, IndexValue) else None

    shape, target = access(op.output.shape, op.target)
    folded = tuple(axis.name for axis in axes if axis.role in ("reduce", "row"))
    reductions = tuple(
        replace(r, axes=folded, bodies=tuple(transform(body, change) for body in r.bodies))
        for r in op.reductions
    )
    return replace(
        op,
        output=_viewed(op.output, shape),
        axes=axes,
        target=target,
        result=transform(op.result, change),
        reductions=reductions,
        where=bounds(op.where),
    )


def _viewed(buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
    return buffer if buffer.shape == shape else replace(buffer, shape=shape)


def accesses(op: TensorOp) -> tuple[tuple[tuple[int, ...], Indices], ...]:
    """(shape, indices) of the target and of every load."""
    return (
        (op.output.shape, op.target),
        *((load.buffer.shape, load.indices) for load in op.loads()),
    )


def lone_indices(op: TensorOp) -> tuple[Index, ...]:
    """Indices outside accesses: of guards, of the target's bounds, and those used as numbers."""
    found = [bound.index for bound in op.where]
    found += [bound.index for load in op.loads() for bound in load.guard]
    bodies = [body for reduction in op.reductions for body in reduction.bodies]
    for value in (*bodies, op.result):
        found += [node.index for node in walk(value) if isinstance(node, IndexValue)]
    return tuple(found)
