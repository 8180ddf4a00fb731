"""Candidates: one way to compute a tensor op, with its price under the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, isfinite
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from rollergen.dropped import at_once, plan_text, standing
from rollergen.errors import ProgramError
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model import price_stages
from rollergen.program.rprogram import GRID, LANE, PARALLEL, Stage

Key = tuple[Any, ...]
Plan = TypeVar("Plan")

HOPELESS = 4.0
"""Times the best prediction: the model's errors are smaller, so nothing slower is taken for the sake of variety."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A stage that is made when a program needs it.  ``once``: it runs once, on constants, and no price needs it."""

    make: Callable[[], Stage]
    once: bool

    @staticmethod
    def of(stage: Stage) -> Pending:
        """One that is made already."""
        return Pending(lambda: stage, stage.once)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Stages that compute one tensor op: those that are ``before``, then its ``own``, in launch order.

    ``variant``: direct, packed n, padded, implicit GEMM, split 4, ...  ``split``: in how many parts a reduction is
    computed.
    """

    variant: str
    own: tuple[Stage, ...]
    temporaries: tuple[Buffer, ...]
    seconds: float
    split: int = 1
    before: tuple[Pending, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All of them, in launch order."""
        return (*[one.make() for one in self.before], *self.own)

    @property
    def key(self) -> Key:
        """What counts as one kind: at most two candidates of one key are kept.

        The key is (variant, block tile, split, depth), with the threads and lanes that share one reduction or row.
        """
        last = self.own[-1]
        turned = len(self.own) > 1 and not last.op.reductions  # or Winograd's: it stores what the sums before it are
        main = last if (self.split == 1 or last.store.adds) and not turned else self.own[-2]
        depth = max([copy.depth for copy in main.copies], default=1)
        return self.variant, block_tile(main), self.split, depth, _sharers(main)


def price(stages: Iterable[Stage], device: Device) -> float:
    """Predicted seconds of the stages, rounded to 6 significant digits so that no platform's last bit
    decides a rank; stages that run once at build cost nothing."""
    return rounded(float(price_stages([stage for stage in stages if not stage.once], device).seconds.sum()))


def rounded(seconds: float) -> float:
    """The number with 6 significant digits."""
    return float(f"{seconds:.6g}")


def candidate(
    variant: str,
    stages: tuple[Stage, ...],
    temporaries: tuple[Buffer, ...],
    device: Device,
    split: int = 1,
    seconds: float | None = None,
) -> Candidate:
    """A candidate of these stages; ``seconds``: their price, where it is known."""
    return Candidate(variant, stages, temporaries, price(stages, device) if seconds is None else seconds, split)


def candidates(variant: str, stages: Sequence[Stage], device: Device) -> Iterator[Candidate]:
    """A candidate of each stage, all priced at once."""
    for stage, seconds in prices(stages, device, variant):
        yield candidate(variant, (stage,), (), device, seconds=rounded(seconds))


def assembled(plans: Iterable[Plan], make: Callable[[Plan], Stage], variant: str) -> list[Stage]:
    """The stage of each plan; plans that cannot be assembled are dropped."""
    return [stage for _, stage in standing(plans, make, lambda plan: f"{variant}: {plan_text(plan)}")]


def prices(stages: Sequence[Stage], device: Device, variant: str) -> list[tuple[Stage, float]]:
    """Each stage with its predicted seconds; stages that have no price are dropped."""
    together = lambda some: price_stages(some, device).seconds.tolist()
    return at_once(stages, together, lambda stage: f"{variant}: {stage_text(stage)}")


def candidates_text(some: Sequence[Candidate]) -> str:
    """Variants and block tiles of candidates that make one program."""
    return variants_text([one.variant for one in some], [stage for one in some for stage in one.own])


def variants_text(variants: Sequence[str], stages: Sequence[Stage]) -> str:
    """Variants and block tiles: ``direct: matmul, i 64 x j 128``."""
    return f"{' then '.join(variants)}: {'; '.join(map(stage_text, stages))}"


def stage_text(stage: Stage) -> str:
    """Name and block tile: ``contraction, i 64 x j 128``."""
    return f"{stage.name}, {' x '.join(f'{axis} {extent}' for axis, extent in block_tile(stage))}"


