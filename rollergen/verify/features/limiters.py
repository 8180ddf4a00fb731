"""Group H: the micro-performance model's own terms, summed over the stages of a call."""

from __future__ import annotations

import numpy as np

from rollergen.hal.spec import Device
from rollergen.verify.features.batch import Batch, slog

_NAMED = (
    "multiply-adds", "issue", "load ports", "store ports", "path", "latency", "column walks", "tlb 1", "tlb 2",
    "tiles", "blocks", "launch",
)  # fmt: skip
_LAYERS = 4
_TERMS = (*_NAMED, *(f"bandwidth {n}" for n in range(1, _LAYERS + 1)), "other")
LIMITERS = (*_TERMS, *(f"{name} share" for name in _TERMS), "total")


def limiter_features(batch: Batch) -> np.ndarray:
    """(programs, `LIMITERS`): log of the nanoseconds of every limiter and of their combination, and each one's share
    of the whole; layers count from the innermost."""
    column = _Columns(batch.device)
    rows = []
    for prediction in batch.predictions:
        row = [0.0] * len(_TERMS)
        for stage in prediction.stages:
            if not stage.once:
                for limiter in stage.limiters:
                    row[column[limiter.name]] += limiter.seconds
        rows.append(row)
    found = np.array(rows, dtype=float) * 1e9
    total = batch.seconds[:, None] * 1e9
    shares = np.divide(found, total, out=np.zeros_like(found), where=total > 0)
    return np.concatenate([slog(found), shares, slog(total)], axis=1)


class _Columns(dict[str, int]):
    """Which term a limiter is, by its name."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._layers = [layer.name for layer in device.layers[1:]]

    def __missing__(self, limiter: str) -> int:
        self[limiter] = _TERMS.index(self._term(limiter))
        return self[limiter]

    def _term(self, limiter: str) -> str:
        if limiter in _NAMED:
            return limiter
        layer, _, what = limiter.rpartition(" ")
        if what == "path":
            return "path"
        if what == "bandwidth" and layer in self._layers:
            return f"bandwidth {min(_LAYERS, self._layers.index(layer) + 1)}"
        return "other"
