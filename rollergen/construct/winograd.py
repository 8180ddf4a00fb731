"""Convolutions by Winograd's filtering (`expr.winograd`): transforms of weights, once, and image, batched products, and
the transform of these with what the convolution's results go through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rollergen.construct.candidate import Candidate, Pending, cheapest, price
from rollergen.construct.elementwise import elementwise_candidates
from rollergen.construct.ledger import Ledger
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.winograd import filtered
from rollergen.hal.spec import Device
from rollergen.program.rprogram import Stage
from rollergen.tile.rules import AlignmentRules

SIDES = (2, 4)
"""Outputs along a side of a tile, the exactest first."""


def winograd_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, products: Callable[[TensorOp], tuple[Candidate, ...]]
) -> Iterator[Candidate]:
    """For tiles of each size that the rules allow, one for each of the best candidates of ``products``; none where `op`
    is no convolution of 3 x 3 taps with constant weights."""
    for m in (side for side in SIDES if side <= rules.winograd):
        found = filtered(op, m)
        if found is None:
            return
        drawn = [_cheapest(one, device, rules) for one in (found.weight, found.image, found.output)]
        if not all(drawn):
            return
        weight, image, output = (one for one in drawn if one)
        weight = replace(weight, name="weights", once=True)
        image, output = replace(image, name="tiles"), replace(output, name="sums", winograd=m)
        made = (found.weight.output, found.image.output, found.products.output)
        before = Pending.of(weight), Pending.of(image)
        for one in products(found.products):
            called = (image, *[copy.make() for copy in one.before if not copy.once], *one.own, output)
            yield Candidate(
                f"winograd {m} x {m}, {one.variant}", (*one.own, output), (*made, *one.temporaries),
                price(called, device), before=(*before, *one.before),
            )  # fmt: skip


def _cheapest(op: TensorOp, device: Device, rules: AlignmentRules) -> Stage | None:
    """None where the user's limits admit no stage."""
    made = [one.stages[0] for one in elementwise_candidates(op, device, rules, 1, Ledger())]
    return cheapest(made, device) if made else None
