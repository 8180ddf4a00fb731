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
from rollergen.program.model import Price, keep_price, price_batches
from rollergen.space.elementwise import elementwise_plans
from rollergen.tile.rules import AlignmentRules


def elementwise_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    """Candidates of all plans, or of twice `count` of the best where there are many.  (Of all where the user limits
    padding, which no price knows, and on devices whose threads do not run in lockstep.)"""
    priced = _priced(op, list(elementwise_plans(op, device, rules, ledger)), device)
    if device.kind.lockstep and waste_limit(rules) is None and len(priced) > 3 * count:
        priced = _varied(priced, 2 * count)
    made = lambda one: elementwise_stage(op, one[1], device)
    for (price, plan), stage in standing(priced, made, lambda one: plan_text(one[1])):
        keep_price(stage, device, price)
        variant = "transposed" if plan.staged >= 0 else ("grid stride" if plan.strides else "direct")
        yield candidate(variant, (stage,), (), device, seconds=rounded(float(price.seconds[0])))


Priced = tuple[Price, ElementwisePlan]


def _priced(op: TensorOp, plans: list[ElementwisePlan], device: Device) -> list[Priced]:
    """All plans with their prices, those of one structure in a batch."""
    groups: dict[Hashable, list[ElementwisePlan]] = {}
    for plan in plans:
        groups.setdefault(_AS_ONE(plan), []).append(plan)
    together = lambda some: price_batches([elementwise_stage(op, _batch(own), device) for own in some], device)
    said = lambda own: f"{len(own)} of {plan_text(own[0])}"
    found = at_once(list(groups.values()), together, said, len, lambda own, which: own[which])
    return [(price.of([at]), plan) for own, price in found for at, plan in enumerate(own)]


def _varied(priced: list[Priced], count: int) -> list[Priced]:
    """The `count` best, at most three of a block tile (of which at most two become candidates), and all that stride
    over the grid: these are few."""
    of_plan = {plan: (price, plan) for price, plan in priced}
    tiles: dict[tuple[int, int], int] = {}
    kept = []
    for plan in cheapest_first((rounded(float(price.seconds[0])), plan) for price, plan in priced if not plan.strides):
        tile = (plan.pm * plan.um * plan.tm, plan.pn * plan.un * plan.tn * plan.vector * plan.lanes)
        tiles[tile] = tiles.get(tile, 0) + 1
        if tiles[tile] <= 3:
            kept.append(plan)
    return [*[of_plan[plan] for plan in kept[:count]], *[one for one in priced if one[1].strides]]


def _batch(plans: list[ElementwisePlan]) -> ElementwisePlan:
    """Plans that differ in threads and unrolled steps alone, as one of arrays."""
    if len(plans) == 1:
        return plans[0]
    column = lambda size: np.array([getattr(plan, size) for plan in plans])
    return replace(plans[0], tm=column("tm"), tn=column("tn"), un=column("un"))


_AS_ONE = attrgetter(*(field.name for field in fields(ElementwisePlan) if field.name not in ("tm", "tn", "un")))
"""What plans have in common that are priced as one batch."""
