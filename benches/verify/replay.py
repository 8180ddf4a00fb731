"""How many programs a search measures until it has one near the best: collected measurements, replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from benches.verify.evaluate import interval, vars_of
from benches.verify.metrics import trials_to
from benches.verify.pool import Pool, Search
from benches.verify.search import SEARCHES
from benches.verify.splits import FOLDS, folds
from benches.verify.unfinished import Unfinished
from rollergen.measure.outcome import Progress
from rollergen.verify.dataset import Dataset

BATCH = 8
"""Programs measured between two questions to a search (AutoTVM: 64 of spaces of millions)."""

WITHIN = (0.02, 0.05, 0.1)


def measured_order(search: Search, pool: Pool, seed: int, batch: int = BATCH, most: int | None = None) -> list[int]:
    """The order in which a search measures the pool: all of it or the first `most`, and no further batch once the
    fastest of all was measured."""
    rng = np.random.default_rng(seed)
    done: list[int] = []
    end = len(pool.data) if most is None else min(most, len(pool.data))
    best = int(np.argmin(pool.data.ms))
    while len(done) < end and best not in done:
        plan = search.next(pool, done, min(batch, end - len(done)), rng)
        if not plan or set(plan) & set(done) or len(set(plan)) < len(plan):
            raise ValueError(f"{type(search).__name__} plans {plan} after {len(done)} measurements; expected new ones")
        done += plan
    return done


def measurements_saved(
    data: Dataset, searches: Mapping[str, Callable[[], Search]] = SEARCHES, seeds: Sequence[int] = range(5),
    count: int = FOLDS, progress: Progress = lambda what, done, of: None, kept: Unfinished | None = None,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """For each search the measurements until one is within 2, 5 and 10 % of the best of the operator's programs
    (means over held-out operators and seeds, intervals over operators; also each seed's mean), against the
    analytical order's by operator, and the mean share of the best speed after n measurements."""
    kept = kept or Unfinished()
    table: dict[str, dict[str, Any]] = {}
    own: dict[str, dict[int, list[float]]] = {}
    for number, (name, make) in enumerate(searches.items()):
        runs = [
            {
                number: (needed, np.array(speed))
                for number, needed, speed in kept.part(
                    f"search {name}, {count} folds, seed {seed}", partial(_replayed, data, make, seed, count)
                )
            }
            for seed in seeds
        ]
        own[name] = {op: [fmean(run[op][0][k] for run in runs) for k in range(len(WITHIN))] for op in runs[0]}
        table[name] = {
            f"within {share:.0%}": vars_of(interval([one[k] for one in own[name].values()]))
            for k, share in enumerate(WITHIN)
        }
        table[name]["seeds' within 2%"] = [fmean(one[0][0] for one in run.values()) for run in runs]
        table[name]["speed after"] = np.mean([one[1] for run in runs for one in run.values()], axis=0).tolist()
        progress(name, number + 1, len(searches))
    for name, found in own.items():
        if "analytical" in own:
            saved = [own["analytical"][op][0] - figures[0] for op, figures in found.items()]
            table[name]["saved against analytical"] = vars_of(interval(saved))
    return table


SHOWN = 30
"""Measurements up to which the share of the best speed is told."""


def _replayed(data: Dataset, make: Callable[[], Search], seed: int, count: int) -> list[Any]:
    """Of each operator (its number, measurements until within each of `WITHIN`, the share of the best speed after 1,
    2, ... of them)."""
    found = []
    for train, test in folds(data, count, seed):
        search = make()
        search.fit(data.of(train), seed)
        held = data.of(test)
        for rows in held.operators():
            own = held.of(rows)
            if len(own) < 2 or not own.right.any():
                continue
            number = int(own.operator[0])
            order = measured_order(search, Pool.of(own), 1000 * seed + number)
            best = np.minimum.accumulate(own.ms[order])[:SHOWN]
            best = np.concatenate([best, np.full(SHOWN - len(best), best[-1])])
            speed = (own.ms.min() / best).tolist()
            found.append((number, [trials_to(own.ms, order, share) for share in WITHIN], speed))
    return sorted(found)
