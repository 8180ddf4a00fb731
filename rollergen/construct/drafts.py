"""The best drafts of a serial space, by branch and bound over batches of plans.

A price has a part that is cheap to find, what a unit does by itself, and which no other part lessens: points whose
cheap part alone exceeds what the best drafts take in all are never priced.  Where many are left, the bandwidth of the
next cache is counted, too, and rules out more.  What is found is what pricing every point would find, ties included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rollergen.construct.candidate import lowest, rounded
from rollergen.dropped import in_pieces, plan_text
from rollergen.program.assemble.plan import ContractionPlan

Prices = Callable[[ContractionPlan, float], np.ndarray]

_FIRST = 256
"""Points of a structure that are priced first, those of the least bounds: the best of them rule out most others."""


_MANY = 2048
"""More points than these are worth nearer bounds: a call of the model takes as long as 500 points, and where few are
left most are needed.  (Drafts of 1024 x 1024 x 1024 for two cores of a Zen 4: .74 s without, .60 with them for any
number, .63 so; of a 3 x 3 convolution of 64 x 56 x 56 .53, .59 and .54 s.)"""


class Drafted(NamedTuple):
    """A plan of one structure, with its price rounded to 6 digits."""

    seconds: float
    structure: int
    plan: ContractionPlan


class Draftable(NamedTuple):
    """All plans of one structure.

    ``plan`` has the arrays of `SIZES`; ``bounds``: seconds that each plan takes at least; ``nearer(plan)``: higher
    bounds of a batch, at half the cost of prices; ``exactly(plan, limit)``: seconds of a batch, of which those beyond
    the limit may be any beyond it; ``beside()``: seconds of what runs beside each plan."""

    plan: ContractionPlan
    bounds: np.ndarray
    nearer: Callable[[ContractionPlan], np.ndarray]
    exactly: Prices
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
        found += _standing_drafts(spaces[number], number, each, _limit(found, count))
        found = _first(found, count)
    return found


def _standing_drafts(space: Draftable, number: int, each: int, limit: float) -> list[Drafted]:
    """`_drafts` of the space, or of its parts, where some of its plans have no price."""
    drafts = lambda part: _drafts(part, number, each, limit)
    said = lambda part: f"{len(part.bounds)} tiles of {plan_text(part.plan)}"
    return [one for _, own in in_pieces(space, drafts, lambda part: len(part.bounds), _part, said) for one in own]


def _part(space: Draftable, which: slice) -> Draftable:
    return space._replace(plan=plans_at(space.plan, which), bounds=space.bounds[which])


def _first(found: list[Drafted], count: int) -> list[Drafted]:
    limit = sorted(one.seconds for one in found)[count - 1] if len(found) > count else np.inf
    kept = [one for one in found if one.seconds <= limit]
    return sorted(kept, key=lambda one: (one.seconds, repr(one.plan), one.structure))[:count]


def _limit(found: list[Drafted], count: int) -> float:
    """Seconds from which on a point is certainly not among the `count` best."""
    return beyond(found[count - 1].seconds) if len(found) >= count else np.inf


def beyond(seconds: float) -> float:
    """What is more than `seconds` though both are rounded, to 6 digits or to picoseconds."""
    return seconds * (1 + 1e-5) + 2e-12


def _drafts(space: Draftable, number: int, each: int, limit: float) -> list[Drafted]:
    if not (space.bounds <= limit).any():
        return []
    beside = space.beside()
    seconds, bounds = np.full(len(space.bounds), np.inf), space.bounds.copy()
    left = np.flatnonzero(bounds + beside <= limit)
    if len(left) > _MANY:
        bounds[left] = space.nearer(plans_at(space.plan, left))
        left = left[bounds[left] + beside <= limit]
    if len(left) > 2 * _FIRST:
        first = np.sort(left[np.argsort(bounds[left], kind="stable")[:_FIRST]])
        seconds[first] = space.exactly(plans_at(space.plan, first), limit - beside) + beside
        own = np.sort(seconds[first])[each - 1]
        limit = min(limit, beyond(float(own)))
        left = np.setdiff1d(left, first, assume_unique=True)
        left = left[bounds[left] + beside <= limit]
    if len(left):
        seconds[left] = space.exactly(plans_at(space.plan, left), limit - beside) + beside
    return [
        Drafted(rounded(float(seconds[at])), number, plans_at(space.plan, int(at))) for at in lowest(seconds, each)
    ]


def plans_at(plan: ContractionPlan, at: np.ndarray | slice | int) -> ContractionPlan:
    """The named plans of a batch; one plan, of plain sizes, for a number."""
    plain = (lambda size: int(size)) if isinstance(at, int) else (lambda size: size)
    rm, kc, pm, pn = (plain(getattr(plan, size)[at]) for size in SIZES)
    return replace(plan, rm=rm, kc=kc, pm=pm, pn=pn)
