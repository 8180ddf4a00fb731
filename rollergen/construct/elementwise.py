"""Construction of elementwise stages: copies, packing, transposes, maps."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields, replace
from operator import attrgetter

import numpy as np

from rollergen.construct.candidate import Candidate, candidate, cheapest_first, rounded
from rollergen.construct.ledger import Ledger, waste_limit
from rollergen.dropped import at_once, plan_text, standing
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.model import price_batches, price_stages
from rollergen.space.elementwise import elementwise_plans
from rollergen.tile.rules import AlignmentRules


def elementwise_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    """Candidates of all plans, or of those that a price in batches finds best, twice `count`."""
    every = list(elementwise_plans(op, device, rules, ledger))
    plans = _promising(op, every, device, rules, count)
    made = standing(plans, lambda plan: elementwise_stage(op, plan, device), plan_text)
    together = lambda some: price_stages([stage for _, stage in some], device).seconds.tolist()
    for (plan, stage), seconds in at_once(made, together, lambda one: plan_text(one[0])):
        variant = "transposed" if plan.staged >= 0 else ("grid stride" if plan.strides else "direct")
        yield candidate(variant, (stage,), (), device, seconds=rounded(seconds))


def _promising(
    op: TensorOp, plans: list[ElementwisePlan], device: Device, rules: AlignmentRules, count: int
) -> list[ElementwisePlan]:
    """The plans worth a price of their own.

    A batch of plans is priced as one loop structure, which tells them apart to a few parts in a thousand: so three
    are kept for each block tile, of which at most two become candidates.  All are kept where the user limits
    padding, which the price does not know, and where threads are not in lockstep.
    """
    if not device.kind.lockstep or waste_limit(rules) is not None or len(plans) <= 3 * count:
        return plans
    alone = [plan for plan in plans if plan.strides]  # few, each with a structure of its own
    groups: dict[Hashable, list[ElementwisePlan]] = {}
    for plan in plans:
        if plan.strides:
            continue
        groups.setdefault(_AS_ONE(plan), []).append(plan)
    priced: list[tuple[float, ElementwisePlan]] = []
    together = lambda some: price_batches([elementwise_stage(op, _batch(own), device) for own in some], device)
    said = lambda own: f"{len(own)} of {plan_text(own[0])}"
    for own, price in at_once(list(groups.values()), together, said, len, lambda own, which: own[which]):
        priced += [(rounded(seconds), plan) for seconds, plan in zip(price.seconds.tolist(), own, strict=True)]
    tiles: dict[tuple[int, int], int] = {}
    kept = []
    for plan in cheapest_first(priced):
        tile = (plan.pm * plan.um * plan.tm, plan.pn * plan.un * plan.tn * plan.vector * plan.lanes)
        tiles[tile] = tiles.get(tile, 0) + 1
        if tiles[tile] <= 3:
            kept.append(plan)
    return kept[: 2 * count] + alone


def _batch(plans: list[ElementwisePlan]) -> ElementwisePlan:
    """Plans that differ in threads and unrolled steps alone, as one of arrays."""
    if len(plans) == 1:
        return plans[0]
    column = lambda size: np.array([getattr(plan, size) for plan in plans])
    return replace(plans[0], tm=column("tm"), tn=column("tn"), un=column("un"))


_AS_ONE = attrgetter(*(field.name for field in fields(ElementwisePlan) if field.name not in ("tm", "tn", "un")))
"""What plans have in common that are priced as one batch."""