def _sharers(stage: Stage) -> tuple[tuple[str, int], ...]:
    """Threads and lanes along reduced axes and rows: a block that has a whole row differs from others in these."""
    along = {axis.name for axis in stage.op.of_role("reduce", "row")}
    return tuple([(x.kind, x.extent) for x in stage.loops if x.axis in along and x.kind in _SHARING])


_SHARING = (*PARALLEL, LANE)


def cheapest_first(priced: Iterable[tuple[float, Plan]], text: Callable[[Plan], str] = repr) -> list[Plan]:
    """The plans of (seconds, plan) pairs by price, ties by their text.

    A text costs as much as a price, so only ties are written.
    """
    alike: dict[float, list[Plan]] = {}
    for seconds, plan in priced:
        alike.setdefault(seconds, []).append(plan)
    ordered: list[Plan] = []
    for seconds in sorted(alike):
        tied = alike[seconds]
        ordered += tied if len(tied) == 1 else sorted(tied, key=text)
    return ordered


def cheapest(stages: list[Stage], device: Device) -> Stage:
    """The stage with the least predicted time, ties by its loops."""
    priced = [(rounded(seconds), stage) for stage, seconds in prices(stages, device, "one of a kind")]
    if not priced:
        raise ProgramError(f"none of {len(stages)} stages stands; expected at least one that can be priced")
    return cheapest_first(priced, lambda stage: repr(stage.loops))[0]


def block_tile(stage: Stage) -> tuple[tuple[str, int], ...]:
    """Extent along each axis that one block covers, outer loops of the reduction aside."""
    covered: dict[str, int] = {}
    for loop in stage.loops:
        if loop.kind != GRID:
            reached = loop.extent * loop.stride
            if reached > covered.get(loop.axis, 0):
                covered[loop.axis] = reached
    return tuple(sorted(covered.items()))


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates by predicted time, then by the program's own text, so that ties fall the same everywhere."""
    alike: dict[Key, list[Candidate]] = {}
    for one in candidates:
        alike.setdefault((one.seconds, len(one.before) + len(one.own), one.variant), []).append(one)
    ordered = []
    for key in sorted(alike):
        tied = alike[key]
        ordered += tied if len(tied) == 1 else sorted(tied, key=lambda one: repr([s.loops for s in one.own]))
    return ordered


def best(candidates: Iterable[Candidate], count: int, per_key: int = 2) -> list[Candidate]:
    """The `count` best candidates that fit the device, none twice.

    At most `per_key` of them share a key.  At most half of them share a variant, as long as other variants are not
    `HOPELESS`.
    """
    share = max(per_key, -(-count // 2))
    taken: dict[str, int] = {}
    chosen: list[Candidate] = []
    spare: list[Candidate] = []
    slowest = inf
    for one in _distinct(candidates, per_key):
        slowest = min(slowest, HOPELESS * one.seconds)  # the first one's
        taken[one.variant] = taken.get(one.variant, 0) + 1
        varied = taken[one.variant] <= share and one.seconds <= slowest
        (chosen if varied else spare).append(one)
        if len(chosen) == count:
            return chosen
    return in_order([*chosen, *spare[: count - len(chosen)]])


def _distinct(candidates: Iterable[Candidate], per_key: int) -> Iterator[Candidate]:
    """Those that fit, best first, none twice and at most `per_key` of one key."""
    programs: dict[Key, list[list[Key]]] = {}
    for one in in_order(candidates):
        if not isfinite(one.seconds):
            continue
        alike = programs.setdefault(one.key, [])
        if len(alike) >= per_key:
            continue
        decided = [_DECIDED(stage) for stage in one.own]
        if decided not in alike:
            alike.append(decided)
            yield one


_DECIDED = attrgetter("loops", "copies", "kept_rows", "store", "block_order")
"""What tells programs of one key, and so of one variant, apart."""


def lowest(scores: np.ndarray, count: int) -> np.ndarray:
    """Positions of the `count` lowest finite scores, ties by position."""
    order = np.argsort(np.round(scores, 12), kind="stable")
    return order[np.isfinite(scores[order])][:count]
