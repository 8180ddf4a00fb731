"""How many programs are timed against each other so that the figures can be trusted on a noisy machine.

Every program is timed for at least `Protocol.seconds`, in random order; a control program in between tells when
the machine changed, and what lay in between is timed again; some programs are timed twice, which tells how well
figures repeat.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import mean, median

from rollergen.hal.dataclass import dataclass

Run = Callable[[int], float]
"""``run(calls)``: mean seconds of one call, of so many in a row."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """``samples`` means of equally many calls, together at least ``seconds`` of wall time, after ``warm_ups`` calls;
    a program whose first call takes ``hopeless`` times the best so far gets that one sample only.  The control
    program is timed every ``control_every`` programs; where it moved by more than ``drift`` the programs since are
    timed again, at most ``repeats`` times.  A share ``again`` of the programs is timed twice."""

    samples: int = 9
    seconds: float = 0.2
    warm_ups: int = 2
    hopeless: float = 10.0
    control_every: int = 25
    drift: float = 0.05
    repeats: int = 2
    again: float = 0.1


@dataclass(frozen=True, slots=True)
class Timings:
    """``times_s``: samples (seconds of one call) by position.  ``repeatability``: relative differences of medians
    between the two timings of those timed twice.  ``drifted``: segments whose control had moved at every try."""

    times_s: Mapping[int, tuple[float, ...]]
    repeatability: tuple[float, ...]
    drifted: int


def time_all(runs: Mapping[int, Run], control: int, protocol: Protocol, seed: int) -> Timings:
    """Times every run of `runs`; `control` is the key of the control program.  Deterministic order by `seed`.

    A run whose program is lost answers infinity, and is never timed twice.
    """
    order = sorted(runs)
    rng = random.Random(seed)
    rng.shuffle(order)
    found: dict[int, tuple[float, ...]] = {}
    before = median(_timed(runs[control], protocol, None))
    drifted = 0
    for start in range(0, len(order), protocol.control_every):
        segment = order[start : start + protocol.control_every]
        for attempt in range(protocol.repeats + 1):
            for key in segment:
                found[key] = _timed(runs[key], protocol, _best(found))
            moved, before = before, median(_timed(runs[control], protocol, None))
            if abs(before / moved - 1) <= protocol.drift:
                break
            drifted += attempt == protocol.repeats
    twice = rng.sample(order, max(1, round(protocol.again * len(order))))
    differences = []
    for key in twice:
        if len(found[key]) > 1 and isfinite(median(found[key])):
            again = median(_timed(runs[key], protocol, None))
            differences.append(abs(again / median(found[key]) - 1))
    return Timings(found, tuple(differences), drifted)


def _best(found: Mapping[int, Sequence[float]]) -> float | None:
    return min((median(times) for times in found.values()), default=None)


def _timed(run: Run, protocol: Protocol, best: float | None) -> tuple[float, ...]:
    """Samples of one program; its first call alone where that is hopeless."""
    first = run(1)
    if best is not None and first > protocol.hopeless * best:
        return (first,)
    for _ in range(protocol.warm_ups - 1):
        first = min(first, run(1))
    calls = max(1, -(-protocol.seconds // (protocol.samples * first)))
    samples = [run(int(calls)) for _ in range(protocol.samples)]
    while sum(samples) * calls < protocol.seconds:
        samples.append(run(int(calls)))
    return tuple(samples)


def spread(samples: Sequence[float]) -> float:
    """Mean absolute deviation from the median, over the median."""
    middle = median(samples)
    return mean(abs(one / middle - 1) for one in samples)
