"""Times of candidates that can be compared: taken in alternation, in a steady state, until their order is settled.

What disturbs one round disturbs all of its candidates, so they are compared round by round: of two candidates one is
faster if it was so in more rounds than chance explains (the sign test, two-sided).  Nothing about the distribution of
the times is assumed, and a drift of the clock does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from statistics import median

from rollergen.dropped import error_text
from rollergen.errors import DeviceError
from rollergen.measure.bench import Bench, Lost
from rollergen.measure.outcome import Outcome, Progress
from rollergen.runtime.session import Reading

ROUNDS = 15
LEAST_ROUNDS = 3
TIMING_SECONDS = 1.0
"""Rounds of timing: at least the least, then until the order is settled, or the rounds or the seconds (wall, all
candidates) are used up."""

HOPELESS = 1.5
"""A candidate whose median after the least rounds is this many times the best one's is timed no further."""

CHANCE = 0.02
"""Probability with which chance alone may make the fastest candidate look faster than another one: 7 rounds of 7."""

ALIKE, LEAST_ALIKE = 1.02, 5
"""A candidate within this factor of the best one in most of at least so many rounds is as good: more rounds would tell
what no user notices."""

STEADY, WARM_UPS = 1.05, 6
"""Warm-up: runs until one is no longer quicker than the one before by this factor, at most so many."""

Doubt = Callable[[Outcome, float], str]
"""``doubt(candidate, seconds)``: why a run cannot have taken only so long, "" if it can."""


@dataclass(slots=True)
class Timed:
    """A candidate that passed the gate, and its times so far; ``noisy``: as in `Outcome`, ``host_bound``: as in
    `Reading`."""

    outcome: Outcome
    walls: list[float] = field(default_factory=list)
    events: list[float] = field(default_factory=list)
    noisy: str = ""
    host_bound: str = ""

    def once(self, bench: Bench) -> float | None:
        """The seconds of one run by the clock that ranks; None if the candidate was lost with it."""
        try:
            wall, event, self.host_bound = Reading(*bench.time(self.outcome))
        except Exception as error:  # also what runtimes raise: it is this candidate's
            self.outcome = lost_when_timed(self.outcome, error)
            return None
        self.walls.append(wall)
        self.events += [event] if event is not None else []
        return wall

    def warmed_up(self, bench: Bench) -> bool:
        """Runs until the times no longer fall; whether the candidate is still there."""
        before = self.once(bench)
        for _ in range(WARM_UPS - 1):
            if before is None:
                return False
            now = self.once(bench)
            if now is not None and now * STEADY > before:
                break
            before = now
        self.walls.clear()
        self.events.clear()
        return not self.outcome.problems

    def finished(self, doubt: Doubt) -> Outcome:
        """The outcome with its medians, or with why they are not believed."""
        if self.outcome.problems:
            return self.outcome
        wall, times = median(self.walls), tuple(self.walls)
        event = median(self.events) if self.events else None
        why = doubt(self.outcome, wall)
        if why:
            return replace(self.outcome, doubt=why, rounds=len(times), times_s=times)
        return replace(
            self.outcome, wall_s=wall, event_s=event, rounds=len(times), times_s=times, noisy=self.noisy
        )  # fmt: skip


def lost_when_timed(outcome: Outcome, error: Exception) -> Outcome:
    """The outcome of a candidate that passed the gate and failed later."""
    cause = error.cause if isinstance(error, Lost) else "crash"
    said = str(error) if isinstance(error, (Lost, DeviceError)) else error_text(error)
    return replace(outcome, problems=(f"when timed: {said}",), ended=cause)


def time_all(passed: Sequence[Timed], bench: Bench, progress: Progress) -> None:
    """Rounds in alternation; the order turns from round to round."""
    start = time.perf_counter()
    alive = [one for one in passed if one.warmed_up(bench)]
    for number in range(ROUNDS):
        order = alive if number % 2 == 0 else alive[::-1]
        lost = [one for one in order if one.once(bench) is None]
        alive = [one for one in alive if one not in lost]
        progress("timed", number + 1, ROUNDS)
        if not alive:
            break
        if number + 1 >= LEAST_ROUNDS:
            best = min(median(one.walls) for one in alive)
            alive = [one for one in alive if median(one.walls) <= HOPELESS * best]
            if settled(alive) or time.perf_counter() - start > TIMING_SECONDS:
                break


def settled(alive: Sequence[Timed]) -> bool:
    """Whether the one with the least median beats each other one by more than chance, or is as fast."""
    if len(alive) == 1:
        return len(alive[0].walls) >= ROUNDS // 2
    best = min(alive, key=lambda one: median(one.walls))
    others = [one.walls for one in alive if one is not best]
    return all(chance(best.walls, walls) <= CHANCE or _alike(best.walls, walls) for walls in others)


def _alike(walls: Sequence[float], others: Sequence[float]) -> bool:
    near = sum(max(a, b) <= ALIKE * min(a, b) for a, b in zip(walls, others, strict=True))
    return len(walls) >= LEAST_ALIKE and near > len(walls) / 2


def chance(quicker: Sequence[float], slower: Sequence[float]) -> float:
    """Probability that equal candidates differ in as many rounds as these did, either way; ties count half."""
    pairs = list(zip(quicker, slower, strict=True))
    wins = sum(a < b for a, b in pairs) + sum(a == b for a, b in pairs) // 2
    most = max(wins, len(pairs) - wins)
    tail = sum(comb(len(pairs), k) for k in range(most, len(pairs) + 1)) / 2.0 ** len(pairs)
    return min(1.0, 2 * tail)
