"""The objective chosen by nested folds: for operators that are held out, by operators that are trained on alone.

A figure of the objective that was best on the very operators that it is told of is too good; this one is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from benches.verify.evaluate import Judged, judged
from benches.verify.rankers import Ranker
from benches.verify.splits import TooFewRecords, folds
from benches.verify.unfinished import Unfinished
from rollergen.measure.outcome import Progress
from rollergen.verify.dataset import Dataset

NESTED = "nested"
INNER = 3
"""Folds of the structures that are trained on."""

Make = Callable[[], Ranker]


def worth(found: Sequence[Judged]) -> float:
    """What an objective is chosen by: the mean of macro Top-1 and Top-3."""
    return fmean((one.figures["top-1"] + one.figures["top-3"]) / 2 for one in found)


def best_of(data: Dataset, makers: Mapping[str, Make], seed: int) -> str:
    """The ranker that is worth most on held-out structures of `data`, the first of equals; the first of all where
    `data` has too few structures for folds."""
    try:
        split = list(folds(data, INNER, seed))
    except TooFewRecords:
        return next(iter(makers))
    values = {}
    for name, make in makers.items():
        found: list[Judged] = []
        for train, test in split:
            ranker = make()
            ranker.fit(data.of(train), seed)
            found += judged(ranker, data.of(test))
        values[name] = worth(found)
    return max(values, key=values.__getitem__)


def choices(
    data: Dataset, makers: Mapping[str, Make], seed: int, count: int, kept: Unfinished, progress: Progress
) -> list[str]:
    """The best ranker by fold of the outer split, each found among the structures that its fold trains on."""
    found = []
    for number, (train, _) in enumerate(folds(data, count, seed)):
        name = f"nested choice of {', '.join(makers)}, {count} folds, seed {seed}, fold {number}"
        found.append(str(kept.part(name, partial(best_of, data.of(train), makers, seed))))
        progress(f"objective by nested folds, seed {seed}", number + 1, count)
    return found


def chosen_runs(
    data: Dataset, makers: Mapping[str, Make], runs: Mapping[str, Sequence[Sequence[Judged]]], seeds: Sequence[int],
    count: int, kept: Unfinished, progress: Progress,
) -> tuple[list[list[Judged]], dict[str, int]]:  # fmt: skip
    """(of each seed what the ranker chosen for each operator's fold did there, how often each was chosen); ``runs``:
    of each ranker and seed, on the same folds."""
    whole: list[list[Judged]] = []
    often: Counter[str] = Counter(dict.fromkeys(makers, 0))
    for at, seed in enumerate(seeds):
        names = choices(data, makers, seed, count, kept, progress)
        often.update(names)
        own: list[Judged] = []
        for (_, test), name in zip(folds(data, count, seed), names, strict=True):
            held = set(np.unique(data.operator[test]).tolist())
            own += [one for one in runs[name][at] if one.operator in held]
        whole.append(sorted(own, key=lambda one: one.operator))
    return whole, dict(often)


def told(often: Mapping[str, int]) -> dict[str, Any]:
    """How the choice was made, for a report."""
    return {"inner folds": INNER, "by": "mean of macro Top-1 and Top-3", "chosen": dict(often)}
