"""Vectors whose lanes lie at known places of a short window, as neighbours of a picture that grows or shrinks: read as
two vectors that cover the window, from which each lane is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.expr.index import Atom, Index

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
    """Elements of each of the two vectors that cover the window; 0 where they would have more elements than lanes."""
    span = max(shifts) + 1
    width = min(1 << span.bit_length() - 1, lanes)
    return width if 2 <= span <= 2 * width else 0


def _differs(atom: Atom, axis: str, lanes: int, extent: int) -> bool:
    """Whether the quotient or remainder moves from lane to lane otherwise in one vector than in another."""
    if isinstance(atom, str) or axis not in atom.index.axes():
        return False
    inner, divisor = atom.index, atom.divisor
    begins = [coefficient for other, coefficient in inner.terms if other != axis]
    begins += [inner.coefficient(axis) * lanes] if extent > lanes else []
    return not inner.is_affine or any(begin % divisor for begin in begins)
