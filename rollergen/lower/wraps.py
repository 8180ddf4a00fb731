"""Vectors whose address wraps around: straight pieces instead of one division a lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollergen.expr.index import Bounds, Index, Mod
from rollergen.lower.expressions import Expr, Inside
from rollergen.lower.nest import Lane
from rollergen.lower.vectors import both, passing, wrapping

_MOST_PIECES = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Lanes between two wraps: an offset that is straight in the lane, and the tests that make the piece."""

    offset: Index
    tests: tuple[Inside, ...]


def pieces(
    offset: Index, tests: tuple[Inside, ...], lane: Lane, ranges: Mapping[str, Bounds]
) -> tuple[Piece, ...] | None:
    """The lanes before, between and after the wraps of ``(r + lane) // d`` and ``% d``; None where that is not
    all that varies along the lane, or there would be more than four pieces.

    With ``phase = r % d``, lane l lies behind w wraps where ``w d <= phase + l < (w + 1) d``: there the quotient is
    ``r // d + w`` and the remainder ``phase + l - w d``.

    >>> i, l = Index.axis("i"), Index.axis("l")
    >>> [str(p.offset) for p in pieces((i + l) % 20, (), Lane("l", 16), {"i": (0, 99), "l": (0, 15)})]
    ['((i)%20) + l', '((i)%20) + l - 20']
    """
    found = {(a.index, a.divisor) for index in (offset, *(t.index for t in tests)) for a in wrapping(index, lane)}
    if len(found) != 1:
        return None
    ((inner, divisor),) = found
    step = Index.axis(lane.variable)
    start = inner - step
    turns = (divisor - 1 + lane.width - 1) // divisor
    if lane.variable in start.names() or turns >= _MOST_PIECES:
        return None
    phase = (start % divisor).simplify(ranges)
    made = []
    for turn in range(turns + 1):
        position = phase + step - turn * divisor
        quotient = (start // divisor).simplify(ranges) + turn
        straight = [Inside(_replaced(t.index, lane, position, quotient), t.low, t.high) for t in tests]
        own = Inside(phase + step, turn * divisor if turn else None, (turn + 1) * divisor if turn < turns else None)
        made.append(Piece(_replaced(offset, lane, position, quotient), (own, *straight)))
    return tuple(made)


def straight_pieces(
    offset: Index, tests: tuple[Inside, ...], lane: Lane, ranges: Mapping[str, Bounds]
) -> tuple[Piece, ...] | None:
    """The `pieces`, where the lanes of each are adjacent and nothing in its tests wraps; else None."""
    found = pieces(offset, tests, lane, ranges)
    if found is None or any(piece.offset.coefficient(lane.variable) != 1 for piece in found):
        return None
    indices = (index for piece in found for index in (piece.offset, *(test.index for test in piece.tests)))
    return None if any(wrapping(index, lane) for index in indices) else found


def piece_mask(ranges: Mapping[str, Bounds], piece: Piece, lane: Lane, bits: int) -> Expr:
    """The lanes that are one of the `straight_pieces`, as a mask of `bits` a lane."""
    found: Expr | None = None
    for test in piece.tests:
        found = both(found, passing(ranges, test.index, test, lane, bits), bits, lane)
    assert found is not None  # some lane of a vector that wraps is another piece's
    return found


def _replaced(index: Index, lane: Lane, position: Index, quotient: Index) -> Index:
    """The index with remainders along the lane put as `position`, quotients as `quotient`."""
    varying = wrapping(index, lane)
    result = Index(tuple((atom, c) for atom, c in index.terms if atom not in varying), index.const)
    for atom, coefficient in index.terms:
        if atom in varying:
            result = result + (position if isinstance(atom, Mod) else quotient) * coefficient
    return result
