"""Group F: AutoTVM's relation features (NeurIPS 2018, section 3.2): the largest reuse, and the largest trip count
from outside, among loops whose touched count is at most a threshold."""

from __future__ import annotations

from rollergen.verify.features.view import OPERANDS, StageView, slog

THRESHOLDS = tuple(1 << n for n in range(0, 19, 2))


def relation_features(view: StageView) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in OPERANDS:
        chain = view.chains[name]
        for what in ("reuse", "topdown"):
            pairs = list(zip(chain.count, getattr(chain, what), strict=True)) if chain is not None else []
            for threshold in THRESHOLDS:
                below = [value for count, value in pairs if count <= threshold]
                found[f"{name} {what} of count {threshold}"] = slog(max(below)) if below else 0.0
    return found
