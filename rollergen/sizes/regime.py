"""Regime maps: which few programs serve all sizes, and which of them serves which.

Programs are constructed at sampled sizes, and each is priced at all of them.  Kept are the fewest of which, at every
sampled size, the best is predicted within `CLOSE` of the best constructed there; at most as many as are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rollergen.construct.choose import construct, limited
from rollergen.construct.planning import planned, row_limits
from rollergen.dropped import drop
from rollergen.errors import RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dims import Dim, Sized
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.options import BuildOptions
from rollergen.program.check import check
from rollergen.program.model.counts import Counted, price_counts
from rollergen.program.model.together import price_stages
from rollergen.program.rprogram import RProgram
from rollergen.sizes.plan import Plan, follows, open_buffers, plan_of
from rollergen.sizes.samples import sampled_sizes

CLOSE = 1.05
"""Times the best constructed prediction: programs that are closer are not told apart (measured: first choices at 114
sizes are 26 to 83 programs, most within 5 % of each other)."""
PROGRAMS, PROGRAMS_OF_SEVERAL = 8, 12
"""Programs that are kept at most, of one dim and of several: each is compiled, and packs constants of its own."""
_EACH, _MORE = 6, 10
"""Best programs constructed at each sampled size: often one is the first of its neighbours.  More, where none of them
is a plan: one whose packed panels run on from one row into the next has a number of panels that no count tells."""
_BETWEEN = 128
"""Further sizes, evenly spread, at which the plans are priced but nothing is constructed: what is constructed there is
at most 1.3 % faster than the best of the plans at 95 of 100 sizes."""


@dataclass(frozen=True)
class Expression:
    """What is computed, with dims: ``outputs`` and, in the order of the call, ``inputs`` (None: as they appear)."""

    outputs: Sized | tuple[object, ...]
    inputs: tuple[object, ...] | None
    dims: Mapping[str, Dim]

    def at(self, sizes: Mapping[str, int]) -> tuple[object, object]:
        """The ordinary outputs and inputs for these sizes."""
        made = Sized(_as_given, (self.outputs, self.inputs), {}).at(sizes)
        return made[0], made[1]

    def graph(self, sizes: Mapping[str, int], device: Device) -> Graph:
        """The stages for these sizes, cut no more than they have to be."""
        outputs, inputs = self.at(sizes)
        return canonicalize(outputs, inputs, row_limits(device), None, device.kind.machine is not None)  # type: ignore[arg-type]

    def count(self, sizes: Mapping[str, int]) -> int:
        """The product of the sizes: what rows are a multiple of."""
        return prod(sizes[name] for name in self.dims)


def _as_given(outputs: object, inputs: object) -> tuple[object, object]:
    return outputs, inputs


@dataclass(frozen=True)
class RegimeMap:
    """Few plans for all counts, the one that serves most sizes first.

    ``sizes``: those sampled, and ``counts`` theirs; ``seconds``: of each plan at each [plans, counts], infinite where
    it has no program; ``best``: of the best constructed at each.
    """

    plans: tuple[Plan, ...]
    sizes: tuple[Mapping[str, int], ...]
    counts: tuple[int, ...]
    seconds: np.ndarray
    best: np.ndarray

    @property
    def loss(self) -> np.ndarray:
        """The best kept plan's seconds over the best constructed, at each sampled count."""
        return self.seconds.min(axis=0) / self.best  # type: ignore[no-any-return]

    def intervals(self) -> list[tuple[int, int, int]]:
        """(first, last, plan): between sampled counts at which one plan is best."""
        found: list[tuple[int, int, int]] = []
        for count, plan in zip(self.counts, self.seconds.argmin(axis=0).tolist(), strict=True):
            if found and found[-1][2] == plan:
                found[-1] = found[-1][0], count, plan
            else:
                found.append((count, count, plan))
        return found


def priced(programs: Sequence[RProgram], device: Device) -> list[float]:
    """Predicted seconds of programs, each stage launched in the way that takes less; those made once cost nothing."""
    stages = [[stage for stage in program.stages if not stage.once] for program in programs]
    each = iter(price_stages([stage for some in stages for stage in some], device).seconds.tolist())
    return [sum(next(each) for _ in some) for some in stages]


