"""Leave-operators-out evaluation of rankers: folds by canonical structure, several seeds, confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benches.verify.metrics import summary, top_k, weighted_best_k, weighted_top_k
from benches.verify.rankers import RANKERS, Fitted, Ranker
from benches.verify.splits import FOLDS, folds
from benches.verify.unfinished import Unfinished
from rollergen.measure.outcome import Progress
from rollergen.verify.dataset import Dataset
from rollergen.verify.rankers import deployed_order

SLOTS = (1, 3, 5)
BEST_OF = 10
"""Programs that a profiled build measures: the set of which Best-k takes the k-th fastest."""
Make = Callable[[], Ranker]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One held-out operator under one ranker and seed: ``orders``, in which programs would be measured at each of
    `SLOTS` and `BEST_OF`, give ``figures`` (`metrics.summary`)."""

    operator: int
    kind: str
    figures: Mapping[str, float]
    times: np.ndarray
    orders: Mapping[int, tuple[int, ...]]


def judge(data: Dataset, make: Make, seed: int, count: int = FOLDS) -> list[Judged]:
    """Every operator once, by a ranker that saw none of its structure."""
    found = []
    for train, test in folds(data, count, seed):
        ranker = make()
        ranker.fit(data.of(train), seed)
        found += judged(ranker, data.of(test))
    return sorted(found, key=lambda one: one.operator)


def judged(ranker: Fitted, held_out: Dataset) -> list[Judged]:
    scores = ranker.scores(held_out)
    found = []
    for rows in held_out.operators():
        times, own = held_out.ms[rows], scores[rows]
        if len(rows) < 2 or not np.isfinite(times).any():
            continue
        predicted = held_out.predicted_ms[rows]
        orders = {slots: tuple(deployed_order(own, predicted, slots)) for slots in (*SLOTS, BEST_OF)}
        figures = dict(summary(times, own, orders[1]))
        figures |= {f"top-{k}": top_k(times, orders[k], k) for k in SLOTS}
        number = int(held_out.operator[rows[0]])
        found.append(Judged(number, held_out.class_of(rows), figures, times, orders))
    return found


def judge_kept(kept: Unfinished, name: str, data: Dataset, make: Make, seed: int, count: int = FOLDS) -> list[Judged]:
    """`judge`, or what is kept of it; ``name`` is the ranker's."""
    part = kept.part(f"{name}, {count} folds, seed {seed}", lambda: packed(judge(data, make, seed, count)))
    return unpacked(part, data)


def packed(run: Sequence[Judged]) -> list[Any]:
    """Without the times, as JSON has it."""
    return [[one.operator, one.kind, one.figures, [[k, *order] for k, order in one.orders.items()]] for one in run]


def unpacked(content: Sequence[Any], data: Dataset) -> list[Judged]:
    """What was `packed`, judged on rows of `data`."""
    return [
        Judged(number, kind, figures, data.ms[data.operator == number], {k: tuple(order) for k, *order in orders})
        for number, kind, figures, orders in content
    ]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the 5th and 95th percentile of its bootstrap over operators."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], rounds: int = 1000, seed: int = 0) -> Interval:
    """Of those values that are finite: a first choice that failed has no regret, equal times have no pairs.  NaN where
    there is none."""
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not len(array):
        return Interval(float("nan"), float("nan"), float("nan"))
    draws = np.random.default_rng(seed).integers(0, len(array), (rounds, len(array)))
    means = array[draws].mean(axis=1)
    return Interval(float(array.mean()), *(float(p) for p in np.percentile(means, (5, 95))))


def judge_all(
    data: Dataset, rankers: Mapping[str, Make], seeds: Sequence[int], count: int, progress: Progress, kept: Unfinished
) -> dict[str, list[list[Judged]]]:
    """Of each ranker and seed every operator once."""
    found = {}
    for number, (name, make) in enumerate(rankers.items()):
        found[name] = [judge_kept(kept, f"ranker {name}", data, make, seed, count) for seed in seeds]
        progress(name, number + 1, len(rankers))
    return found


def compare(
    data: Dataset, rankers: Mapping[str, Make] = RANKERS, seeds: Sequence[int] = range(5), count: int = FOLDS,
    progress: Progress = lambda what, done, of: None, kept: Unfinished | None = None,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """`table_of` the rankers, each of which saw no operator of the structures that it is judged on."""
    return table_of(judge_all(data, rankers, seeds, count, progress, kept or Unfinished()))


def table_of(runs: Mapping[str, Sequence[Sequence[Judged]]]) -> dict[str, dict[str, Any]]:
    """The table of an evaluation: for each ranker the macro figures over operators (means over the seeds) with
    intervals, its worst operator, Pruner's weighted Top-k, and figures by class."""
    means = {name: _mean_figures(own) for name, own in runs.items()}
    table = {name: _line(own, means[name]) for name, own in runs.items()}
    for name, found in means.items():
        if "analytical" in means:
            table[name]["against analytical"] = {
                k: vars_of(interval([found[op][k] - means["analytical"][op][k] for op in found]))
                for k in ("top-1", "top-3")
            }
    return table


def _mean_figures(runs: Sequence[Sequence[Judged]]) -> dict[int, dict[str, float]]:
    found: dict[int, list[Mapping[str, float]]] = {}
    for run in runs:
        for one in run:
            found.setdefault(one.operator, []).append(one.figures)
    return {op: {k: fmean(f[k] for f in figures) for k in figures[0]} for op, figures in found.items()}


def _line(runs: Sequence[Sequence[Judged]], means: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    keys = next(iter(means.values())).keys()
    classes = sorted({one.kind for one in runs[0]})
    kinds = {one.operator: one.kind for one in runs[0]}
    worst = min(means, key=lambda op: means[op]["top-3"])
    pairs = lambda run, slots: [(one.times, one.orders[slots]) for one in run]
    return {
        **{key: vars_of(interval([figures[key] for figures in means.values()])) for key in keys},
        "worst top-3": {"operator": worst, "value": means[worst]["top-3"]},
        **{f"weighted top-{k}": fmean(weighted_top_k(pairs(run, k), k) for run in runs) for k in SLOTS},
        **{f"best-{k}": fmean(weighted_best_k(pairs(run, BEST_OF), BEST_OF, k) for run in runs) for k in SLOTS},
        "seeds' top-3": [fmean(one.figures["top-3"] for one in run) for run in runs],
        "by class": {
            kind: {k: fmean(means[op][k] for op in means if kinds[op] == kind) for k in ("top-1", "top-3", "pairs")}
            for kind in classes
        },
    }


def vars_of(one: Interval) -> dict[str, float]:
    return {"mean": one.mean, "low": one.low, "high": one.high}


def macro(runs: Sequence[Sequence[Judged]]) -> dict[str, float]:
    """Means over operators of the means over runs, and the interval of Top-1."""
    by_operator: dict[int, list[Any]] = {}
    for run in runs:
        for one in run:
            by_operator.setdefault(one.operator, []).append(one.figures)
    keys = ("top-1", "top-3", "top-5", "pairs", "trials")
    found = {k: float(np.nanmean([fmean(f[k] for f in own) for own in by_operator.values()])) for k in keys}
    spread = vars_of(interval([fmean(f["top-1"] for f in own) for own in by_operator.values()]))
    return {**found, "top-1 low": spread["low"], "top-1 high": spread["high"]}
