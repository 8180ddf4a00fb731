"""Which few programs serve many sizes: chosen by how much longer than the best each takes at each size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

CLOSE = 1.05
"""Times the best constructed prediction: programs that are closer are not told apart (measured: first choices at 114
sizes are 26 to 83 programs, most within 5 % of each other)."""
FAR = 1.075
"""Times the best: from here on a size counts as badly served."""
_NONE = 1e6
"""As a loss: of sizes that no program serves yet."""
_MEAN, _ORDERS = 2.0, 0.2
"""What the mean loss of all sizes weighs beside the share that is served badly, and that of all orders of magnitude: 16
of 4,096 sizes are nothing in the former, and a linear layer on an H200 would take 2.8 times as long at the smallest."""
_TRIES = 100
"""Choices of which some programs are changed at random, then exchanged again."""


def cover(
    loss: np.ndarray, most: int, weights: np.ndarray | None = None, orders: np.ndarray | None = None
) -> list[int]:
    """At most `most` rows that serve every column well: in each column the least of them is close to 1.  The row that
    helps most is taken, until no column is far; then rows are exchanged while that improves the choice.

    Better is what serves fewer columns badly (`FAR`) and less time in the mean of all, and of all orders of magnitude.
    ``loss``: seconds of each plan over the best's [plans, sizes]; ``weights``: of the sizes; ``orders``: of these in
    the mean over the orders of magnitude.
    """
    weights = np.ones(loss.shape[1]) if weights is None else weights
    orders = weights if orders is None else orders
    logs = np.log(np.clip(loss, 1.0, _NONE))
    share = weights / weights.sum()
    mean = _MEAN * share + _ORDERS * orders / orders.sum()
    chosen: list[int] = []
    least = np.full(loss.shape[1], np.inf)
    while len(chosen) < most and (not chosen or least.max() > np.log(CLOSE)):
        with_one = np.minimum(logs, least)
        number = int((with_one**2 @ mean + 1e-9 * with_one.sum(axis=1)).argmin())
        if number in chosen:
            break
        chosen.append(number)
        least = np.minimum(least, logs[number])
    return _exchanged(chosen, logs, lambda found: (found > np.log(FAR)) @ share + found @ mean)


def _exchanged(chosen: list[int], logs: np.ndarray, badness: Callable[[np.ndarray], np.ndarray]) -> list[int]:
    """The rows after exchanges, from here and from neighbours of the best ones found; always the same ones."""
    draw = np.random.default_rng(0)
    best, least = _descended(chosen, logs, badness)
    for _ in range(_TRIES if len(chosen) > 1 and len(logs) > len(chosen) else 0):
        other = list(best)
        for place in draw.choice(len(best), min(len(best), int(draw.integers(2, 5))), replace=False):
            other[place] = int(draw.integers(len(logs)))
        other, found = _descended(other, logs, badness)
        if found < least - 1e-12:
            best, least = other, found
    return best


def _descended(
    chosen: Sequence[int], logs: np.ndarray, badness: Callable[[np.ndarray], np.ndarray]
) -> tuple[list[int], float]:
    """The rows after exchanges of one for another, as long as one helps."""
    rows = list(chosen)
    far, before = float(badness(logs[rows].min(axis=0)[None])[0]), np.inf
    while far < before:
        before = far
        for place in range(len(rows)):
            others = logs[[*rows[:place], *rows[place + 1 :]]].min(axis=0, initial=np.log(_NONE))
            each = badness(np.minimum(logs, others))
            if each.min() < far - 1e-12:
                rows[place], far = int(each.argmin()), float(each.min())
    return rows, far


def of_orders(counts: Sequence[int]) -> np.ndarray:
    """Weights of ascending counts by which each order of magnitude counts alike: the logarithm's share of each."""
    logs = np.log(np.array(counts, np.float64))
    middles = (logs[1:] + logs[:-1]) / 2
    return np.diff(np.array([logs[0], *middles, logs[-1]])) + 1e-6
