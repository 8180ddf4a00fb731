"""Rankers trained on A, used on B, with a few measurements of B: operators, shapes and devices.

Every method gets the same rows: ``source`` of A, ``local`` the measured ones of B (their number may be 0), and ranks
what of B was not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benches.verify.rankers import Analytical, Ranker
from rollergen.verify.dataset import Dataset, joined
from rollergen.verify.rankers import LEAST_LOCAL, Boosted

Method = Callable[[Dataset, Dataset, int], Ranker]


@dataclass
class Rescaled:
    """The model's times as ``a * predicted ** b``, fitted to the local rows: no other order, a smaller error."""

    offset: float = 0.0
    power: float = 1.0

    def fit(self, data: Dataset, seed: int) -> None:
        data = data.of(data.right)
        if len(data) >= LEAST_LOCAL:
            self.power, self.offset = (float(v) for v in np.polyfit(np.log(data.predicted_ms), np.log(data.ms), 1))
            if self.power <= 0:
                self.power, self.offset = 1.0, float(np.mean(np.log(data.ms / data.predicted_ms)))

    def scores(self, data: Dataset) -> np.ndarray:
        return -(self.offset + self.power * np.log(data.predicted_ms))


def _analytical(source: Dataset, local: Dataset, seed: int) -> Ranker:
    return Analytical()


def _rescaled(source: Dataset, local: Dataset, seed: int) -> Ranker:
    ranker = Rescaled()
    ranker.fit(local, seed)
    return ranker


def _local(source: Dataset, local: Dataset, seed: int) -> Ranker:
    """Trees of B's rows alone; the model where these are too few."""
    ranker = Boosted("residual")
    if local.right.sum() < 2 * LEAST_LOCAL:
        return Analytical()
    ranker.fit(local, seed)
    return ranker


def trained(objective: str, how: str) -> Method:
    """``how``: "source" ignores the local rows, "together" trains on both at once, "continued" updates by them."""

    def method(source: Dataset, local: Dataset, seed: int) -> Ranker:
        ranker = Boosted(objective)
        ranker.fit(joined(source, local) if how == "together" else source, seed)
        if how == "continued":
            ranker.update(local, seed)
        return ranker

    return method


METHODS: Mapping[str, Method] = {
    "analytical": _analytical,
    "rescaled": _rescaled,
    "local residual": _local,
    "source regression": trained("regression", "source"),
    "source lambdarank": trained("lambdarank", "source"),
    "source residual": trained("residual", "source"),
    "residual, together": trained("residual", "together"),
    "residual, continued": trained("residual", "continued"),
    "cautious, continued": trained("cautious", "continued"),
}


def drawn(data: Dataset, count: int, seed: int) -> np.ndarray:
    """Mask of `count` rows of each operator (at most half of them), drawn at random."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(data), dtype=bool)
    for rows in data.operators():
        chosen[rng.permutation(rows)[: min(count, len(rows) // 2)]] = True
    return chosen
