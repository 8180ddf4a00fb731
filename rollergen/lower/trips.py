"""Whether a trip through the reduction loops outside a tile is the first or the last one."""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.expr.index import Index, weighted_sum
from rollergen.lower.expressions import Expr, Inside, Operation
from rollergen.lower.place import Place, conjunction
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import SERIAL, UNROLL


def first_trip(place: Place, out: Writer) -> Expr | None:
    """The condition that all loops outside stand at 0; None: always."""
    tests = []
    for positions in _outer_reductions(place).values():
        offset = _offset(place, positions)
        if offset.bounds(out.ranges)[1] > 0:
            tests.append(_reduced(offset, 0, 1))
    return conjunction(tests)


def last_trip(place: Place, out: Writer) -> Expr | None:
    """The condition that no loop outside has an iteration left that reaches the tile; None: always."""
    tests: list[Expr] = []
    for axis, positions in _outer_reductions(place).items():
        if _leads(place, axis, positions):
            offset, low = _offset(place, positions), place.nest.extents[axis] - place.nest.loops[positions[-1]].stride
            tests += [_reduced(offset, low, None)] if offset.bounds(out.ranges)[0] < low else []
        else:
            tests += [test for n in range(len(positions)) if (test := _last_iteration(place, positions, n, out))]
    return conjunction(tests)


def _leads(place: Place, axis: str, positions: Sequence[int]) -> bool:
    """Whether these loops run along the axis straight to its end: its leading digits, each of which stops there."""
    loops = [place.nest.loops[p] for p in positions]
    below = [loop.extent * loop.stride for loop in loops]
    straight = all(loop.stride == span for loop, span in zip(loops[:-1], below[1:], strict=True))
    return straight and below[0] >= place.nest.extents[axis] and all(loop.kind == SERIAL for loop in loops)


def _last_iteration(place: Place, positions: Sequence[int], n: int, out: Writer) -> Expr | None:
    """The n-th loop outside is at its last iteration of which the tile hears, given the loops around it.

    A serial loop stops at the axis' end; so do the passes of an unrolled one with serial loops inside, for
    these then do not run.
    """
    loops, p = place.nest.loops, positions[n]
    loop = loops[p]
    if loop.extent == 1:
        return None
    at_end = Inside(place.point[p], loop.extent - 1, None)
    if all(loops[q].kind != SERIAL for q in positions[n:]):
        return at_end
    following = (_offset(place, positions[: n + 1]) + loop.stride).simplify(out.ranges)
    extent = place.nest.extents[loop.axis]
    if following.bounds(out.ranges)[1] - loop.stride < extent:
        return at_end
    return Operation("or", (at_end, Inside(following, extent, None)), "bool")


def _offset(place: Place, positions: Sequence[int]) -> Index:
    """How far the loops at these positions are along their axis."""
    return weighted_sum((place.point[p], place.nest.loops[p].stride) for p in positions)


def _outer_reductions(place: Place) -> dict[str, list[int]]:
    """Reduce axes with loops outside the tile: the positions of these."""
    nest, found = place.nest, dict[str, list[int]]()
    for p, loop in enumerate(nest.loops[: nest.tile_depth]):
        if nest.roles[loop.axis] == "reduce" and loop.kind in (SERIAL, UNROLL):
            found.setdefault(loop.axis, []).append(p)
    return found


def _reduced(offset: Index, low: int, high: int | None) -> Inside:
    """``low <= offset < high``, the common factor of a single term divided out."""
    if len(offset.terms) != 1 or offset.const:
        return Inside(offset, low, high)
    factor = offset.terms[0][1]
    return Inside(Index(((offset.terms[0][0], 1),)), -(-low // factor), None if high is None else -(-high // factor))
