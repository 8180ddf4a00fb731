"""Regime maps: which few programs serve all sizes, and which of them serves which.

Programs are constructed at a few sizes, and where the best of them takes longer all at once; each is priced at a
thousand.  Kept are the fewest of which, at every one of these, the best is predicted within `CLOSE` of the best known
there; at most as many as are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from rollergen.construct.choose import construct, limited
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import cuts, row_limits
from rollergen.dropped import drop
from rollergen.errors import ConstructionError, DoesNotFitError, RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dims import Dim, Sized
from rollergen.expr.stages import Graph
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.check import check
from rollergen.program.model.counts import Counted, price_counts
from rollergen.program.model.together import price_stages
from rollergen.program.rprogram import RProgram
from rollergen.sizes.cover import CLOSE, cover, of_orders
from rollergen.sizes.opening import follows, open_buffers, plan_of
from rollergen.sizes.plan import Plan
from rollergen.sizes.samples import Between, few_sizes, sampled_sizes, sizes_between

PROGRAMS, PROGRAMS_OF_SEVERAL = 8, 12
"""Programs that are kept at most, of one dim and of several: each is compiled, and packs constants of its own."""
_EACH, _MORE, _QUICKLY = 6, 10, 2
"""Best programs constructed at each sampled size: often one is the first of its neighbours.  More, where none of them
is a plan: one whose packed panels run on from one row into the next has a number of panels that no count tells.  The
last is how many where the map is made quickly."""
_HOPED = 3
"""Sizes at which programs are constructed, where none of these is a plan."""
_STEP = 1.01
"""Where the best known plan takes so much longer than at the size before, another one may be better."""
_ROUND, _MOST = 8, 64
"""Sizes of one round that are constructed, and of all."""


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

    def open_at(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """The open inputs and outputs, as `open_buffers` has them; None where the expression at these sizes is not the
        one at the largest with another count."""
        count = self._expression.count(sizes)
        if count == self._count:
            sizes = {name: (one.low + one.high) // 2 for name, one in self._expression.dims.items()}
            count = self._expression.count(sizes)
        graph = self._expression.graph(sizes, self._device)
        if not follows(self._graph, graph, self._count, count):
            return None
        return open_buffers(self._graph, graph, self._count, count)


def open_plans(
    graph: Graph, buffers: Mapping[str, int], count: int, most_rows: int, device: Device, options: BuildOptions,
    each: int = _EACH,
) -> tuple[RProgram, list[Plan]]:  # fmt: skip
    """The best program at a count, and the plans among the best ones, of which there are ``each``."""
    plans: list[Plan] = []
    # Tensor maps have their extents, and edges what is left of these.
    fixed = replace(options, shapes=replace(options.shapes, box_copies=False, edges_apart=False))
    for top_k in (each, _MORE):
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
    quick: bool = False,
) -> RegimeMap | None:
    """The map; None where more than a count of rows depends on the sizes.

    ``extra``: sizes that are sampled too; ``quick``: as `choice_of` has it.
    """
    choice = choice_of(expression, device, options, extra, quick)
    most = PROGRAMS if len(expression.dims) == 1 else PROGRAMS_OF_SEVERAL
    return None if choice is None else choice.map(most)


@dataclass(frozen=True)
class Choice:
    """Plans among which a map's are chosen, and the sizes by which they are: ``seconds`` and ``best`` at those at which
    programs were constructed, as a `RegimeMap` has them; ``loss`` at all at which plans were priced, with two
    ``weights`` of each (see `cover`)."""

    plans: tuple[Plan, ...]
    sizes: tuple[Mapping[str, int], ...]
    counts: tuple[int, ...]
    seconds: np.ndarray
    best: np.ndarray
    loss: np.ndarray
    weights: tuple[np.ndarray, np.ndarray]
    device: Device

    def map(self, most: int) -> RegimeMap | None:
        """The fewest of the plans, at most so many; None where none stands.  Those that break an invariant at a sampled
        size are dropped."""
        alive = list(range(len(self.plans)))
        while alive:
            kept = [alive[n] for n in cover(self.loss[alive], most, *self.weights)]
            broken = [n for n in kept if not _stands(self.plans[n], self.counts, self.device)]
            if not broken:
                plans = tuple(self.plans[n] for n in kept)
                return RegimeMap(plans, self.sizes, self.counts, self.seconds[kept], self.best)
            alive = [n for n in alive if n not in broken]
        return None


def choice_of(
    expression: Expression, device: Device, options: BuildOptions, extra: Mapping[str, Iterable[int]] | None = None,
    quick: bool = False,
) -> Choice | None:  # fmt: skip
    """Plans constructed at sampled sizes, and where the best of them takes longer all at once, until a round makes no
    size faster; None where there are none.

    ``quick``: fewer, at powers of 2 and the ends alone, and priced there: a tenth of the time.
    """
    if quick:
        few = few_sizes(expression.dims)
        pool = Pool(expression, device, options, {prod(one.values()): Between(one, 1.0) for one in few}, _QUICKLY)
        for sizes in few:
            pool.construct(sizes)
            if pool.is_hopeless:
                return None
        return pool.choice() if pool.plans else None
    every = sizes_between(expression.dims)
    pool = Pool(expression, device, options, every)
    for sizes in sampled_sizes(expression.dims, extra):
        pool.construct(sizes)
        if not all(plan.is_of_rows for plan in pool.plans):  # their prices are found one by one
            return choice_of(expression, device, options, extra, quick=True)
        if pool.is_hopeless:
            return None
    helped = bool(pool.plans)
    while helped and len(pool.constructed) < _MOST and (steps := pool.steps()):
        before = pool.least
        for count in steps[: min(_ROUND, _MOST - len(pool.constructed))]:
            pool.construct(every[count].sizes)
        helped = bool((before > pool.least * _STEP).any())  # otherwise the steps that are left are the device's own
    return pool.choice() if pool.plans else None


class Pool:
    """Plans constructed at some sizes, and their prices at these and at the sizes in ``every``, by count."""

    def __init__(
        self, expression: Expression, device: Device, options: BuildOptions, every: Mapping[int, Between],
        each: int = _EACH,
    ) -> None:  # fmt: skip
        self._expression, self._options, self._every, self._each = expression, options, every, each
        self._given, self._device = device, limited(device, options)
        self._reference = Reference(expression, device)
        self._most_rows = expression.count({name: one.high for name, one in expression.dims.items()})
        self._programs: set[RProgram] = set()
        self._seconds = np.empty((0, len(every)))
        self._tried: set[int] = set()
        self.plans: list[Plan] = []
        self.constructed: dict[int, tuple[Mapping[str, int], float]] = {}

    def construct(self, sizes: Mapping[str, int]) -> None:
        """Adds the plans constructed at these sizes, if the expression there is that at others."""
        count = self._expression.count(sizes)
        self._tried.add(count)
        buffers = self._reference.open_at(sizes)
        if buffers is None:
            return
        outputs, inputs = self._expression.at(sizes)
        best, found = [], list[Plan]()
        for graph in cuts(outputs, self._given, self._options, inputs):  # type: ignore[arg-type]
            try:
                if found:  # of what is cut further only how fast it is
                    best.append(construct(graph, self._given, self._options, 1)[0].program)
                    continue
                fastest, found = open_plans(
                    graph, buffers, count, self._most_rows, self._given, self._options, self._each
                )  # fmt: skip
                best.append(fastest)
            except (ConstructionError, DoesNotFitError) as error:
                drop(f"a cut at {count}", error)
        if not best:
            return
        self.constructed[count] = sizes, min(priced(best, self._device))
        for plan in found:
            program = plan.largest(self._given)
            if program not in self._programs:
                self._programs.add(program)
                self.plans.append(plan)

    @property
    def is_hopeless(self) -> bool:
        """Whether programs were constructed, and none is a plan."""
        return not self.plans and len(self.constructed) >= _HOPED

    @property
    def least(self) -> np.ndarray:
        """Seconds of the best of the plans at each of ``every``."""
        self._price()
        return self._seconds.min(axis=0)  # type: ignore[no-any-return]

    def steps(self) -> list[int]:
        """Counts at which nothing was constructed, and at which the best of the plans takes longer all at once than at
        the count before: those first where that is most, at most counts."""
        least, counts = self.least, [*self._every]
        found = []
        with np.errstate(divide="ignore", invalid="ignore"):
            longer = least[1:] / least[:-1]
        for before in np.flatnonzero(longer > _STEP).tolist():
            at = before + 1
            above = np.flatnonzero(least[at:] > least[at] * _STEP)
            width = int(above[0]) if len(above) else len(counts) - at
            if counts[at] not in self._tried:
                found.append((np.log(longer[before]) * width, counts[at]))
        return [count for _, count in sorted(found, reverse=True)]

    def choice(self) -> Choice:
        """Those of the plans that are close to the fastest at some count."""
        self._price()
        counts = tuple(sorted(self.constructed))
        sizes, best = zip(*[self.constructed[count] for count in counts], strict=True)
        between = [count for count in self._every if count not in self._tried]
        known = {count: self._seconds[:, n] for n, count in enumerate(self._every)}
        if lacking := [count for count in counts if count not in known]:
            known |= dict(zip(lacking, prices_of(self.plans, lacking, self._device).T, strict=True))
        own = np.stack([known[count] for count in counts], axis=1)
        more = self._seconds[:, [n for n, count in enumerate(self._every) if count not in self._tried]]
        every = np.concatenate([own, more], axis=1)
        least = np.concatenate([np.minimum(best, own.min(axis=0)), more.min(axis=0)])
        near = np.flatnonzero((every <= least * CLOSE).any(axis=1))
        # Outputs without elements take no time.
        loss = np.divide(every, least, out=np.ones_like(every), where=least > 0)
        order = np.argsort((*counts, *between))
        ascending = sorted((*counts, *between))
        weights = np.array([self._every[count].weight if count in self._every else 0 for count in ascending])
        return Choice(
            tuple(self.plans[n] for n in near), sizes, counts, own[near], np.array(best), loss[near][:, order],
            (weights, of_orders(ascending)), self._device,
        )  # fmt: skip

    def _price(self) -> None:
        """Prices the plans that are new."""
        if not (new := self.plans[len(self._seconds) :]):
            return
        self._seconds = np.concatenate([self._seconds, prices_of(new, [*self._every], self._device)])


def prices_of(plans: Sequence[Plan], counts: Sequence[int], device: Device) -> np.ndarray:
    """Predicted seconds of each plan at each count."""
    seconds, every = np.full((len(plans), len(counts)), np.inf), np.array(counts, np.int64)
    served = [np.flatnonzero(every <= plan.most) for plan in plans]
    for number in [n for n, plan in enumerate(plans) if not plan.is_of_rows]:
        programs = [plans[number].unchecked(count, device) for count in every[served[number]].tolist()]
        seconds[number][served[number]] = priced(programs, device)
    beside = [n for n, plan in enumerate(plans) if plan.is_of_rows]
    stages = [plans[n].counted(every[served[n]], device) for n in beside]
    open_ = iter(price_counts([one for some in stages for one in some if isinstance(one, Counted)], device))
    closed = [one for some in stages for one in some if not isinstance(one, Counted)]
    same = iter(price_stages(closed, device).seconds.tolist() if closed else ())
    for n, some in zip(beside, stages, strict=True):
        seconds[n][served[n]] = sum(next(open_) if isinstance(one, Counted) else next(same) for one in some)
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
