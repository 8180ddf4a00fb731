"""Drafts of contractions on devices with a block layer: tiles that are priced as a batch, of which few become plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from rollergen.construct.bands import grid_band
from rollergen.construct.candidate import cheapest_first, lowest, rounded
from rollergen.construct.ledger import Ledger
from rollergen.dropped import at_once, plan_text
from rollergen.expr.definition import Definition
from rollergen.expr.quick import quick, replaced
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan, Roles
from rollergen.program.model import StagePrice, price_batches
from rollergen.tile.rules import AlignmentRules


@quick
@dataclass(frozen=True, slots=True)
class Draft:
    """One tile of a ``batch`` of plans, that at position ``at``.

    ``seconds``: its price, rounded to 6 digits; ``tile``: a number of its block tile, the same in all batches;
    ``resident``: blocks of it that share a unit."""

    seconds: float
    tile: int
    resident: int
    batch: ContractionPlan
    at: int

    def plan(self, definition: Definition, roles: Roles, device: Device, rules: AlignmentRules) -> ContractionPlan:
        """The plan of the tile, with its order of blocks."""
        batch = self.batch
        rm, rn, tm, tn, pm, pn = (
            int(value[self.at]) if isinstance(value, np.ndarray) else value
            for value in (batch.rm, batch.rn, batch.tm, batch.tn, batch.pm, batch.pn)
        )
        block = rm * tm * pm, rn * tn * pn * batch.lanes
        width = grid_band(definition, roles, block, device.units * self.resident, device, rules)
        return replaced(batch, rm=rm, rn=rn, tm=tm, tn=tn, pm=pm, pn=pn, width=width)


Priced = tuple[ContractionPlan, StagePrice]
"""A batch of plans with their prices."""


def priced_batches(
    definition: Definition, roles: Roles, batches: Sequence[ContractionPlan], device: Device, rules: AlignmentRules,
    ledger: Ledger,
) -> list[Priced]:  # fmt: skip
    """The batches, priced together; the ledger counts the plans that do not fit."""
    stages = lambda some: [contraction_stage(definition, roles, one, device, rules) for one in some]
    priced = at_once(batches, lambda some: price_batches(stages(some), device), plan_text, _size, _part)
    for _, predicted in priced:
        ledger.unfit(predicted, device)
    return priced


def _size(batch: ContractionPlan) -> int:
    return len(batch.rm)


def _part(batch: ContractionPlan, which: slice) -> ContractionPlan:
    sizes = ((field.name, getattr(batch, field.name)) for field in fields(batch))
    return replaced(batch, **{name: value[which] for name, value in sizes if isinstance(value, np.ndarray)})


def drafts_of(priced: Sequence[Priced], count: int) -> list[Draft]:
    """The cheapest draft of each block tile of each batch, at most `count` of one."""
    return [draft for batch, predicted in priced for draft in _cheapest_of_tiles(batch, predicted, count)]


def _cheapest_of_tiles(batch: ContractionPlan, predicted: StagePrice, count: int) -> list[Draft]:
    shape = batch.rm.shape
    seconds = np.broadcast_to(np.asarray(predicted.seconds, dtype=float), shape)
    residents = np.broadcast_to(predicted.resident_blocks, shape)
    block_m, block_n = batch.rm * batch.tm * batch.pm, batch.rn * batch.tn * batch.pn
    tiles = np.broadcast_to(block_m * (1 << 32) + block_n, shape).tolist()
    first: dict[int, int] = {}
    for at in lowest(seconds, len(seconds)).tolist():
        if len(first) == count:
            break
        first.setdefault(tiles[at], at)
    return [Draft(rounded(float(seconds[at])), tile, int(residents[at]), batch, at) for tile, at in first.items()]


def best_of_each_tile(
    drafts: Iterable[Draft], definition: Definition, roles: Roles, device: Device, rules: AlignmentRules
) -> list[Draft]:
    """The cheapest draft of each block tile of all batches, best first; ties by the plan's text."""
    text = lambda draft: repr(draft.plan(definition, roles, device, rules))
    kept: dict[int, Draft] = {}
    for draft in cheapest_first(((draft.seconds, draft) for draft in drafts), text):
        kept.setdefault(draft.tile, draft)
    return list(kept.values())
