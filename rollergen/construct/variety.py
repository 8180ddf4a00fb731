"""Which of the ranked programs are measured, where only a few can be: the best, and the best of other kinds.

Programs of one variant (packed or not, padded or direct) and one register tile that rank side by side differ little
in their measured times: an error of the model is an error about all of them.  So measuring the leader of another
variant, or of another register tile, is worth more than measuring one more of the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from rollergen.construct.choose import Ranked
from rollergen.program.rprogram import LANE, UNROLL

DRAFTED = 16
"""Programs that are looked at for leaders of other kinds."""
FARTHEST = 2.0
"""Times the first one's predicted time beyond which no leader is measured: the model is not that wrong."""


def varied(ranked: Sequence[Ranked], count: int) -> tuple[Ranked, ...]:
    """`count` of the programs, in their order.

    The first one is taken; up to half of the places go to the leaders of other variants, then of other register tiles;
    the next best take the rest.
    """
    if len(ranked) <= count or not ranked:
        return tuple(ranked[:count])
    others = [n for kind in (_variant, _register_tile) for n in _leaders(ranked, kind) if n]
    taken = [0, *list(dict.fromkeys(others))[: count // 2]]
    taken += [number for number in range(len(ranked)) if number not in taken]
    return tuple(ranked[number] for number in sorted(taken[:count]))


def _leaders(ranked: Sequence[Ranked], kind: Callable[[Ranked], Hashable]) -> Iterator[int]:
    """Positions of the first of each kind, those far behind left out."""
    seen = set()
    for number, one in enumerate(ranked):
        if kind(one) not in seen and one.seconds <= FARTHEST * ranked[0].seconds:
            seen.add(kind(one))
            yield number


def _variant(one: Ranked) -> Hashable:
    return one.variants


def _register_tile(one: Ranked) -> Hashable:
    """What the last launch keeps in registers, by axis."""
    loops = one.program.stages[-1].loops
    return tuple((loop.axis, loop.extent) for loop in loops if loop.kind in (UNROLL, LANE))
