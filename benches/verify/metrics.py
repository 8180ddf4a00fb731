"""How good an order of programs is, by their measured times.

Times are of one operator's programs, infinite for those that failed; an order is a list of positions, best first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import numpy as np


def top_k(times: np.ndarray, order: Sequence[int], k: int) -> float:
    """Best time of all over the best of the first `k`: 1 is perfect, 0 where all of these failed.  The mean over
    operators is the macro Top-k (Pruner, ASPLOS 2025, section 6, weighs operators by their occurrences)."""
    return float(times.min() / times[list(order[:k])].min())


def best_k(times: np.ndarray, chosen: Sequence[int], k: int) -> float:
    """Best time of all over the k-th fastest of a chosen set (Pruner's Best-k)."""
    ranked = np.sort(times[list(chosen)])
    return float(times.min() / ranked[min(k, len(ranked)) - 1])


def weighted_top_k(pairs: Sequence[tuple[np.ndarray, Sequence[int]]], k: int) -> float:
    """Sum of best times over the sum of the best of each first `k`: Pruner's Top-k with weights of 1."""
    best = sum(float(times.min()) for times, _ in pairs)
    found = sum(float(times[list(order[:k])].min()) for times, order in pairs)
    return best / found


def weighted_best_k(pairs: Sequence[tuple[np.ndarray, Sequence[int]]], size: int, k: int) -> float:
    """Sum of best times over the sum of the k-th fastest among each first `size`: Pruner's Best-k with weights of 1."""
    best = sum(float(times.min()) for times, _ in pairs)
    found = sum(float(times.min()) / max(best_k(times, order[:size], k), 1e-300) for times, order in pairs)
    return best / found


def random_top_k(times: np.ndarray, k: int) -> float:
    """Best time over the expected best of `k` drawn without replacement."""
    ranked = np.sort(times[np.isfinite(times)])
    n, k = len(ranked), min(k, len(ranked))
    expected = sum(comb(n - j, k - 1) * ranked[j - 1] for j in range(1, n - k + 2)) / comb(n, k)
    return float(ranked[0] / expected)


def pairwise_accuracy(times: np.ndarray, scores: np.ndarray, margin: float = 0.0) -> float:
    """Share of pairs, whose times differ by more than `margin`, that the scores (higher: faster) order rightly; a
    tie of scores counts half.  NaN where there is no such pair."""
    right = np.isfinite(times)
    log, score = np.log(times[right]), scores[right]
    a, b = np.triu_indices(len(log), 1)
    differ = np.abs(log[a] - log[b]) > np.log1p(margin)
    if not differ.any():
        return float("nan")
    agree = np.sign(log[a] - log[b]) * np.sign(score[b] - score[a])
    return float(((agree[differ] + 1) / 2).mean())


def ndcg(times: np.ndarray, order: Sequence[int]) -> float:
    """Normalised discounted gain with gains ``2**y - 1``, y = best time over own time."""
    gains = 2 ** (times.min() / times) - 1
    discount = 1 / np.log2(2 + np.arange(len(times)))
    return float((gains[list(order)] * discount).sum() / (np.sort(gains)[::-1] * discount).sum())


def trials_to(times: np.ndarray, order: Sequence[int], within: float = 0.02) -> int:
    """How many programs of the order are measured until one is within this share of the best of all."""
    good = times[list(order)] <= times.min() * (1 + within)
    return int(np.argmax(good)) + 1


def tau(times: np.ndarray, scores: np.ndarray) -> float:
    """Kendall's tau-a of scores (higher: faster) against times."""
    return 2 * pairwise_accuracy(times, scores) - 1


def summary(times: np.ndarray, scores: np.ndarray, order: Sequence[int]) -> Mapping[str, float]:
    """The figures of one operator."""
    return {
        "top-1": top_k(times, order, 1),
        "top-3": top_k(times, order, 3),
        "top-5": top_k(times, order, 5),
        "pairs": pairwise_accuracy(times, scores),
        "ndcg": ndcg(times, order),
        "regret": float(times[order[0]] / times.min() - 1),
        "trials": float(trials_to(times, order)),
    }
