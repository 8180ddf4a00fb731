"""Products whose last rows and columns are computed apart from their whole tiles (`expr.edges`), and results whose
constant frame is stored apart (`expr.frames`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from rollergen.construct.candidate import Candidate, rounded
from rollergen.construct.rename import renamed, with_names
from rollergen.construct.roles import contraction_of
from rollergen.expr.aligned_rows import plain_factors
from rollergen.expr.edges import has_edge, without_edges
from rollergen.expr.frames import without_frame
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.tile.rules import CodeShapes

Products = Callable[[TensorOp, CodeShapes], tuple[Candidate, ...]]
"""The best candidates of a tensor op, of code of these shapes."""

SHARE = 4
"""Edges may take one in so many parts of the time that the product takes as a whole, at most: more never paid."""


def candidates_apart(
    op: TensorOp, device: Device, shapes: CodeShapes, seconds: float, products: Products
) -> Iterator[Candidate]:
    """The candidates of `op`, which takes so many ``seconds`` as a whole, with its frame apart and, on devices whose
    blocks have threads, its edges."""
    yield from frame_candidates(op, shapes, products)
    if device.kind.threads:
        yield from edge_candidates(op, shapes, seconds, products)


def edge_candidates(op: TensorOp, shapes: CodeShapes, seconds: float, products: Products) -> Iterator[Candidate]:
    """The candidates of a product's whole tiles, each behind the best one of each edge; none where `op`, which takes
    so many ``seconds`` as a whole, is no product of two plain factors, or no axis has an edge that is worth it.

    Of the choices of axes that is the one which is fastest where no factor is copied.
    """
    roles = contraction_of(op)
    if roles is None or not plain_factors(op):
        return
    axes = [axis for axis in (roles.m, roles.n) if axis is not None and has_edge(op, axis)]
    shapes = replace(shapes, edges_apart=False)
    as_it_lies = replace(shapes, aligned_rows=False)
    found = []
    for chosen in (some for count in range(1, len(axes) + 1) for some in combinations(axes, count)):
        whole, left = without_edges(op, chosen)
        edges = [one for edge in left for one in products(edge, as_it_lies)[:1]]
        beside = sum(one.seconds for one in edges)
        if len(edges) == len(left) and SHARE * beside <= seconds:
            found += [(beside + one.seconds, chosen, whole, edges) for one in products(whole, as_it_lies)[:1]]
    if found:
        _, chosen, whole, edges = min(found, key=lambda one: one[0])
        for one in products(whole, shapes):
            yield _joined(one, edges, "edge", f"edges of {' and '.join(chosen)} apart, {one.variant}")


def frame_candidates(op: TensorOp, shapes: CodeShapes, products: Products) -> Iterator[Candidate]:
    """The candidates of `op` within its constant frame, each behind the best one of each side; none without a frame."""
    inner, sides = without_frame(op) or (op, ())
    frame = [one for side in sides for one in products(side, shapes)[:1]]
    if frame and len(frame) == len(sides):
        for one in products(inner, shapes):
            yield _joined(one, frame, "frame", f"frame apart, {one.variant}")


def _joined(one: Candidate, edges: list[Candidate], name: str, variant: str) -> Candidate:
    """The candidate behind those of the edges, which are called by that name, with temporaries of different names."""
    stages, temporaries, seconds = list(one.stages), list(one.temporaries), one.seconds
    for edge in edges:
        names = renamed(edge.temporaries, {buffer.name for buffer in temporaries})
        own = [with_names(stage, names) for stage in edge.stages]
        stages[:0] = [replace(stage, name=f"{name}_{stage.name}") for stage in own]
        temporaries += [names.get(buffer.name, buffer) for buffer in edge.temporaries]
        seconds += edge.seconds
    return replace(
        one, variant=variant, own=tuple(stages), before=(), temporaries=tuple(temporaries), seconds=rounded(seconds)
    )
