"""Times taken on a busy machine: told by their scatter or by the model, taken again later, and marked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles

from rollergen.hal.dataclass import dataclass
from rollergen.measure.bench import Bench
from rollergen.measure.outcome import Progress
from rollergen.measure.timing import Timed, quickest, time_all

SCATTER = 0.3
"""Distance of the quartiles over the median that steady times stay below: a few per cent on an idle machine."""
FAR = 4.0
"""A median this many times the predicted time is taken again: the model is within 2 for most programs of a CPU."""
AGREE = 1.1
"""Medians within this factor, taken at two moments, tell of the program and not of the machine."""
LEAST_S = 100e-6
"""Smaller differences are those of waking threads, on any machine."""
PAUSES_S = 0.3, 1.0
"""Waited before times are taken again: so many times at most."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Times of all candidates, taken together: the quickest one's median, why they look disturbed, and all of them."""

    best_s: float
    why: str
    times: tuple[tuple[Timed, list[float], list[float]], ...]


def time_calmly(
    passed: Sequence[Timed], bench: Bench, progress: Progress, wait: Callable[[float], None] = time.sleep
) -> None:
    """`time_all`; again where the quickest candidate's times look like those of a busy machine.

    The calm times stay; where none were, and no two agree, the least, and their candidates are `Timed.noisy`."""
    tries: list[_Taken] = []
    for pause in (0.0, *PAUSES_S):
        if tries:
            wait(pause)
        found = _taken(passed, bench, progress, tries)
        if found is None:
            return
        tries.append(found)
        if not found.why:
            break
    kept = tries[-1] if not tries[-1].why else min(tries, key=lambda one: one.best_s)
    for one, walls, events in kept.times:
        one.walls, one.events, one.noisy = walls, events, kept.why


def _taken(passed: Sequence[Timed], bench: Bench, progress: Progress, before: Sequence[_Taken]) -> _Taken | None:
    """Times taken now; None where no candidate is left."""
    alive = [one for one in passed if not one.outcome.problems]
    for one in alive:
        one.walls, one.events = [], []
    time_all(alive, bench, progress)
    timed = [one for one in alive if one.walls and not one.outcome.problems]
    if not timed:
        return None
    best = quickest(timed)
    best_s, why = median(best.walls), best.host_bound or disturbed(best.walls, best.outcome.predicted_s)
    if not best.host_bound and not scattered(best.walls) and any(_agree(best_s, other.best_s) for other in before):
        why = ""
    return _Taken(best_s, why, tuple((one, one.walls, one.events) for one in timed))


def _agree(one: float, other: float) -> bool:
    return max(one, other) <= AGREE * min(one, other)


def disturbed(walls: Sequence[float], predicted_s: float) -> str:
    """Why times look like those of a busy machine; "" if they do not."""
    middle = median(walls)
    if scattered(walls):
        low, _, high = quantiles(walls, n=4)
        return f"the quartiles of its times are {(high - low) / middle:.0%} of their median apart"
    if middle > FAR * predicted_s and middle - predicted_s > LEAST_S:
        return f"its median is {middle / predicted_s:.1f} times the predicted time, and no two measurements agree"
    return ""


def scattered(walls: Sequence[float]) -> bool:
    if len(walls) < 2:
        return False
    low, _, high = quantiles(walls, n=4)
    return high - low > max(SCATTER * median(walls), LEAST_S)
