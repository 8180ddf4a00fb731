"""Distinct memory transactions of regular sets of addresses, counted without listing the addresses.

A set is built from one element by levels: copies of what there is so far at increasing offsets, which do
not overlap it (rows of a tile: elements, then rows, then planes).  Because the copies are sorted, the
distinct transactions of a level are the sum over its copies, minus one for every copy that starts in the
transaction where the one before ends; both follow from the residues of the offsets alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Progression:
    """Offsets 0, step, 2 step, ... (``count`` of them)."""

    count: int
    step: int


Offsets = Progression | tuple[int, ...]
"""Sorted offsets that start with 0: a progression, or listed."""


def offsets_of(values: np.ndarray) -> Offsets:
    """The offsets of sorted distinct `values` from their first."""
    if len(values) == 1:
        return Progression(1, 1)
    steps = np.diff(values)
    if (steps == steps[0]).all():
        return Progression(len(values), int(steps[0]))
    return tuple(int(v) for v in values - values[0])


def scaled(offsets: Offsets, factor: int) -> Offsets:
    """The offsets times a positive factor."""
    if isinstance(offsets, Progression):
        return Progression(offsets.count, offsets.step * factor)
    return tuple(offset * factor for offset in offsets)


def distinct_transactions(levels: Sequence[Offsets], transaction: int) -> np.ndarray:
    """Distinct ``address // transaction`` of the set built from `levels` (innermost first), for each start address
    modulo the transaction: an int64 array [transaction].

    ValueError where a level overlaps what it repeats and the union is no interval.
    """
    counts = np.ones(transaction, dtype=np.int64)
    reach, dense = 0, True
    for level in levels:
        counts, reach, dense = _stack(counts, reach, dense, level, transaction)
    return counts


def _stack(
    counts: np.ndarray, reach: int, dense: bool, level: Offsets, transaction: int
) -> tuple[np.ndarray, int, bool]:
    """One level more: `reach` is the largest offset so far, `dense` whether all up to it are in the set."""
    if isinstance(level, Progression):
        if level.count == 1:
            return counts, reach, dense
        if dense and level.step <= reach + 1:
            reach += level.step * (level.count - 1)
            return (np.arange(transaction) + reach) // transaction + 1, reach, True
        gaps = {level.step: _progression_starts(level, transaction)}
        total = _sum_over(counts, _progression_histogram(level.count, level.step, transaction))
        last = level.step * (level.count - 1)
    else:
        offsets = np.asarray(level)
        gaps = _gap_starts(offsets, transaction)
        total = _sum_over(counts, np.bincount(offsets % transaction, minlength=transaction))
        last = int(offsets[-1])
    if min(gaps) <= reach:
        raise ValueError(f"a level repeats its set every {min(gaps)} elements, inside the set's own reach of {reach}")
    residue = np.arange(transaction)
    for gap, starts in gaps.items():
        shared = (residue + reach) // transaction == (residue + gap) // transaction
        total = total - _sum_over(shared.astype(np.int64), starts)
    return total, reach + last, False


def _progression_histogram(count: int, step: int, transaction: int) -> np.ndarray:
    """How many of the offsets have each residue: whole periods, and the rest."""
    period = transaction // gcd(step, transaction)
    whole, rest = divmod(count, period)
    residues = np.arange(period, dtype=np.int64) * (step % transaction) % transaction
    weights = np.full(period, whole, dtype=np.int64)
    weights[:rest] += 1
    histogram = np.zeros(transaction, dtype=np.int64)
    np.add.at(histogram, residues, weights)
    return histogram


def _progression_starts(level: Progression, transaction: int) -> np.ndarray:
    return _progression_histogram(level.count - 1, level.step, transaction)


def _gap_starts(offsets: np.ndarray, transaction: int) -> dict[int, np.ndarray]:
    """For each distance between neighbours: residues of the offsets that it follows."""
    gaps = np.diff(offsets)
    return {
        int(gap): np.bincount(offsets[:-1][gaps == gap] % transaction, minlength=transaction) for gap in np.unique(gaps)
    }


def _sum_over(values: np.ndarray, histogram: np.ndarray) -> np.ndarray:
    """``sum_h histogram[h] * values[(r + h) % t]`` for each residue r."""
    found = np.flatnonzero(histogram)
    residue = np.arange(len(values))
    return (values[(residue[:, None] + found) % len(values)] * histogram[found]).sum(axis=1)


def convolve_residues(histograms: Sequence[np.ndarray], transaction: int) -> np.ndarray:
    """Histogram of the sum of independent residues."""
    total = np.zeros(transaction, dtype=np.int64)
    total[0] = 1
    for histogram in histograms:
        found = np.flatnonzero(histogram)
        total = sum((np.roll(total, int(h)) * int(histogram[h]) for h in found), np.zeros(transaction, dtype=np.int64))
    return total
