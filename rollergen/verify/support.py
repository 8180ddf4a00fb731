"""Where a trained ranker has seen enough to be asked: the range of its training features, weighted by their use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollergen.verify.features import names

MARGIN = 0.05
"""Share of a feature's range by which it may be exceeded; for counts (in log2) about a tenth of a doubling or more."""

ABSTAIN_ABOVE = 0.1
"""Share of the model's gain that may lie in features outside their training range."""


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """``low`` and ``high`` of each feature in training; ``weight``: its share of the gain of all splits."""

    low: np.ndarray
    high: np.ndarray
    weight: np.ndarray

    @staticmethod
    def of(x: np.ndarray, gain: np.ndarray) -> Support:
        total = float(gain.sum())
        return Support(x.min(axis=0), x.max(axis=0), gain / total if total > 0 else np.zeros_like(gain))

    def widened(self, x: np.ndarray, gain: np.ndarray) -> Support:
        """That of a model that was trained on these rows too."""
        own = Support.of(x, gain)
        return Support(np.minimum(self.low, own.low), np.maximum(self.high, own.high), own.weight)

    def outside(self, x: np.ndarray) -> np.ndarray:
        """For each row the weight of the features beyond their training range."""
        margin = MARGIN * (self.high - self.low)
        beyond = (x < self.low - margin - 1e-9) | (x > self.high + margin + 1e-9)
        return beyond @ self.weight

    def objection(self, x: np.ndarray) -> str | None:
        """Why the candidates `x` of one operator are not to be ranked; None where they may."""
        new = [n for n, name in enumerate(names()) if name.startswith("A.is ") and (x[:, n] > self.high[n]).any()]
        if new:
            return f"no {names()[new[0]].removeprefix('A.is ')} was trained on"
        share = float(np.median(self.outside(x)))
        if share <= ABSTAIN_ABOVE:
            return None
        beyond = (x < self.low) | (x > self.high)
        worst = names()[int(np.argmax(beyond.mean(axis=0) * self.weight))]
        return f"features with {share:.0%} of the model's weight lie outside its training range, such as {worst[2:]}"
