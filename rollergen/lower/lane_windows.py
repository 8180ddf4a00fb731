"""How the lanes of a vector are chosen from a short window (`rollergen.program.lane_windows`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rollergen.expr.index import Bounds, Index
from rollergen.hal.dataclass import dataclass
from rollergen.lower.expressions import Inside
from rollergen.lower.nest import Lane
from rollergen.program.lane_windows import LEAST_LANES, window_width


@dataclass(frozen=True, slots=True)
class LaneWindow:
    """Vectors of ``width`` elements at the offsets ``first`` and ``second``, of which lane l is number ``order[l]``;
    -1: the lane never passes its tests.

    ``whole``: the conditions under which all others pass theirs."""

    first: Index
    second: Index
    width: int
    order: tuple[int, ...]
    whole: tuple[Inside, ...]


def lane_window(
    ranges: Mapping[str, Bounds], offset: Index, tests: Sequence[Inside], lane: Lane
) -> LaneWindow | None:
    """How lanes are chosen from a window; None where they are not."""
    if lane.width < LEAST_LANES:
        return None
    used = [n for n in range(lane.width) if not any(_fails(ranges, test, lane, n) for test in tests)]
    places = _places(ranges, offset, lane, used)
    width = window_width(places[1], lane.width) if places else 0
    if places is None or not width:
        return None
    whole: list[Inside] = []
    for test in tests:
        if (tested := _places(ranges, test.index, lane, used)) is None:
            return None
        least, apart = tested
        whole += [Inside(least, test.low, test.high), Inside(least + max(apart), test.low, test.high)]
    start, shifts = places
    behind = max(shifts) + 1 - width
    order = [-1] * lane.width
    for n, shift in zip(used, shifts, strict=True):
        order[n] = shift if shift < width else width + shift - behind
    return LaneWindow(start, start + behind, width, tuple(order), tuple(dict.fromkeys(whole)))


def _at(index: Index, lane: Lane, number: int, ranges: Mapping[str, Bounds]) -> Index:
    return index.substitute({lane.variable: Index((), number)}).simplify(ranges)


def _fails(ranges: Mapping[str, Bounds], test: Inside, lane: Lane, number: int) -> bool:
    """Whether the test never holds in that lane."""
    low, high = _at(test.index, lane, number, ranges).bounds(ranges)
    return (test.high is not None and low >= test.high) or (test.low is not None and high < test.low)


def _places(
    ranges: Mapping[str, Bounds], index: Index, lane: Lane, used: Iterable[int]
) -> tuple[Index, tuple[int, ...]] | None:
    """(the least index of a lane, how far that of each lane lies behind it), where that is known."""
    each = [_at(index, lane, number, ranges) for number in used]
    apart = [one - each[0] for one in each]
    if not each or any(one.terms for one in apart):
        return None
    least = min(one.const for one in apart)
    return each[0] + least, tuple(one.const - least for one in apart)
