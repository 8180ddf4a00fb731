"""Readings of many figures in turns, until the best of each has been reached again: what else runs on a machine makes
a figure worse for a while, and none better."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from math import ceil
from statistics import median
from typing import Generic, TypeVar

from rollergen.hal.dataclass import dataclass
from rollergen.hal.probes.microbench import Figure

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Meter:
    """``read()``: one reading of a figure; ``less``: the smaller is the better one, as of times.

    ``share``: the figure is what this share of the rounds reaches; at 0 it is the best round's.
    """

    read: Callable[[], float]
    less: bool = False
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long figures are read.

    ``readings`` of a figure stand in a round, of which the best counts.  A figure has settled when what the first and
    the second half of the rounds reached differ by less than `within`.  There are ``least_rounds`` for ``least_s``
    seconds at least.  Figures whose halves differ by more than `near` are then read on, until ``most_s`` have passed.
    The machine was busy most of the time where the median of a figure of arithmetic lies more than ``disturbed`` off
    its best: a few percent are usual, 93 to 100 % beside a busy core of two, and other figures may then have met no
    idle round.
    """

    readings: int = 2
    within: float = 0.05
    near: float = 0.02
    least_rounds: int = 8
    least_s: float = 25.0
    most_s: float = 120.0
    disturbed: float = 0.5


USUAL = Patience()


@dataclass(frozen=True, slots=True)
class Settled(Generic[Key]):
    """The figures; ``unsettled``: of those that have not settled how far the best of the halves lie apart;
    ``disturbed``: those whose spread is more than `Patience.disturbed`."""

    figures: dict[Key, Figure]
    unsettled: dict[Key, float]
    disturbed: frozenset[Key] = frozenset()


def in_turns(meters: Mapping[Key, Meter], patience: Patience = USUAL) -> Settled[Key]:
    """Each figure is what both halves of its rounds reached; its spread is how far the median of all was off."""
    rounds: dict[Key, list[float]] = {key: [] for key in meters}
    start, count, read = time.perf_counter(), 0, set(meters)
    while True:
        for key in (one for one in meters if one in read):
            found = [meters[key].read() for _ in range(patience.readings)]
            rounds[key].append(min(found) if meters[key].less else max(found))
        took, count = time.perf_counter() - start, count + 1
        if count < max(2, patience.least_rounds) or took < patience.least_s:
            continue
        reached = {key: _halves(rounds[key], meter) for key, meter in meters.items()}
        apart = {key: max(both) / min(both) - 1 for key, both in reached.items()}
        read = {key for key, much in apart.items() if much > patience.near}
        if not read or took >= patience.most_s:
            figures = {key: _figure(reached[key], rounds[key], meter.less) for key, meter in meters.items()}
            disturbed = frozenset(key for key, one in figures.items() if one.spread > patience.disturbed)
            return Settled(figures, {key: much for key, much in apart.items() if much > patience.within}, disturbed)


def _halves(rounds: list[float], meter: Meter) -> tuple[float, float]:
    """What each half reached."""
    rank = lambda half: min(len(half) - 1, ceil(meter.share * len(half)))
    reached = lambda half: sorted(half, reverse=not meter.less)[rank(half)]
    return reached(rounds[: len(rounds) // 2]), reached(rounds[len(rounds) // 2 :])


def _figure(reached: tuple[float, float], rounds: list[float], less: bool) -> Figure:
    value, usual = max(reached) if less else min(reached), median(rounds)
    return Figure(value, max(value, usual) / min(value, usual) - 1)
