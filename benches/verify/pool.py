"""What searches choose from: the programs of one operator that can be measured, and the interface of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benches.verify.rankers import columns_of
from rollergen.verify.dataset import Dataset

NEIGHBOURS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Programs of one operator, of which any can be measured.

    ``data``: their rows; a search reads the times of those only that it measured.  ``near``: for each row positions
    of its neighbours, int (rows, neighbours): those that one step of annealing may move to.
    """

    data: Dataset
    near: np.ndarray

    @staticmethod
    def of(data: Dataset) -> Pool:
        """Neighbours are the programs that differ in the fewest decisions (features of groups C and G)."""
        decisions = decisions_of(data)
        differ = (decisions[:, None, :] != decisions[None, :, :]).sum(axis=2)
        np.fill_diagonal(differ, decisions.shape[1] + 1)
        return Pool(data, np.argsort(differ, axis=1, kind="stable")[:, : max(1, min(NEIGHBOURS, len(data) - 1))])


class Search(Protocol):
    """Fitted once on other operators, then asked again and again for the next programs of a pool."""

    def fit(self, data: Dataset, seed: int) -> None:
        """Learns from the rows of other operators that passed their check."""

    def next(self, pool: Pool, measured: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
        """At most `count` positions of the pool that were not measured yet, best first."""


def decisions_of(data: Dataset) -> np.ndarray:
    """What tells one program of an operator from another (features of groups C and G): a row for each."""
    return data.x[:, list(columns_of("C", "G"))]


def left(pool: Pool, measured: Sequence[int]) -> np.ndarray:
    return np.setdiff1d(np.arange(len(pool.data)), np.asarray(measured, dtype=int))
