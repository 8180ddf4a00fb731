"""Points of a space with their prices, a batch for each structure; a program in a batch has the price it has alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from rollergen.construct.ledger import Ledger
from rollergen.dropped import in_pieces, plan_text
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan, Roles
from rollergen.program.model import Price, keep_price, price_batch
from rollergen.program.rprogram import Stage
from rollergen.space.engine import Points
from rollergen.space.structure import batches, contraction_plan
from rollergen.tile.rules import AlignmentRules

Fixed = dict[str, Any]


class Priced(NamedTuple):
    """Points of one structure with what their plans share, and their price."""

    points: Points
    fixed: Fixed
    price: Price

    @property
    def seconds(self) -> np.ndarray:
        """Rounded, so that no platform's last bit decides a rank."""
        return six_digits(self.price.seconds)

    def plan(self, at: int) -> ContractionPlan:
        return contraction_plan(self.points.at(at), self.fixed)


def six_digits(seconds: np.ndarray) -> np.ndarray:
    """The numbers, each rounded to 6 significant digits."""
    found = np.where(np.isfinite(seconds) & (seconds > 0), seconds, 1.0)
    unit = 10.0 ** (np.floor(np.log10(found)) - 5)
    return np.where(np.isfinite(seconds), np.round(found / unit) * unit, np.inf)


class Contraction(NamedTuple):
    """What all plans of one contraction share."""

    op: TensorOp
    roles: Roles
    device: Device
    rules: AlignmentRules

    def stage(self, plan: ContractionPlan) -> Stage:
        return contraction_stage(self.op, self.roles, plan, self.device, self.rules)

    def priced(self, points: Points, ledger: Ledger, **fixed: Any) -> list[Priced]:
        """The points with their prices, batch by batch.

        ``fixed``: sizes that all points have. The ledger counts those that do not fit.
        """
        found = []
        for some, plan in batches(points, self.op, self.roles, self.device, **fixed):
            price = lambda own, fixed=fixed: self._price(own, fixed)
            said = lambda own, plan=plan: f"{len(own)} tiles of {plan_text(plan)}"
            for own, priced in in_pieces(some, price, len, Points.where, said):
                found.append(Priced(own, fixed, priced))
                ledger.unfit(priced, self.device)
        return found

    def _price(self, points: Points, fixed: Fixed) -> Price:
        return price_batch(self.stage(contraction_plan(points.sizes(), fixed)), self.device)

    def program(self, priced: Priced, at: int) -> Stage:
        """The stage of one point; its price is cached."""
        stage = self.stage(priced.plan(at))
        keep_price(stage, self.device, priced.price.of([at]))
        return stage


def cheapest_points(some: Sequence[Priced]) -> Iterator[tuple[float, Priced, int]]:
    """(seconds, where, position) of all points that fit, best first; ties in the order of the points."""
    if not some:
        return
    seconds = np.concatenate([one.seconds for one in some])
    order = np.argsort(seconds, kind="stable")
    ends = np.cumsum([len(one.points) for one in some])
    which = np.searchsorted(ends, order, side="right")
    begins = np.concatenate([[0], ends])[which]
    for one, number, at in zip(seconds[order].tolist(), which.tolist(), (order - begins).tolist(), strict=True):
        if not isfinite(one):
            return
        yield one, some[number], at
