"""Group F: AutoTVM's relation features (NeurIPS 2018, section 3.2): the largest reuse, and the largest trip count
from outside, among loops whose touched count is at most a threshold."""

from __future__ import annotations

import numpy as np

from rollergen.verify.features.batch import NO_LOOP, Batch, slog
from rollergen.verify.features.table import OPERANDS

THRESHOLDS = tuple(1 << n for n in range(0, 19, 2))
RELATIONS = tuple(
    f"{name} {what} of count {threshold}"
    for name in OPERANDS for what in ("reuse", "topdown") for threshold in THRESHOLDS
)  # fmt: skip


def relation_features(batch: Batch) -> np.ndarray:
    """(programs, `RELATIONS`)."""
    loops = (batch.kind != NO_LOOP)[:, None] & (batch.own.itemsize > 0)[:, :, None]
    below = loops[:, :, None] & (batch.count[:, :, None] <= np.array(THRESHOLDS)[:, None])
    both = (batch.reuse[:, :, None], batch.topdown[:, None, None])
    largest = np.stack([np.where(below, one, 0.0).max(axis=3) for one in both], axis=2)
    return slog(largest).reshape(len(batch), -1)
