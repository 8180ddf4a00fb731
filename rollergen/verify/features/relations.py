"""Group F: AutoTVM's relation features (NeurIPS 2018, section 3.2): the largest reuse, and the largest trip count
from outside, among loops whose touched count is at most a threshold."""

from __future__ import annotations

import numpy as np

from rollergen.verify.features.batch import NO_LOOP, Batch, slog
from rollergen.verify.features.table import OPERANDS

THRESHOLDS = tuple(1 << n for n in range(0, 19, 2))
_LIMITS = np.array(THRESHOLDS)
RELATIONS = tuple(
    f"{name} {what} of count {threshold}"
    for name in OPERANDS for what in ("reuse", "topdown") for threshold in THRESHOLDS
)  # fmt: skip


def relation_features(batch: Batch) -> np.ndarray:
    """(programs, `RELATIONS`).

    Counts and reuses fall inward and trips from outside grow: of the loops within a threshold the outermost has the
    largest reuse, the innermost of all the most trips.
    """
    loops = (batch.kind != NO_LOOP).any(axis=1)[:, None] & (batch.own.itemsize > 0)
    within = batch.count[:, :, None] <= _LIMITS[:, None]
    there = loops[:, :, None] & within[..., -1]
    programs, operands, _ = there.shape
    rows, columns = np.arange(programs)[:, None, None], np.arange(operands)[:, None]
    reuse = batch.reuse[rows, columns, within.argmax(axis=3)]
    trips = batch.topdown[:, -1, None, None]
    largest = np.stack([np.where(there, one, 0.0) for one in (reuse, trips)], axis=2)
    return slog(largest).reshape(programs, -1)
