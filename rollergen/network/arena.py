"""Where values between steps lie in one block of memory: apart while both live."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate

from rollergen.hal.dataclass import dataclass

ALIGNMENT_BYTES = 64
"""Of every value's first byte: a cache line, and the widest vector."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``first`` and ``last``: the steps that write and that read it last, both included."""

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """``offsets``: of each value's first byte."""

    offsets: Mapping[str, int]
    size_bytes: int
    peak_bytes: int
    """The most bytes that live at one step: no arena is smaller."""


def arranged(lifetimes: Mapping[str, Lifetime], alignment: int = ALIGNMENT_BYTES) -> Arena:
    """Each value at the first offset, a multiple of so many bytes, where it fits: in the order, of three, that takes
    the least memory.

    >>> arena = arranged({"a": Lifetime(100, 0, 1), "b": Lifetime(64, 1, 2), "c": Lifetime(70, 2, 3)})
    >>> arena.offsets, arena.size_bytes, arena.peak_bytes
    ({'a': 0, 'c': 0, 'b': 128}, 192, 192)
    """
    rounded = {name: -(-one.size_bytes // alignment) * alignment for name, one in lifetimes.items()}
    first, last = (lambda name: lifetimes[name].first), (lambda name: -lifetimes[name].last)
    largest = lambda name: (-rounded[name], first(name))
    tried = [_first_fit(sorted(lifetimes, key=key), lifetimes, rounded) for key in (largest, first, last)]
    end = lambda offsets: max((offsets[name] + rounded[name] for name in offsets), default=0)
    offsets = min(tried, key=end)
    return Arena(offsets, end(offsets), _peak(lifetimes, rounded))


def _peak(lifetimes: Mapping[str, Lifetime], size: Mapping[str, int]) -> int:
    """The most bytes that live at one step."""
    change: Counter[int] = Counter()
    for name, one in lifetimes.items():
        change[one.first] += size[name]
        change[one.last + 1] -= size[name]
    return max(accumulate(change[step] for step in sorted(change)), default=0)


def _first_fit(names: Iterable[str], lifetimes: Mapping[str, Lifetime], size: Mapping[str, int]) -> dict[str, int]:
    """``there``: what lies where at each step, as lifetimes are short beside a model."""
    offsets: dict[str, int] = {}
    there: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for name in names:
        steps = range(lifetimes[name].first, lifetimes[name].last + 1)
        at = 0
        for start, end in sorted({part for step in steps for part in there[step]}):
            if at + size[name] <= start:
                break
            at = max(at, end)
        offsets[name] = at
        for step in steps:
            there[step].append((at, at + size[name]))
    return offsets
