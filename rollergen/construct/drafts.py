"""The best drafts of a serial space, by branch and bound over batches of plans.

A price has a part that is cheap to find, what a unit does by itself, and which no other part lessens: points whose
cheap part alone exceeds what the best drafts take in all are never priced.  What is found is what pricing every point
would find, ties included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rollergen.construct.candidate import lowest, rounded
from rollergen.dropped import in_pieces, plan_text
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.model import Price

_FIRST = 1024
"""Points of a structure that are priced first where no drafts set a limit yet, or as many as are asked for if these are
more: those of the least bounds, of which the best rule out most others.  Fewer would take no less time: a call of the
model costs as much as 1000 points."""


class Drafted(NamedTuple):
    """A plan of one structure, with its price; ``seconds``: of it and what runs beside, rounded to 6 digits."""

    seconds: float
    structure: int
    plan: ContractionPlan
    price: Price


class Draftable(NamedTuple):
    """All plans of one structure.

    ``plan`` has the arrays of `SIZES`; ``bounds``: seconds that each plan takes at least; ``exactly(plan, limit)``:
    prices of a batch, whose seconds may be any beyond the limit where they are beyond it; ``beside()``: seconds of what
    runs beside each plan."""

    plan: ContractionPlan
    bounds: np.ndarray
    exactly: Callable[[ContractionPlan, float], Price]
    beside: Callable[[], float]


SIZES = ("rm", "kc", "pm", "pn")
"""The digits of a serial space."""


def drafted(spaces: Sequence[Draftable], each: int, count: int) -> list[Drafted]:
    """The `count` best plans of all structures, at most `each` of any one.

    Ties fall by the plan's text, then by the structures' order.
    """
    found: list[Drafted] = []
    order = sorted(range(len(spaces)), key=lambda number: float(spaces[number].bounds.min()))
    for number in order:
        found += _standing_drafts(spaces[number], number, each, beyond(_last(found, count)))
    last = _last(found, count)
    kept = [one for one in found if one.seconds <= last]
    return sorted(kept, key=lambda one: (one.seconds, repr(one.plan), one.structure))[:count]


def _standing_drafts(space: Draftable, number: int, each: int, limit: float) -> list[Drafted]:
    """`_drafts` of the space, or of its parts, where some of its plans have no price."""
    drafts = lambda part: _drafts(part, number, each, limit)
    said = lambda part: f"{len(part.bounds)} tiles of {plan_text(part.plan)}"
    return [one for _, own in in_pieces(space, drafts, lambda part: len(part.bounds), _part, said) for one in own]


def _part(space: Draftable, which: slice) -> Draftable:
    return space._replace(plan=plans_at(space.plan, which), bounds=space.bounds[which])


def _last(found: list[Drafted], count: int) -> float:
    """Seconds of the last of the `count` best; infinite where there are not so many yet."""
    return sorted(one.seconds for one in found)[count - 1] if len(found) >= count else np.inf


def beyond(seconds: float) -> float:
    """What is more than `seconds` though both are rounded, to 6 digits or to picoseconds."""
    return seconds * (1 + 1e-5) + 2e-12


def _drafts(space: Draftable, number: int, each: int, limit: float) -> list[Drafted]:
    if not (space.bounds <= limit).any():
        return []
    beside = space.beside()
    price = lambda which: space.exactly(plans_at(space.plan, which), limit - beside)
    left = np.flatnonzero(space.bounds + beside <= limit)
    first, prices, most = left[:0], [], max(_FIRST, each)
    if limit == np.inf and len(left) > 2 * most:
        first = left[np.argsort(space.bounds[left], kind="stable")[:most]]
        prices = [price(first)]
        limit = beyond(float(np.sort(prices[0].seconds)[each - 1]) + beside)
        left = np.setdiff1d(left, first, assume_unique=True)
        left = left[space.bounds[left] + beside <= limit]
    if len(left):
        prices.append(price(left))
    priced = np.concatenate([first, left])
    order = np.argsort(priced)
    found = Price.joined(prices)
    best = order[lowest(found.seconds[order] + beside, each)]
    return [
        Drafted(
            rounded(float(found.seconds[at] + beside)), number, plans_at(space.plan, int(priced[at])), found.of([at])
        )
        for at in best
    ]


def plans_at(plan: ContractionPlan, at: np.ndarray | slice | int) -> ContractionPlan:
    """The named plans of a batch; one plan, of plain sizes, for a number."""
    plain = (lambda size: int(size)) if isinstance(at, int) else (lambda size: size)
    rm, kc, pm, pn = (plain(getattr(plan, size)[at]) for size in SIZES)
    return replace(plan, rm=rm, kc=kc, pm=pm, pn=pn)
