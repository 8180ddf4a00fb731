"""Vectors whose lanes lie at known places of a short window, as neighbours of a picture that grows: read as two vectors
that cover the window, from which each lane is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollergen.expr.index import Bounds, Index
from rollergen.lower.expressions import Inside
from rollergen.lower.nest import Lane

LEAST_LANES = 8
"""Of fewer, as GPUs have them, one by one is as fast."""


@dataclass(frozen=True, slots=True)
class LaneWindow:
    """Vectors of ``width`` elements at the offsets ``first`` and ``second``, of which lane l is number ``order[l]``.

    ``whole``: the conditions under which all lanes pass their tests."""

    first: Index
    second: Index
    width: int
    order: tuple[int, ...]
    whole: tuple[Inside, ...]


def lane_window(
    ranges: Mapping[str, Bounds], offset: Index, tests: Iterable[Inside], lane: Lane
) -> LaneWindow | None:
    """How lanes are chosen from a window, each element of which is some lane's; None where they are not."""
    places = _places(ranges, offset, lane) if lane.width >= LEAST_LANES else None
    if places is None:
        return None
    start, shifts = places
    span = max(shifts) + 1
    if len(set(shifts)) != span or not 2 <= span < lane.width:
        return None
    whole: list[Inside] = []
    for test in tests:
        if (tested := _places(ranges, test.index, lane)) is None:
            return None
        least, apart = tested
        whole += [Inside(least, test.low, test.high), Inside(least + max(apart), test.low, test.high)]
    width = 1 << span.bit_length() - 1
    behind = span - width
    order = tuple(shift if shift < width else width + shift - behind for shift in shifts)
    return LaneWindow(start, start + behind, width, order, tuple(dict.fromkeys(whole)))


def _places(ranges: Mapping[str, Bounds], index: Index, lane: Lane) -> tuple[Index, tuple[int, ...]] | None:
    """(the least index of a lane, how far that of each lane lies behind it), where that is known."""
    each = [index.substitute({lane.variable: Index((), n)}).simplify(ranges) for n in range(lane.width)]
    apart = [one - each[0] for one in each]
    if any(one.terms for one in apart):
        return None
    least = min(one.const for one in apart)
    return each[0] + least, tuple(one.const - least for one in apart)
