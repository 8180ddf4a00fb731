"""Reductions over sliding windows without reuse along other axes (depthwise convolutions, pooling), on devices of
scalar threads: a thread computes a patch of neighbouring outputs and reads what they share once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rollergen.construct.candidate import Candidate, assembled, candidates, lowest
from rollergen.construct.ledger import Ledger
from rollergen.dropped import in_pieces, plan_text
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.window import window_loads, window_stage
from rollergen.program.model import price_batch
from rollergen.program.rprogram import Stage
from rollergen.program.windows import window_problem
from rollergen.space.engine import Points
from rollergen.space.rules import aligned_tiles
from rollergen.space.window import window_plan, window_tiles
from rollergen.tile.rules import AlignmentRules


def window_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    """Patches of every sensible shape, priced at once, and the best of them; none where nothing slides, the
    reduction is too long to write out, or threads do not run in lockstep (a CPU's lanes are one thread's vectors)."""
    if not device.kind.lockstep or not rules.shapes.windows or not _windowed(op):
        return
    points = aligned_tiles(window_tiles(op, device, rules), ledger)
    made = lambda plan: window_stage(op, plan, device)
    together = lambda some: price_batch(made(window_plan(some)), device).seconds
    said = lambda some: f"windows: {len(some)} of {plan_text(window_plan(some, 0))}"
    plans, prices = [], [np.empty(0)]
    priced = in_pieces(points, together, len, Points.where, said) if len(points) else []
    for some, seconds in priced:
        plans += [window_plan(some, at) for at in range(len(some))]
        prices.append(seconds)
    found: list[Stage] = []
    for at in lowest(np.concatenate(prices), len(plans)):
        for stage in assembled([plans[at]], made, "windows"):
            if not any(window_problem(stage, copy) for copy in stage.copies):
                found.append(stage)
        if len(found) == count:
            break
    yield from candidates("windows", found, device)


def _windowed(op: TensorOp) -> bool:
    """Whether operands slide, and nothing of these is shared along an axis of its own (as convolutions share images
    among their filters, for which blocks stage tiles)."""
    spatial = {axis.name for axis in op.of_role("spatial")}
    sliding = [op.loads()[number] for number in window_loads(op)]
    return bool(sliding) and all(spatial <= load.axes() for load in sliding)
