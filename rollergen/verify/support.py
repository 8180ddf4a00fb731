"""Where a trained ranker has seen enough to be asked: the range of its training features, weighted by their use."""

from __future__ import annotations

from functools import lru_cache
from statistics import median

import numpy as np

from rollergen.features import names
from rollergen.hal.dataclass import dataclass

MARGIN = 0.05
"""Share of a feature's range by which it may be exceeded; for counts (in log2) about a tenth of a doubling or more."""

DEVICE_MARGIN = 0.1
"""By how much a rate of the device, which is in log2, may be another than any in training: a machine that is measured
again has another clock and other bandwidths by some percent."""
_RATES = ("B.peak", "B.dram bandwidth", "B.l1 bandwidth", "B.ridge")

ABSTAIN_ABOVE = 0.1
"""Share of the model's gain that may lie in features outside their training range."""

MOST = 0.5
"""Share of the candidates that may differ in a feature that never varied in training."""


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
        return self._beyond(x) @ self.weight

    def objection(self, x: np.ndarray) -> str | None:
        """Why the candidates `x` of one operator are not to be ranked; None where they may.

        An objection is: a class of operator or an input's dtype that was not trained on; a figure of the device beyond
        its training range; a feature that never varied in training, and that is another in most candidates: trees
        cannot have learned what it does, so its weight is 0 and says nothing; and features of more than
        `ABSTAIN_ABOVE` of the model's weight beyond their training range, in the median candidate.
        """
        least, most = np.minimum.reduce(x, axis=0), np.maximum.reduce(x, axis=0)
        low, high = _bounds(self)
        beyond = (least < low) | (most > high)
        kinds, rates = _columns("A.is ", "A.reads "), _columns("B.")
        new = most[kinds] > self.high[kinds]
        if new.any():
            return f"no {names()[kinds[new.argmax()]].split(' ', 1)[1]} was trained on"
        if beyond[rates].any():
            return f"{names()[rates[beyond[rates].argmax()]][2:]} of the device lies outside its training range"
        if not beyond.any():
            return None
        each = self._beyond(x)
        for n in np.flatnonzero(beyond & (self.low == self.high)):
            if each[:, n].mean() > MOST:
                return f"{names()[n][2:]} lies outside its training, in which it never varied"
        if not self.weight[beyond].any():
            return None
        share = median((each @ self.weight).tolist())
        if share <= ABSTAIN_ABOVE:
            return None
        worst = names()[int(np.argmax(each.mean(axis=0) * self.weight))]
        return f"features with {share:.0%} of the model's weight lie outside its training range, such as {worst[2:]}"

    def _beyond(self, x: np.ndarray) -> np.ndarray:
        """Which features of which rows lie beyond their training range."""
        low, high = _bounds(self)
        return (x < low) | (x > high)


@lru_cache(maxsize=8)
def _bounds(support: Support) -> tuple[np.ndarray, np.ndarray]:
    """Of each feature the least and the largest value that is taken for one of training's."""
    margin = MARGIN * (support.high - support.low)
    rates = _columns(*_RATES)
    margin[rates] = np.maximum(margin[rates], DEVICE_MARGIN)
    return support.low - margin - 1e-9, support.high + margin + 1e-9


@lru_cache(maxsize=8)
def _columns(*beginnings: str) -> np.ndarray:
    """Positions of the features whose names begin so."""
    return np.array([n for n, name in enumerate(names()) if name.startswith(beginnings)])
