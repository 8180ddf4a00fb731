"""Transfer curves: trained on operators A, used on B, by how many programs of each operator of B were measured.

B are operators of structures that A has not, whole classes that A has not, or other shapes of structures that A has.
Of each operator of B up to ``max(LOCAL)`` programs, at most half, are set aside to be measured; the others are ranked,
the same ones for every method and count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benches.verify.evaluate import judged, macro, packed, unpacked
from benches.verify.rankers import Analytical, Ranker
from benches.verify.search import Annealed
from benches.verify.splits import SPLITS
from benches.verify.unfinished import Unfinished
from rollergen.measure.outcome import Progress
from rollergen.verify.dataset import Dataset, joined
from rollergen.verify.rankers import LEAST_LOCAL, Boosted

LOCAL = (0, 3, 5, 10, 20)
METHODS = ("analytical", "alone", "source", "together", "continued", "online")
"""The model; trees of the measured programs alone, of A alone, of both; A's trees with more of the measured programs
(`Boosted.update`); A's order corrected by trees of each operator's own measurements (`search.Annealed`)."""


@dataclass
class Online:
    """A fitted ranker whose scores are corrected, operator by operator, by trees of the rows measured of it."""

    base: Ranker
    local: Dataset

    def fit(self, data: Dataset, seed: int) -> None:
        """Nothing: the trees grow when scores are asked for."""

    def scores(self, data: Dataset) -> np.ndarray:
        found = self.base.scores(data)
        search = Annealed(self.base, "residual", "CDEFGH")
        for rows in data.operators():
            own = self.local.of(self.local.operator == data.operator[rows[0]])
            found[rows] = search.corrected(own, data.of(rows))
        return found


def curve(
    data: Dataset, objective: str, seeds: Sequence[int], split: str, progress: Progress = lambda what, done, of: None,
    kept: Unfinished | None = None,
) -> dict[str, dict[str, dict[str, float]]]:  # fmt: skip
    """Macro figures by method and by count of `LOCAL`; at 0 the last three are the source alone, and "alone" is the
    model."""
    kept, runs = kept or Unfinished(), []
    for number, seed in enumerate(seeds):
        name = f"{objective}, transfer to {split}, seed {seed}"
        runs.append(kept.part(name, partial(_lines, data, objective, seed, split)))
        progress(f"transfer, {split}", number + 1, len(seeds))
    key = lambda method, count: [unpacked(run[f"{method} {count}"], data) for run in runs]
    return {method: {str(n): macro(key(method, n)) for n in LOCAL} for method in METHODS}


def _lines(data: Dataset, objective: str, seed: int, split: str) -> dict[str, list[Any]]:
    """What was judged, without orders, by method and count."""
    lines: dict[str, list[Any]] = {}
    for train, test in SPLITS[split](data, seed):
        for (method, count), found in _judged(data, objective, seed, train, test):
            bare = [replace(one, orders={}) for one in found]
            lines.setdefault(f"{method} {count}", []).extend(packed(bare))
    return lines


def _judged(
    data: Dataset, objective: str, seed: int, train: np.ndarray, test: np.ndarray
) -> Iterator[tuple[tuple[str, int], list[Any]]]:
    source, target = data.of(train), data.of(test)
    base = Boosted(objective)
    base.fit(source, seed)
    places = _set_aside(target, max(LOCAL), seed)
    held = target.of(places < 0)
    for count in LOCAL:
        local = target.of((places >= 0) & (places < count))
        for method in METHODS:
            ranker = _ranker(method, base, source, local, objective, seed) if count else _unmeasured(method, base)
            yield (method, count), judged(ranker, held)


def _unmeasured(method: str, base: Boosted) -> Ranker:
    return Analytical() if method in ("analytical", "alone") else base


def _ranker(method: str, base: Boosted, source: Dataset, local: Dataset, objective: str, seed: int) -> Ranker:
    if method == "analytical":
        return Analytical()
    if method == "source":
        return base
    if method == "online":
        return Online(base, local)
    if method == "continued":
        ranker = copy(base)
        ranker.update(local, seed)
        return ranker
    if method == "alone" and local.right.sum() < LEAST_LOCAL:
        return Analytical()
    ranker = Boosted(objective)
    ranker.fit(local if method == "alone" else joined(source, local), seed)
    return ranker


def _set_aside(target: Dataset, most: int, seed: int) -> np.ndarray:
    """Of each row its place among the measured ones of its operator; -1: it is ranked."""
    rng = np.random.default_rng(seed)
    places = np.full(len(target), -1)
    for rows in target.operators():
        chosen = rng.permutation(rows)[: min(most, len(rows) // 2)]
        places[chosen] = np.arange(len(chosen))
    return places
