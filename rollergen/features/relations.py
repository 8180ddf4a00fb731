"""Group F: AutoTVM's relation features (NeurIPS 2018, section 3.2): the largest reuse, and the largest trip count
from outside, among loops whose touched count is at most a threshold."""

from __future__ import annotations

import numpy as np

from rollergen.features.batch import Batch
from rollergen.features.table import OPERANDS

THRESHOLDS = tuple(1 << n for n in range(0, 19, 2))
_LIMITS = np.array(THRESHOLDS, dtype=float)
_EACH = np.arange(len(THRESHOLDS))[:, None]
_NUMBERS = np.arange(len(OPERANDS))[:, None, None]
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
    operands, _, programs = batch.count.shape
    # the largest reuse of the loops within each threshold and within none below it, then of all below
    reuse = np.zeros((operands, len(THRESHOLDS) + 1, programs))
    least = np.searchsorted(_LIMITS, batch.count)
    place = (_NUMBERS * (len(THRESHOLDS) + 1) + least) * programs + batch.columns
    np.maximum.at(reuse.reshape(-1), place.reshape(-1), batch.reuse.reshape(-1))
    np.maximum.accumulate(reuse[:, :-1], axis=1, out=found[:, 0])
    found[:, 1] = np.where(least[:, -1:] <= _EACH, batch.inside[0], 0.0)
    if not batch.all_there:
        np.copyto(found, 0.0, where=~(batch.has_loops & batch.there)[:, None, None])
