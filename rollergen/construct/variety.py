"""Which of the ranked programs are measured, where only a few can be: the best, and the best of other forms.

Programs of one form (packed or not, padded or direct) that rank side by side differ little in their measured times; an
error of the model is an error about a form as a whole.  So measuring the leader of another form is worth more than
measuring one more of the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.construct.choose import Ranked

DRAFTED = 16
"""Programs that are looked at for leaders of other forms."""
FARTHEST = 2.0
"""Times the first one's predicted time beyond which no leader is measured: the model is not that wrong."""


def varied(ranked: Sequence[Ranked], count: int) -> tuple[Ranked, ...]:
    """`count` of the programs in their order: the first one, the leaders of other forms for up to half of the places,
    and the next best for the rest.

    >>> from types import SimpleNamespace as Program
    >>> drafts = [Program(forms=f, seconds=s) for f, s in (("a", 5), ("a", 6), ("a", 7), ("b", 8), ("c", 11))]
    >>> [f"{one.forms}{one.seconds}" for one in varied(drafts, 3)]
    ['a5', 'a6', 'b8']
    """
    if len(ranked) <= count or not ranked:
        return tuple(ranked[:count])
    leaders: dict[tuple[str, ...], int] = {}
    for number, one in enumerate(ranked):
        if one.seconds <= FARTHEST * ranked[0].seconds:
            leaders.setdefault(one.forms, number)
    taken = [0, *[number for number in leaders.values() if number][: count // 2]]
    taken += [number for number in range(len(ranked)) if number not in taken]
    return tuple(ranked[number] for number in sorted(taken[:count]))
