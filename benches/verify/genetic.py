"""A genetic search, which AutoTVM's paper compares itself with (Chen et al., NeurIPS 2018; TVM's ``GATuner``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benches.verify.pool import Pool, decisions_of, left
from rollergen.verify.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Genetic:
    """Children of the programs measured last and of the fastest ones: crossed at one place, mutated, measured.

    A program's genes are its decisions (`decisions_of`).  The first `population` programs are random; then parents
    are drawn from the last `population` measured and the `elite` fastest of all, by their speed; a child has the
    genes of one up to a random place and those of the other after it, and each is replaced with the probability
    `mutation` by one that some program has.  A pool holds few of all combinations: the child stands for the program
    not measured yet that differs from it in the fewest genes.  Elite and mutation as TVM has them; its population of
    100, for spaces of millions, is 16 here.
    """

    population: int = 16
    elite: int = 3
    mutation: float = 0.1

    def fit(self, data: Dataset, seed: int) -> None:
        """Learns nothing of other operators."""

    def next(self, pool: Pool, measured: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
        parents = self._parents(pool.data.ms, measured)
        random = [int(n) for n in rng.permutation(left(pool, measured))]
        if len(measured) < self.population or len(parents) < 2:
            return random[:count]
        genes, found = decisions_of(pool.data), list[int]()
        speed = 1 / pool.data.ms[parents]
        while random and len(found) < count:
            one, other = genes[rng.choice(parents, 2, replace=False, p=speed / speed.sum())]
            child = self._child(one, other, genes, rng)
            nearest = min(random, key=lambda n: int((genes[n] != child).sum()))
            random.remove(nearest)
            found.append(nearest)
        return found

    def _parents(self, ms: np.ndarray, measured: Sequence[int]) -> list[int]:
        """Those that ran and were right, of the last generation and of the fastest."""
        right = [n for n in measured if np.isfinite(ms[n])]
        fastest = sorted(right, key=lambda n: float(ms[n]))[: self.elite]
        return sorted({*right[-self.population :], *fastest})

    def _child(self, one: np.ndarray, other: np.ndarray, genes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        cut = int(rng.integers(genes.shape[1] + 1))
        child = np.concatenate([one[:cut], other[cut:]])
        mutated = np.flatnonzero(rng.random(len(child)) < self.mutation)
        child[mutated] = genes[rng.integers(len(genes), size=len(mutated)), mutated]
        return child
