"""The ranker of a verifier: LightGBM trained on records.

It gives scores, higher for programs that it takes for faster; scores of different operators are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.optional import optional
from rollergen.verify.dataset import Dataset
from rollergen.verify.model_text import VerifierError
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, RESIDUALS, SHRUNK

LEAST_RECORDS, LEAST_OPERATORS = 300, 6
"""Below either a trained ranker keeps the analytical order."""


PARAMETERS: Mapping[str, Any] = {
    "num_leaves": 15, "learning_rate": 0.05, "min_data_in_leaf": 5, "verbosity": -1, "deterministic": True,
    "force_row_wise": True, "num_threads": 1, "feature_fraction": 0.5, "bagging_fraction": 0.8, "bagging_freq": 1,
}  # fmt: skip
TREES = 300

CAUTIOUS: Mapping[str, Any] = {"min_data_in_leaf": 30}
CAUTIOUS_TREES = 100
SHRINKAGE = 0.5
"""Of the objective "cautious": fewer trees with larger leaves, and only half of the residual that they find: on
structures that nobody trained on, half of it is right."""

FOREMOST = 2.0
"""Of the objective "foremost": a program weighs as (the operator's best predicted time / its own) to this power, for
only errors among those that the model puts in front change what is measured first."""

LOCAL: Mapping[str, Any] = {"min_data_in_leaf": 2, "num_leaves": 7}
LOCAL_TREES = 60
LEAST_LOCAL = 4
"""Of an update by a few measurements: smaller trees with smaller leaves."""


def lightgbm() -> Any:
    """The package; DeviceError that says how to install it."""
    return optional("lightgbm", "verify")


@dataclass
class Boosted:
    """Boosted trees.

    ``objective``: residual (squared error of the log of time over predicted time, centred by operator), cautious
    (the same, see `CAUTIOUS`), foremost (as cautious, see `FOREMOST`), regression (squared error of the log of time
    over the operator's best) or lambdarank (labels ``round(30 best / time)``, gains ``2**(label / 30) - 1``).
    ``columns``: positions of the features used; None: all.  ``members``: models with other seeds whose scores are
    averaged.
    """

    objective: str = DEFAULT_OBJECTIVE
    columns: tuple[int, ...] | None = None
    members: int = 1
    trees: int = TREES
    boosters: list[Any] = field(default_factory=list)

    def fit(self, data: Dataset, seed: int) -> None:
        """Raises VerifierError for fewer than two rows that passed."""
        data = data.of(np.argsort(data.operator, kind="stable"))
        data = data.of(data.right)
        if len(data) < 2:
            raise VerifierError(f"{len(data)} records that passed their check; expected at least 2 to train trees on")
        self.boosters = [self._fitted(data, 100 * seed + member) for member in range(self.members)]

    def update(self, data: Dataset, seed: int, trees: int = LOCAL_TREES) -> None:
        """Boosting continued: `trees` more, on what those of `fit` leave of rows measured since, such as a few of
        the operator or of the device that is to be ranked.  Fewer than `LEAST_LOCAL` rows change nothing."""
        data = data.of(np.argsort(data.operator, kind="stable"))
        data = data.of(data.right)
        if len(data) >= LEAST_LOCAL:
            numbered = enumerate(self.boosters)
            self.boosters = [self._fitted(data, 100 * seed + number, one, trees) for number, one in numbered]

    def _fitted(self, data: Dataset, seed: int, base: Any = None, trees: int | None = None) -> Any:
        package = lightgbm()
        _, sizes = np.unique(data.operator, return_counts=True)
        cautious = self.objective in SHRUNK
        chosen = {**PARAMETERS, "seed": seed, **(LOCAL if base is not None else CAUTIOUS if cautious else {})}
        if self.objective == "lambdarank":
            gains = [2 ** (i / 30) - 1 for i in range(31)]
            chosen |= {"objective": "lambdarank", "lambdarank_truncation_level": 50, "label_gain": gains}
            train = package.Dataset(self._x(data), _labels(data), group=sizes)
        else:
            chosen |= {"objective": "regression"}
            weights = _weights(data, FOREMOST if self.objective == "foremost" else 0.0)
            train = package.Dataset(self._x(data), self._target(data, weights), weight=weights)
        rounds = trees or (min(self.trees, CAUTIOUS_TREES) if cautious else self.trees)
        return package.train(chosen, train, rounds, init_model=base)

    def _target(self, data: Dataset, weights: np.ndarray) -> np.ndarray:
        log = np.log(data.ms)
        residual = self.objective in RESIDUALS
        if residual:
            log = log - np.log(data.predicted_ms)
        for rows in data.operators():
            log[rows] -= np.average(log[rows], weights=weights[rows]) if residual else log[rows].min()
        return log

    def _x(self, data: Dataset) -> np.ndarray:
        return data.x if self.columns is None else data.x[:, list(self.columns)]

    def member_scores(self, data: Dataset) -> np.ndarray:
        """(members, rows)."""
        found = np.array([booster.predict(self._x(data), num_threads=1) for booster in self.boosters])
        return scores_of(self.objective, found, data.predicted_ms)

    def scores(self, data: Dataset) -> np.ndarray:
        return self.member_scores(data).mean(axis=0)


def share_of(objective: str) -> float:
    """What of the trees' sum enters the scores."""
    return SHRINKAGE if objective in SHRUNK else 1.0


def scores_of(objective: str, raw: np.ndarray, predicted_ms: np.ndarray) -> np.ndarray:
    """Scores (higher: faster) from what the trees of an objective say."""
    if objective == "lambdarank":
        return raw
    if objective not in RESIDUALS:
        return -raw
    return -(share_of(objective) * raw + np.log(predicted_ms))


def _weights(data: Dataset, power: float) -> np.ndarray:
    """Weights that give every operator the same say, however many programs it has; within it see `FOREMOST`."""
    weights = data.predicted_ms**-power
    for rows in data.operators():
        weights[rows] /= weights[rows].sum()
    return weights * len(data) / weights.sum()


def _labels(data: Dataset) -> np.ndarray:
    labels = np.zeros(len(data))
    for rows in data.operators():
        labels[rows] = np.round(30 * data.ms[rows].min() / data.ms[rows])
    return labels


def deployed_order(scores: np.ndarray, predicted_ms: np.ndarray, slots: int) -> list[int]:
    """Positions, best first, of which the first `slots` are measured: from three slots on the last of them is the
    analytical model's first choice, unless it is among them already."""
    order = [int(position) for position in np.argsort(-scores, kind="stable")]
    first = int(np.argmin(predicted_ms))
    if slots >= 3 and first not in order[:slots]:
        order.remove(first)
        order.insert(slots - 1, first)
    return order
