"""Vectors whose lanes lie at known places of a short window, as neighbours of a picture that grows or shrinks, or of
two windows, as rows that take turns: read as two vectors that cover them, from which each lane is chosen.

Where a picture grows by no whole number, the places differ from vector to vector, but lie within one of as many
elements: that one is read, and a lane's place in it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rollergen.expr.index import Atom, FloorDiv, Index, Mod

LEAST_LANES = 8
"""Of fewer, as GPUs have them, one by one is as fast."""


def window_places(offset: Index, axis: str, lanes: int, extent: int) -> tuple[int, ...] | None:
    """How far the element of each lane lies behind the first of them, the same in every vector along the axis; None
    where vectors differ, or two of a power of two of elements do not cover them."""
    if lanes < LEAST_LANES or any(_differs(atom, axis, lanes, extent) for atom, _ in offset.terms):
        return None
    others = dict.fromkeys(offset.names(), 0)
    places = [int(offset.evaluate({**others, axis: lane})) for lane in range(min(lanes, extent))]
    shifts = tuple(place - min(places) for place in places)
    return shifts if window_width(shifts, lanes) else None


def window_width(shifts: Sequence[int], lanes: int) -> int:
    """Elements of each of the two vectors that cover the lanes, one from the first element on and one up to the last;
    0 where they would have more elements than lanes.  Of vectors that lie apart, nothing between them is wanted."""
    span = max(shifts) + 1
    widths = [1 << n for n in range(1, lanes.bit_length()) if 1 << n <= span]
    covers = lambda width: all(shift < width or shift >= span - width for shift in shifts)
    return next(filter(covers, widths if span > 2 * lanes else reversed(widths)), 0)


def _differs(atom: Atom, axis: str, lanes: int, extent: int) -> bool:
    """Whether the quotient or remainder moves from lane to lane otherwise in one vector than in another."""
    if isinstance(atom, str) or axis not in atom.index.axes():
        return False
    inner, divisor = atom.index, atom.divisor
    nested = [other for other, _ in inner.terms if not isinstance(other, str)]
    if any(not isinstance(other, Mod) or _differs(other, axis, lanes, extent) for other in nested):
        return True  # a remainder that is the same in every vector moves none of them
    begins = [coefficient for other, coefficient in inner.terms if isinstance(other, str) and other != axis]
    begins += [inner.coefficient(axis) * lanes] if extent > lanes else []
    return any(begin % divisor for begin in begins)


def growing_place(offset: Index, tested: Iterable[Index], axis: str, lanes: int) -> FloorDiv | None:
    """The quotient by which lanes lie in order within a vector of as many elements, wherever it begins; None where
    something else varies along the axis, in the offset or in one of the indices that are ``tested``."""
    if lanes < LEAST_LANES:
        return None
    found = {atom for index in (offset, *tested) for atom, _ in index.terms if _moves(atom, axis)}
    if len(found) != 1:
        return None
    (atom,) = found
    if not isinstance(atom, FloorDiv) or any(_moves(other, axis) for other, _ in atom.index.terms if other != axis):
        return None
    alike = all(dict(index.terms).get(atom) == 1 for index in (offset, *tested))
    return atom if alike and 0 < atom.index.coefficient(axis) <= atom.divisor else None


def _moves(atom: Atom, axis: str) -> bool:
    return atom == axis if isinstance(atom, str) else axis in atom.index.axes()
