"""Times of candidates that can be compared: taken in alternation, in a steady state, until their order is settled.

What disturbs one round disturbs all of its candidates, so they are compared round by round, with the one whose median
is the least.  A rival that is a per cent quicker than that one looks more so as often, and by as much, as it looks less
so.  One that did so seldom, or by so little, that this has a probability of `CHANCE` at most (the signed-rank test) is
given up; where that is wrong, what is chosen is about a per cent slower.  The others are timed on: the more the times
scatter, the more rounds.  The test assumes that both candidates' times scatter alike, and anew in each round.  It
assumes no distribution, and a drift of the clock does no harm.  Long launches, which scatter by a per cent, take three
launches a candidate in all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from statistics import median

from rollergen.dropped import error_text
from rollergen.errors import DeviceError
from rollergen.hal.dataclass import dataclass
from rollergen.measure.bench import Bench, Lost
from rollergen.measure.outcome import Outcome, Progress
from rollergen.runtime.session import Reading

ROUNDS = 15
LEAST_ROUNDS = 3
TIMING_SECONDS = 1.0
"""Rounds of timing: at least the least, then until the order is settled, or the rounds or the seconds (wall, all
candidates) are used up."""

SHORT_S = 0.01
"""Timing that took no longer than this (wall, all candidates) is no loss: no candidate is given up before."""

HOPELESS = 1.25
"""A candidate whose every time is more than this many times the best one's median, in two rounds, is given up."""

WORTH = 1.01
"""The factor by which a rival must be quicker to be worth more rounds: what no user notices is not."""

CHANCE = 1 / 8
"""Probability with which a rival that is quicker by `WORTH` may look as if it were not: in none of 3 rounds, or in one
of 4 where it is the one that tells least.  It is asked after each round: of such rivals a third is given up within 15
rounds (simulated with normal and exponential noise).

(Simulated with 4 and 10 candidates, noise of 0.5 to 10 %: the choice is 0.01 to 0.1 % slower than that of sign tests
at 0.02 in twice as many launches, and within 0.02 % of that of sign tests at 1 / 8 in 1 to 20 % more.)"""

STEADY, WARM_UPS, LONG_S = 1.05, 6, 0.005
"""Warm-up: runs until one is no longer quicker than the one before by this factor, or took so many seconds (after
which clock and caches are what they will be), at most so many.  Where the model says that a run takes so many seconds,
the gate's have been enough for all but the first candidate, which follows on comparisons (it took up to a tenth longer
in every third build)."""

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
            if before is None or before >= LONG_S:
                break
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


def time_all(
    passed: Sequence[Timed], bench: Bench, progress: Progress, now: Callable[[], float] = time.perf_counter
) -> None:
    """Rounds in alternation of those that may still win; the order turns from round to round."""
    start = now()
    warm = lambda number, one: number > 0 and one.outcome.predicted_s >= LONG_S
    alive = [one for number, one in enumerate(passed) if warm(number, one) or one.warmed_up(bench)]
    for number in range(ROUNDS):
        order = alive if number % 2 == 0 else alive[::-1]
        lost = [one for one in order if one.once(bench) is None]
        alive = [one for one in alive if one not in lost]
        progress("timed", number + 1, ROUNDS)
        taken_s = now() - start
        if alive and taken_s > SHORT_S:
            alive = rivals(alive)
        settled = not alive or (len(alive) == 1 and taken_s > SHORT_S)
        if (settled or taken_s > TIMING_SECONDS) and number + 1 >= LEAST_ROUNDS:
            break


def rivals(alive: Sequence[Timed]) -> list[Timed]:
    """The one with the least median, and those that may be quicker."""
    best = quickest(alive)
    return [one for one in alive if one is best or not _beaten(one.walls, best.walls)]


def quickest(timed: Sequence[Timed]) -> Timed:
    """The one with the least median of those that were timed in most rounds: the others were given up."""
    rounds = max(len(one.walls) for one in timed)
    return min((one for one in timed if len(one.walls) == rounds), key=lambda one: median(one.walls))


def _beaten(walls: Sequence[float], best: Sequence[float]) -> bool:
    """Whether more rounds are unlikely to show that times are less than the best ones, taken side by side."""
    rounds = len(walls)
    if rounds > 1 and min(walls) > HOPELESS * median(best):
        return True
    gains = [other - WORTH * one for one, other in zip(walls, best, strict=True)]
    return rounds >= LEAST_ROUNDS and chance(gains) <= CHANCE


def chance(gains: Sequence[float]) -> float:
    """Probability that gains of these sizes, each as likely a loss, are so few or so small (the signed-rank test:
    Wilcoxon, "Individual comparisons by ranking methods", 1945).  A difference of 0 counts as a gain, and of gains and
    losses of one size the gains rank higher: what a coarse clock cannot tell apart is in favour of the rival.

    >>> chance([-3.0, -1.0, -2.0]), chance([-3.0, 1.0, -2.0])  # none; the smallest
    (0.125, 0.25)
    """
    by_size = sorted(gains, key=lambda gain: (abs(gain), gain))
    won = sum(rank for rank, gain in enumerate(by_size, start=1) if gain >= 0)
    ways = [1]  # in which the ranks of gains add up to 0, 1, ...
    for rank in range(1, len(gains) + 1):
        none = [0] * rank
        ways = [without + with_it for without, with_it in zip(ways + none, none + ways, strict=True)]
    return sum(ways[: won + 1]) / 2.0 ** len(gains)
