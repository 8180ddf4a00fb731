"""How well predicted times rank measured ones: ties count as no skill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Ranking:
    """Agreement of predictions with measurements of one space.

    ``tau``: Kendall's tau-b; ``ordered``: share of the pairs more than 10 % apart that are in the right order (a tie
    is half right); ``top1``, ``top10``: expected best measured time among the first 1 and 10 predicted, ties drawn at
    random, over the best of all; ``error``: median |log(predicted / measured)| after removing its median; ``bias``:
    that median; ``best``: tau among the fastest twentieth of what was measured; ``tied``: programs that are predicted
    as fast as the first.
    """

    programs: int
    tau: float
    ordered: float
    top1: float
    top10: float
    error: float
    bias: float
    best: float = 0.0
    tied: int = 1


def rank(predicted: Sequence[float], measured: Sequence[float]) -> Ranking:
    p, m = np.asarray(predicted, dtype=float), np.asarray(measured, dtype=float)
    tau, ordered = agreement(p, m)
    best = m <= np.quantile(m, BEST)
    log = np.log(p / m)
    return Ranking(
        len(p), tau, ordered, regret(p, m, 1), regret(p, m, 10),
        float(np.median(np.abs(log - np.median(log)))), float(np.exp(np.median(log))),
        agreement(p[best], m[best])[0], int((p == p.min()).sum()),
    )  # fmt: skip


BEST = 0.05


def agreement(p: np.ndarray, m: np.ndarray) -> tuple[float, float]:
    """(tau-b, 0 where all are predicted alike; share of the pairs more than 10 % apart that are in the right order)."""
    concordance, p_untied, m_untied, right, apart = 0.0, 0, 0, 0.0, 0
    for i in range(len(p) - 1):
        sign_p, sign_m = np.sign(p[i + 1 :] - p[i]), np.sign(m[i + 1 :] - m[i])
        concordance += float((sign_p * sign_m).sum())
        p_untied += int((sign_p != 0).sum())
        m_untied += int((sign_m != 0).sum())
        far = np.abs(np.log(m[i + 1 :] / m[i])) > np.log(1.1)
        right += float(((sign_p * sign_m)[far] / 2 + 0.5).sum())
        apart += int(far.sum())
    return concordance / max(float(np.sqrt(p_untied * m_untied)), 1.0), right / max(apart, 1)


def regret(predicted: np.ndarray, measured: np.ndarray, k: int) -> float:
    """Expected best measured time of the `k` first predicted, ties at random, over the best of all."""
    order = np.argsort(predicted, kind="stable")
    k = min(k, len(order))
    limit = predicted[order[k - 1]]
    sure = measured[predicted < limit]
    tied = np.sort(measured[predicted == limit])
    draws = k - len(sure)
    best = float(sure.min()) if len(sure) else np.inf
    expected, left = 0.0, 1.0
    for i, value in enumerate(tied):
        chance = left * draws / (len(tied) - i) if len(tied) - i > draws else left
        expected += chance * min(best, float(value))
        left -= chance
    return expected / float(measured.min())
