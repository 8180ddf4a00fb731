"""Which visit of an output this is, where its reduction loops run outside the tile."""

from __future__ import annotations

from rollergen.expr.index import Index
from rollergen.lower.ir import Expr, Inside
from rollergen.lower.place import Place, conjunction
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import SERIAL, UNROLL


def first_visit(place: Place, out: Writer) -> Expr | None:
    tests = []
    for walked, _ in _outer_reductions(place).values():
        if walked.bounds(out.ranges)[1] > 0:
            tests.append(_reduced(walked, 0, 1))
    return conjunction(tests)


def last_visit(place: Place, out: Writer) -> Expr | None:
    tests = []
    for axis, (walked, stride) in _outer_reductions(place).items():
        low = place.nest.extents[axis] - stride
        if walked.bounds(out.ranges)[0] < low:
            tests.append(_reduced(walked, low, None))
    return conjunction(tests)


def _outer_reductions(place: Place) -> dict[str, tuple[Index, int]]:
    """Reduce axes with loops outside the tile: what those have walked so far, and their last stride."""
    nest, found = place.nest, dict[str, tuple[Index, int]]()
    for p, loop in enumerate(nest.loops[: nest.tile_depth]):
        if nest.roles[loop.axis] == "reduce" and loop.kind in (SERIAL, UNROLL):
            walked, stride = found.get(loop.axis, (Index(), loop.stride))
            found[loop.axis] = (walked + place.point[p] * loop.stride, min(stride, loop.stride))
    return found


def _reduced(walked: Index, low: int, high: int | None) -> Inside:
    """``low <= walked < high``, the common factor of a single term divided out."""
    if len(walked.terms) != 1 or walked.const:
        return Inside(walked, low, high)
    factor = walked.terms[0][1]
    return Inside(Index(((walked.terms[0][0], 1),)), -(-low // factor), None if high is None else -(-high // factor))
