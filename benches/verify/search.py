"""Searches that measure as they go: which programs of a pool are measured next, given those that were.

All stand behind one interface, so that the systems that others published can be compared with a draft that is merely
reordered: a ranker's fixed order, epsilon-greedy, diversity-aware batches, a genetic search, AutoTVM's annealing over
a rank model that learns from the operator's own measurements (Chen et al., NeurIPS 2018), and the same with the
residual of a trained ranker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benches.verify.genetic import Genetic
from benches.verify.pool import Pool, Search, decisions_of, left
from benches.verify.rankers import Analytical, Draft, Random, Ranker, columns_of
from rollergen.verify.dataset import Dataset, joined
from rollergen.verify.rankers import Boosted, lightgbm

PATIENCE = 50
LOOPS = "CEF"
"""Groups of what AutoTVM's models see: loops, their extents and reuse, and relations of these."""


@dataclass
class Ordered:
    """A ranker's order, whatever the measurements say."""

    ranker: Ranker

    def fit(self, data: Dataset, seed: int) -> None:
        self.ranker.fit(data, seed)

    def next(self, pool: Pool, measured: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
        return _best(self.ranker.scores(pool.data), measured)[:count]


@dataclass
class Greedy:
    """A search of which each pick is replaced by a random program with probability `epsilon`."""

    search: Search
    epsilon: float = 0.1

    def fit(self, data: Dataset, seed: int) -> None:
        self.search.fit(data, seed)

    def next(self, pool: Pool, measured: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
        return _some_random(self.search.next(pool, measured, count, rng), pool, measured, self.epsilon, rng)


@dataclass
class Diverse:
    """Of the best ``wider * count`` programs those whose scores and distinct decisions together are the most: greedy
    maximisation of ``sum of scores + alpha * number of distinct values of each decision`` (NeurIPS 2018, equation 3).
    Scores are scaled to a standard deviation of 1, the second term to the number of decisions that vary."""

    ranker: Ranker
    alpha: float = 1.0
    wider: int = 2

    def fit(self, data: Dataset, seed: int) -> None:
        self.ranker.fit(data, seed)

    def next(self, pool: Pool, measured: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
        scores = self.ranker.scores(pool.data)
        return diverse(pool, _best(scores, measured)[: self.wider * count], scores, count, self.alpha)


@dataclass
class Annealed:
    """AutoTVM: trees trained on the operator's own measurements, programs found by parallel annealing on their scores.

    ``base``: a ranker of other operators whose scores the trees correct (transfer by a global model); None: the first
    batch is random.  ``objective``: lambdarank (AutoTVM's rank objective) or residual (squared error of the log of
    time over what the base said).  ``groups``: of the features that the trees see.  ``diversity``: 0: the best;
    above: batches as `Diverse` makes them.
    Trees as AutoTVM has them (depth 3, learning rate 0.3), `chains` x `steps` of annealing as its code.
    """

    base: Ranker | None = None
    objective: str = "lambdarank"
    groups: str = LOOPS
    diversity: float = 0.0
    epsilon: float = 0.05
    chains: int = 128
    steps: int = 500
    trees: int = 30
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {
            "max_depth": 3, "num_leaves": 8, "learning_rate": 0.3, "min_data_in_leaf": 1, "verbosity": -1,
            "min_sum_hessian_in_leaf": 1e-3, "deterministic": True, "force_row_wise": True, "num_threads": 1, "seed": 0,
        }
    )  # fmt: skip

    def fit(self, data: Dataset, seed: int) -> None:
        if self.base is not None:
            self.base.fit(data, seed)

    def next(self, pool: Pool, measured: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
        base = None if self.base is None else self.base.scores(pool.data)
        right = [n for n in measured if np.isfinite(pool.data.ms[n])]
        if base is None and len(right) < 2:
            return [int(n) for n in rng.permutation(left(pool, measured))[:count]]
        scores = self._scores(pool.data, right, base)
        found = annealed(scores, pool.near, self.chains, self.steps, rng)
        best = _best(scores, measured)
        plan = [n for n in best if found[n]] + [n for n in best if not found[n]]
        if self.diversity:
            plan = diverse(pool, plan[: 2 * count], scores, count, self.diversity)
        return _some_random(plan[:count], pool, measured, self.epsilon, rng)

    def corrected(self, measured: Dataset, others: Dataset) -> np.ndarray:
        """Scores of `others`, rows of one operator: the base's, corrected by what its `measured` rows teach."""
        assert self.base is not None
        base = np.concatenate([self.base.scores(measured), self.base.scores(others)])
        right = np.flatnonzero(measured.right).tolist()
        return self._scores(joined(measured, others), right, base)[len(measured) :]

    def _scores(self, data: Dataset, right: Sequence[int], base: np.ndarray | None) -> np.ndarray:
        """The base's, corrected by what trees learn from the measured rows."""
        if len(right) < 2:
            assert base is not None
            return base
        x, times = data.x[:, list(columns_of(*self.groups))], data.ms[list(right)]
        start = None if base is None else base[list(right)]
        if self.objective == "lambdarank":
            labels = np.round(30 * times.min() / times)
            chosen = {"objective": "lambdarank", "label_gain": [2 ** (i / 30) - 1 for i in range(31)]}
            own = self._grown(chosen, x[list(right)], labels, start, [len(right)]).predict(x, num_threads=1)
            return own if base is None else base + own
        assert start is not None
        gap = -np.log(times) - start
        own = self._grown({"objective": "regression"}, x[list(right)], gap - gap.mean(), None, None)
        return np.asarray(base + own.predict(x, num_threads=1))

    def _grown(
        self, chosen: Mapping[str, Any], x: np.ndarray, target: np.ndarray, start: Any, group: list[int] | None
    ) -> Any:
        package = lightgbm()
        train = package.Dataset(x, target, init_score=start, group=group, params={"min_data_in_bin": 1})
        return package.train({**self.parameters, **chosen}, train, self.trees)


def annealed(scores: np.ndarray, near: np.ndarray, chains: int, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Mask of the programs that parallel simulated annealing accepted: `chains` walks of `steps` steps to random
    neighbours, the temperature falling linearly from 1 to 0; scores are scaled to a standard deviation of 1.  It ends
    early after `PATIENCE` steps that found no program for the first time."""
    scaled = (scores - scores.mean()) / max(float(scores.std()), 1e-12)
    at = rng.integers(0, len(scores), chains)
    seen = np.zeros(len(scores), dtype=bool)
    seen[at] = True
    known, last = int(seen.sum()), 0
    for step in range(steps):
        other = near[at, rng.integers(0, near.shape[1], chains)]
        gain = (scaled[other] - scaled[at]) / max(1 - step / steps, 1e-9)
        at = np.where(rng.random(chains) < np.exp(np.minimum(gain, 0.0)), other, at)
        seen[at] = True
        if (found := int(seen.sum())) > known:
            known, last = found, step
        if step - last >= PATIENCE or known == len(scores):
            break
    return seen


def diverse(pool: Pool, among: Sequence[int], scores: np.ndarray, count: int, alpha: float) -> list[int]:
    """`count` of the positions `among`, greedily: see `Diverse`."""
    if not len(among):
        return []
    decisions = decisions_of(pool.data)
    decisions = decisions[:, (decisions != decisions[0]).any(axis=0)]
    scaled = scores / max(float(scores.std()), 1e-12)
    left, chosen = list(among), []
    seen: list[set[float]] = [set() for _ in range(decisions.shape[1])]
    for _ in range(min(count, len(left))):
        new = [sum(v not in s for v, s in zip(decisions[n], seen, strict=True)) for n in left]
        total = [scaled[n] + alpha * fresh / max(1, len(seen)) for n, fresh in zip(left, new, strict=True)]
        pick = left.pop(int(np.argmax(total)))
        chosen.append(pick)
        for value, known in zip(decisions[pick], seen, strict=True):
            known.add(float(value))
    return chosen


def _best(scores: np.ndarray, measured: Sequence[int]) -> list[int]:
    done = set(measured)
    return [int(n) for n in np.argsort(-scores, kind="stable") if int(n) not in done]


def _some_random(
    plan: Sequence[int], pool: Pool, measured: Sequence[int], epsilon: float, rng: np.random.Generator
) -> list[int]:
    """The plan, each pick of which is with probability `epsilon` one of those that neither it nor a measurement has."""
    found = list(plan)
    others = [int(n) for n in rng.permutation(left(pool, [*measured, *plan]))]
    for place in range(len(found)):
        if others and rng.random() < epsilon:
            found[place] = others.pop()
    return found


SEARCHES: Mapping[str, Callable[[], Search]] = {
    "random": lambda: Ordered(Random()),
    "draft (Pruner)": lambda: Ordered(Draft()),
    "analytical": lambda: Ordered(Analytical()),
    "verifier": lambda: Ordered(Boosted()),
    "verifier, epsilon-greedy": lambda: Greedy(Ordered(Boosted())),
    "verifier, diverse batches": lambda: Diverse(Boosted()),
    "verifier, online residual": lambda: Annealed(Boosted(), "residual", "CDEFGH", epsilon=0.0),
    "genetic": Genetic,
    "AutoTVM": Annealed,
    "AutoTVM, diverse batches": lambda: Annealed(diversity=1.0),
    "AutoTVM, transfer": lambda: Annealed(Boosted("lambdarank", columns_of(*LOOPS), trees=150)),
}
"""What an evaluation compares; without a verifier: random, draft, analytical, genetic, AutoTVM."""