class Reference:
    """The expression at its largest sizes, by which others are told to be the same but for their count."""

    def __init__(self, expression: Expression, device: Device) -> None:
        self._expression, self._device = expression, device
        self._sizes = {name: one.high for name, one in expression.dims.items()}
        self._graph = expression.graph(self._sizes, device)
        self._count = expression.count(self._sizes)

    def open_at(self, sizes: Mapping[str, int]) -> frozenset[str] | None:
        """Names of the open inputs and outputs; None where the expression at these sizes is not the one at the largest
        with another count."""
        count = self._expression.count(sizes)
        if count == self._count:
            sizes = {name: (one.low + one.high) // 2 for name, one in self._expression.dims.items()}
            count = self._expression.count(sizes)
        graph = self._expression.graph(sizes, self._device)
        if not follows(self._graph, graph, self._count, count):
            return None
        return open_buffers(self._graph, graph, self._count, count)


def open_plans(
    graph: Graph, buffers: frozenset[str], count: int, most_rows: int, device: Device, options: BuildOptions
) -> tuple[RProgram, list[Plan]]:
    """The best program at a count, and the plans among the best ones."""
    plans: list[Plan] = []
    # Tensor maps have their extents, and edges what is left of these.
    fixed = replace(options, shapes=replace(options.shapes, box_copies=False, edges_apart=False))
    for top_k in (_EACH, _MORE):
        found = [one.program for one in construct(graph, device, fixed, top_k)]
        plans = [plan for one in found if (plan := plan_of(one, buffers, count, most_rows)) is not None]
        if plans:
            break
    return found[0], plans


def regime_map(
    expression: Expression,
    device: Device,
    options: BuildOptions,
    extra: Mapping[str, Iterable[int]] | None = None,
    most: int | None = None,
) -> RegimeMap | None:
    """The map; None where more than a count of rows depends on the sizes.

    ``extra``: sizes that are sampled too; ``most``: programs that are kept at most.
    """
    choice = choice_of(expression, device, options, extra)
    most = most or (PROGRAMS if len(expression.dims) == 1 else PROGRAMS_OF_SEVERAL)
    return None if choice is None else choice.map(most)


@dataclass(frozen=True)
class Choice:
    """Plans among which a map's are chosen, and the sizes by which they are: ``seconds`` and ``best`` at the sampled
    ones as a `RegimeMap` has them; ``loss`` and ``weights`` at these and at those between them."""

    plans: tuple[Plan, ...]
    sizes: tuple[Mapping[str, int], ...]
    counts: tuple[int, ...]
    seconds: np.ndarray
    best: np.ndarray
    loss: np.ndarray
    weights: np.ndarray
    device: Device

    def map(self, most: int) -> RegimeMap | None:
        """The fewest of the plans, at most so many; None where none stands.  Those that break an invariant at a sampled
        size are dropped."""
        alive = list(range(len(self.plans)))
        while alive:
            kept = [alive[n] for n in cover(self.loss[alive], most, self.weights)]
            broken = [n for n in kept if not _stands(self.plans[n], self.counts, self.device)]
            if not broken:
                plans = tuple(self.plans[n] for n in kept)
                return RegimeMap(plans, self.sizes, self.counts, self.seconds[kept], self.best)
            alive = [n for n in alive if n not in broken]
        return None


def choice_of(
    expression: Expression, device: Device, options: BuildOptions, extra: Mapping[str, Iterable[int]] | None = None
) -> Choice | None:
    """Plans constructed at the sampled sizes; None where there are none."""
    reference = Reference(expression, device)
    constructed: dict[int, tuple[Mapping[str, int], float]] = {}
    plans: dict[RProgram, Plan] = {}
    apart = replace(options, shapes=replace(options.shapes, chains=False))  # chains are no plans
    most_rows = expression.count({name: one.high for name, one in expression.dims.items()})
    for sizes in sampled_sizes(expression.dims, extra):
        buffers = reference.open_at(sizes)
        if buffers is None:
            continue
        count = expression.count(sizes)
        outputs, inputs = expression.at(sizes)
        graph = planned(outputs, device, apart, inputs)  # type: ignore[arg-type]
        fastest, found = open_plans(graph, buffers, count, most_rows, device, options)
        constructed[count] = sizes, priced([fastest], limited(device, options))[0]
        for plan in found:
            plans.setdefault(plan.largest(device), plan)
    if not plans:
        return None
    between = between_counts(tuple(constructed)) if len(expression.dims) == 1 else ()
    return _compared(tuple(plans.values()), constructed, between, limited(device, options))


def _compared(
    plans: tuple[Plan, ...],
    constructed: Mapping[int, tuple[Mapping[str, int], float]],
    between: tuple[int, ...],
    device: Device,
) -> Choice:
    """Those of the plans that are the fastest at some sampled count.  At the counts `between`, at which nothing is
    constructed, the fastest of them is what others are compared with."""
    counts, best = tuple(constructed), np.array([seconds for _, seconds in constructed.values()])
    seconds = prices_of(plans, counts, device)
    fastest = np.flatnonzero((seconds <= seconds.min(axis=0) * (1 + 1e-9)).any(axis=1))
    plans, seconds = tuple(plans[n] for n in fastest), seconds[fastest]
    more = prices_of(plans, between, device)
    every, least = np.concatenate([seconds, more], axis=1), np.concatenate([best, more.min(axis=0)])
    loss = np.divide(every, least, out=np.ones_like(every), where=least > 0)  # outputs without elements take no time
    order = np.argsort((*counts, *between))
    weights = stands_for(sorted((*counts, *between)))
    sizes = tuple(sizes for sizes, _ in constructed.values())
    return Choice(plans, sizes, counts, seconds, best, loss[:, order], weights, device)


def between_counts(counts: Sequence[int]) -> tuple[int, ...]:
    """Counts that lie evenly between the first and the last of these, and are none of them."""
    spread = np.linspace(counts[0], counts[-1], _BETWEEN).round().astype(int).tolist()
    return tuple(sorted({*spread} - {*counts}))


def prices_of(plans: Sequence[Plan], counts: Sequence[int], device: Device) -> np.ndarray:
    """Predicted seconds of each plan at each count."""
    seconds, every = np.full((len(plans), len(counts)), np.inf), np.array(counts, np.int64)
    served = [np.flatnonzero(every <= plan.most) for plan in plans]
    stages = [plan.counted(every[at], device) for plan, at in zip(plans, served, strict=True)]
    open_ = iter(price_counts([one for some in stages for one in some if isinstance(one, Counted)], device))
    closed = [one for some in stages for one in some if not isinstance(one, Counted)]
    same = iter(price_stages(closed, device).seconds.tolist() if closed else ())
    for row, at, some in zip(seconds, served, stages, strict=True):
        row[at] = sum(next(open_) if isinstance(one, Counted) else next(same) for one in some)
    return seconds


def _stands(plan: Plan, counts: Sequence[int], device: Device) -> bool:
    """Whether the plan's programs meet the invariants; where they are too slow to be chosen, too."""
    try:
        for count in counts:
            if count <= plan.most:
                check(plan.unchecked(count, device), device)
        plan.source(min(counts), device)
    except RollergenError as error:
        drop(f"a plan constructed at {plan.count}", error)
        return False
    return True


_NONE = 1e6
"""As a loss: of sizes that no program serves yet."""


def stands_for(counts: Sequence[int]) -> np.ndarray:
    """How much each of the ascending counts matters: the more, the more counts lie nearer to it than to the others.

    Small ones are sampled densely, as tiles differ most there: nearly half of the samples of 4096 sizes are below 128.
    If all samples weighed alike, too many programs would be for these; if all sizes did, the smallest would be lost.
    """
    middles = (np.array(counts[1:]) + np.array(counts[:-1])) / 2
    reach = np.diff(np.array([counts[0] - 0.5, *middles, counts[-1] + 0.5]))
    return reach**_EVENLY  # type: ignore[no-any-return]


_EVENLY = 0.75
"""0: every sampled count weighs alike; 1: every count.  A product of S x 1024 x 1024, 8 programs, 80 random sizes, mean
and 95th percentile of the loss at 0, .75 and 1: v100 1.032 and 1.059, 1.011 and 1.033, 1.011 and 1.033; h200 1.024 and
1.089, 1.022 and 1.068, 1.014 and 1.066."""


def cover(loss: np.ndarray, most: int, weights: np.ndarray | None = None) -> list[int]:
    """Rows of which, in each column, the least is close to 1: greedily the one that helps most, until none is far; then
    each is exchanged for another while that makes them better together (`_far`).

    ``loss``: seconds of each plan over the best's [plans, counts]; ``weights``: of the counts.
    """
    weights = np.ones(loss.shape[1]) if weights is None else weights
    logs = np.log(np.clip(loss, 1.0, _NONE))
    chosen: list[int] = []
    least = np.full(loss.shape[1], np.inf)
    while len(chosen) < most and (not chosen or least.max() > np.log(CLOSE)):
        with_one = np.minimum(logs, least)
        number = int(((with_one**2 * weights).sum(axis=1) + 1e-9 * with_one.sum(axis=1)).argmin())
        if number in chosen:
            break
        chosen.append(number)
        least = np.minimum(least, logs[number])
    return _exchanged(chosen, logs, weights)


def _exchanged(chosen: list[int], logs: np.ndarray, weights: np.ndarray) -> list[int]:
    far, before = float(_far(logs[chosen].min(axis=0), weights)), np.inf
    while far < before:
        before = far
        for place in range(len(chosen)):
            others = logs[[*chosen[:place], *chosen[place + 1 :]]].min(axis=0, initial=np.log(_NONE))
            each = _far(np.minimum(logs, others), weights)
            if each.min() < far - 1e-9:
                chosen[place], far = int(each.argmin()), float(each.min())
    return chosen


_TENTH, _OF_TENTH = 0.1, 0.4
"""The share of the counts by the worst of which a map is judged too, and what these weigh beside the mean of all, which
is some .4 of theirs.  Products of h200, 8 programs, 300 random sizes, mean and 95th percentile, by squares chosen
greedily: 1.042 and 1.109, 1.039 and 1.142; so: 1.024 and 1.099, 1.025 and 1.124."""


def _far(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How far losses are from 1, their logarithms in the last axis: the mean, and that of the worst tenth."""
    order = np.argsort(-logs, axis=-1)
    share, ordered = weights[order] / weights.sum(), np.take_along_axis(logs, order, axis=-1)
    within = np.clip(_TENTH - (np.cumsum(share, axis=-1) - share), 0.0, share)
    return (ordered * (share + within / _TENTH * _OF_TENTH)).sum(axis=-1)  # type: ignore[no-any-return]
