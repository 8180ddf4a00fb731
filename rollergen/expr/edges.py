"""A product's whole tiles and what is left of its axes, each a tensor op of its own that stores into the same output.

An axis one element longer than its tiles asks for tiles that compute little else than what nobody stores: 1025 rows in
tiles of 128 are 9 rows of tiles.  The last few elements, computed apart, leave an axis that whole tiles cover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rollergen.expr.canonical import canonical_op
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import substitute_axes

TILE = 64
"""Elements of an axis that are whole tiles."""
MOST = 8
"""Elements of an axis that are left, at most."""
LEAST = 512
"""Elements of whole tiles, at least: of fewer, an edge of its own takes a launch that is longer than the product."""

Span = tuple[int, int]
"""The first point of a part of an axis, and the one behind its last."""


def has_edge(op: TensorOp, axis: str) -> bool:
    """Whether little is left of a long axis behind its whole tiles."""
    return 0 < op.axis(axis).extent % TILE <= MOST and op.axis(axis).extent > LEAST


def without_edges(op: TensorOp, axes: Sequence[str]) -> tuple[TensorOp, tuple[TensorOp, ...]]:
    """(`op` over the whole tiles of the spatial `axes` and all of the other ones, what is left of each of them).

    Together they store each result once.
    """
    whole = {axis: (0, op.axis(axis).extent // TILE * TILE) for axis in axes}
    left = []
    for number, axis in enumerate(axes):
        behind = {axis: (whole[axis][1], op.axis(axis).extent)}
        left.append(part(op, {**{one: whole[one] for one in axes[:number]}, **behind}))
    return part(op, whole), tuple(left)


def part(op: TensorOp, spans: Mapping[str, Span]) -> TensorOp:
    """`op` at the points of which the axes lie within the spans, canonical."""
    place = {axis: Index.axis(axis) + first for axis, (first, _) in spans.items()}
    lengths = {axis: end - first for axis, (first, end) in spans.items()}
    made = replace(
        op,
        axes=tuple(replace(axis, extent=lengths.get(axis.name, axis.extent)) for axis in op.axes),
        target=tuple(index.substitute(place) for index in op.target),
        result=substitute_axes(op.result, place),
        reductions=tuple(
            replace(one, bodies=tuple(substitute_axes(body, place) for body in one.bodies)) for one in op.reductions
        ),
        where=tuple(bound.substitute(place) for bound in op.where),
    )
    return canonical_op(made)
