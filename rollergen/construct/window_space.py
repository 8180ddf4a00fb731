"""Reductions over sliding windows without reuse along other axes (depthwise convolutions, pooling), on devices of
scalar threads: a thread computes a patch of neighbouring outputs and reads what they share once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd, prod

import numpy as np

from rollergen.construct.candidate import Candidate, assembled, candidates, lowest
from rollergen.construct.ledger import waste_limit
from rollergen.dropped import in_pieces, plan_text
from rollergen.expr.definition import Axis, Definition
from rollergen.hal.spec import Device
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import WindowPlan
from rollergen.program.assemble.window import window_loads, window_stage
from rollergen.program.model import price_stage
from rollergen.program.rprogram import Stage
from rollergen.program.windows import window_problem
from rollergen.tile.rules import AlignmentRules, in_lockstep, padding_waste, thread_multiple

_TILES = (1, 2, 3, 4, 5, 6, 7, 8)
_MOST_OUTPUTS = 48
"""Of one thread."""
_MOST_UNROLLED = 448
"""Steps of the reduction, over all outputs of a thread, that are written out one after the other."""
_MOST_ACROSS = 64
"""Threads along an axis that a block may cover whole."""
_LEAST_THREADS, _MOST_THREADS = 64, 512


def window_candidates(
    definition: Definition, device: Device, rules: AlignmentRules, count: int
) -> Iterator[Candidate]:
    """Patches of every sensible shape, priced at once, and the best of them; none where nothing slides, the
    reduction is too long to write out, or threads do not run in lockstep (a CPU's lanes are one thread's vectors)."""
    if not in_lockstep(device) or not rules.shapes.windows or not _windowed(definition):
        return
    plans = list(window_plans(definition, device, rules))
    if not plans:
        return
    together = lambda some: np.asarray(price_stage(window_stage(definition, _batch(some), device), device).seconds)
    said = lambda some: f"windows: {len(some)} of {plan_text(some[0])}"
    priced = in_pieces(plans, together, len, lambda some, which: some[which], said)
    standing = [plan for some, _ in priced for plan in some]
    seconds = np.concatenate([np.broadcast_to(own, len(some)).astype(float) for some, own in priced])
    made: list[Stage] = []
    for at in lowest(seconds, len(standing)):
        for stage in assembled([standing[at]], lambda plan: window_stage(definition, plan, device), "windows"):
            if not any(window_problem(stage, copy) for copy in stage.copies):
                made.append(stage)
        if len(made) == count + _SPARE:
            break
    yield from candidates("windows", made, device)


def _windowed(definition: Definition) -> bool:
    """Whether operands slide, and nothing of these is shared along an axis of its own (as convolutions share images
    among their filters, for which blocks stage tiles)."""
    spatial = {axis.name for axis in definition.of_role("spatial")}
    sliding = [definition.loads()[number] for number in window_loads(definition)]
    return bool(sliding) and all(spatial <= load.axes() for load in sliding)


_SPARE = 6
"""More candidates than asked for: the common price leaves tails and vectors of stores out."""


def _batch(plans: list[WindowPlan]) -> WindowPlan:
    """All plans (of the same axes) as one of arrays."""
    joined = lambda pairs: tuple(
        (axis, np.array([own[n][1] for own in pairs])) for n, (axis, _) in enumerate(pairs[0])
    )
    return WindowPlan(joined([plan.tiles for plan in plans]), joined([plan.threads for plan in plans]))


def window_plans(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[WindowPlan]:
    """Patches along the innermost two axes along which windows slide; threads along these, then along another one."""
    taps = prod(axis.extent for axis in definition.of_role("reduce"))
    along = _sliding(definition)[-2:]
    beside = _beside(definition, along)
    most = min(_MOST_THREADS, device.limits.threads_per_block)
    for tile in product(*(_tiles(axis) for axis in along)):
        outputs = prod(tile)
        if not 1 < outputs <= _MOST_OUTPUTS or outputs * taps > _MOST_UNROLLED:
            continue
        for across in product(*(_across(ceil_div(a.extent, t)) for a, t in zip(along, tile, strict=True))):
            more = _more_threads(prod(across), beside, device, rules)
            if prod(across) * more > most or more > (beside.extent if beside else 1):
                continue
            tiles = tuple((axis.name, extent) for axis, extent in zip(along, tile, strict=True))
            threads = [(axis.name, extent) for axis, extent in zip(along, across, strict=True)]
            plan = WindowPlan(tiles, (*threads, (beside.name, more)) if beside else tuple(threads))
            if _within_waste(definition, plan, rules):
                yield plan


def _within_waste(definition: Definition, plan: WindowPlan, rules: AlignmentRules) -> bool:
    """Whether no axis is padded by more than the user allows."""
    limit = waste_limit(rules)
    if limit is None:
        return True
    blocks = {axis.name: plan.tile(axis.name) * plan.threads_along(axis.name) for axis in definition.of_role("spatial")}
    return all(padding_waste(definition.axis(axis).extent, block) <= limit for axis, block in blocks.items())


def _sliding(definition: Definition) -> list[Axis]:
    """Spatial axes along which some window slides, outermost first."""
    moving: set[str] = set()
    for number in window_loads(definition):
        load = definition.loads()[number]
        reduced = {a.name for a in definition.of_role("reduce")}
        for index in load.indices:
            moving |= index.axes() - reduced if index.axes() & reduced else set()
    return [axis for axis in definition.of_role("spatial") if axis.name in moving]


def _beside(definition: Definition, along: list[Axis]) -> Axis | None:
    """Another axis for a block's threads: one along which most operands stay the same, then the longest."""
    others = [axis for axis in definition.of_role("spatial") if axis not in along]
    same = lambda axis: sum(axis.name not in load.axes() for load in definition.body_loads())
    return max(others, key=lambda axis: (same(axis), axis.extent), default=None)


def _tiles(axis: Axis) -> list[int]:
    """Powers of 2, and what divides the axis."""
    return [t for t in _TILES if t <= axis.extent and (t & (t - 1) == 0 or axis.extent % t == 0)]


def _across(patches: int) -> list[int]:
    """Threads along an axis of so many patches: all of them, and powers of 2."""
    whole = [patches] if patches <= _MOST_ACROSS else []
    return sorted({*whole, *(t for t in (8, 16, 32) if t < 2 * patches)} or {1})


def _more_threads(across: int, beside: Axis | None, device: Device, rules: AlignmentRules) -> int:
    """Threads along the other axis that make a block whole execution widths, and not too few."""
    unit = thread_multiple(device, rules)
    least = unit // gcd(unit, across)
    while beside is not None and across * least < _LEAST_THREADS and 2 * least <= beside.extent:
        least *= 2
    return least
