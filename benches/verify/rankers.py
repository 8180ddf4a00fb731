"""Rankers behind one interface, by name: the analytical orders, trees trained on records, and published systems' own.

A ranker gives scores, higher for programs that it takes for faster; scores of different operators are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from benches.verify.pacm import Attentive
from rollergen.errors import ArgumentError, DeviceError
from rollergen.features import names
from rollergen.optional import optional
from rollergen.verify.dataset import Dataset
from rollergen.verify.rankers import Boosted


class Fitted(Protocol):
    """Asked for an order."""

    def scores(self, data: Dataset) -> np.ndarray:
        """One score for each row."""


class Ranker(Fitted, Protocol):
    """Fitted once, then asked."""

    def fit(self, data: Dataset, seed: int) -> None:
        """Learns from the rows that passed their check."""


class Analytical:
    """The micro-performance model's own order."""

    def fit(self, data: Dataset, seed: int) -> None:
        pass

    def scores(self, data: Dataset) -> np.ndarray:
        return -np.log(data.predicted_ms)


class Draft:
    """Pruner's symbol-penalty drafter (ASPLOS 2025, section 4.1)."""

    def fit(self, data: Dataset, seed: int) -> None:
        pass

    def scores(self, data: Dataset) -> np.ndarray:
        return -data.x[:, names().index("D.draft latency")]


class Random:
    """Any order, by the seed."""

    def fit(self, data: Dataset, seed: int) -> None:
        self._seed = seed

    def scores(self, data: Dataset) -> np.ndarray:
        return np.random.default_rng(self._seed).random(len(data))


def columns_of(*groups: str) -> tuple[int, ...]:
    """Positions of the features of some groups (letters)."""
    return tuple(n for n, name in enumerate(names()) if name[0] in groups)


RANKERS: Mapping[str, Callable[[], Ranker]] = {
    "random": Random,
    "analytical": Analytical,
    "draft": Draft,
    "regression": lambda: Boosted("regression"),
    "autotvm": lambda: Boosted("lambdarank", columns_of("F")),
    "lambdarank": lambda: Boosted("lambdarank"),
    "residual": lambda: Boosted("residual"),
    "cautious": lambda: Boosted("cautious"),
    "foremost": lambda: Boosted("foremost"),
    "pacm": Attentive,
}
"""By the names that the command line takes; autotvm: rank trees on relation features (NeurIPS 2018, section 3); pacm:
attention over the dataflow (`pacm.Attentive`)."""

_UNTRAINED = ("random", "analytical", "draft")


def chosen(names: Sequence[str] = ()) -> tuple[dict[str, Callable[[], Ranker]], dict[str, str]]:
    """(the rankers of these names, what was left out and why); without names: all whose packages are installed.

    Raises ArgumentError for a name that there is not, DeviceError for one whose package is missing.
    """
    if unknown := [name for name in names if name not in RANKERS]:
        raise ArgumentError(f"there is no ranker {unknown[0]!r}; expected one of {', '.join(RANKERS)}")
    found, left_out = {}, {}
    for name in names or RANKERS:
        module, extra = ("torch", "pacm") if name == "pacm" else ("lightgbm", "verify")
        try:
            if name not in _UNTRAINED:
                optional(module, extra)
        except DeviceError as error:
            if names:
                raise
            left_out[name] = str(error)
        else:
            found[name] = RANKERS[name]
    return found, left_out
