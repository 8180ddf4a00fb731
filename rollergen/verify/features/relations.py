"""Group F: AutoTVM's relation features (NeurIPS 2018, section 3.2): the largest reuse, and the largest trip count
from outside, among loops whose touched count is at most a threshold."""

from __future__ import annotations

import numpy as np

from rollergen.verify.features.batch import Batch
from rollergen.verify.features.table import OPERANDS

THRESHOLDS = tuple(1 << n for n in range(0, 19, 2))
_LIMITS = np.array(THRESHOLDS, dtype=float)
_EACH = np.arange(len(THRESHOLDS))[:, None]
_NUMBERS = np.arange(len(OPERANDS))[:, None]
RELATIONS = tuple(
    f"{name} {what} of count {threshold}"
    for name in OPERANDS for what in ("reuse", "topdown") for threshold in THRESHOLDS
)  # fmt: skip


def relation_features(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (`RELATIONS`, programs).

    Counts and reuses fall inward and trips from outside grow: of the loops within a threshold the outermost has the
    largest reuse, the innermost of all the most trips.
    """
    found = out.reshape(len(OPERANDS), 2, len(THRESHOLDS), -1)
    operands, loops, programs = batch.count.shape
    # of each threshold the reuse of the outermost loop that is within it and within none below, then of all below
    reuse = np.zeros((operands, len(THRESHOLDS) + 1, programs))
    least = np.searchsorted(_LIMITS, batch.count)
    for loop in range(loops - 1, -1, -1):
        reuse[_NUMBERS, least[:, loop], batch.columns] = batch.reuse[:, loop]
    np.maximum.accumulate(reuse[:, :-1], axis=1, out=found[:, 0])
    found[:, 1] = np.where(least[:, -1:] <= _EACH, batch.inside[0], 0.0)
    there = batch.has_loops & (batch.own.itemsize > 0)
    if not there.all():
        np.copyto(found, 0.0, where=~there[:, None, None])
