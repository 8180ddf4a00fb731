"""Group H: the micro-performance model's own terms, summed over the stages of a call."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rollergen.features.arrays import floats
from rollergen.features.batch import Batch
from rollergen.hal.spec import Device

_NAMED = (
    "multiply-adds", "issue", "load ports", "store ports", "path", "latency", "column walks", "tlb 1", "tlb 2",
    "tiles", "blocks", "launch",
)  # fmt: skip
_LAYERS = 4
_TERMS = (*_NAMED, *(f"bandwidth {n}" for n in range(1, _LAYERS + 1)), "other")
_NO_TERMS = [0.0] * len(_TERMS)
LIMITERS = (*_TERMS, *(f"{name} share" for name in _TERMS), "total")
LIMITERS_LOGS = {*_TERMS, "total"}


def limiter_features(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (`LIMITERS`, programs): nanoseconds of every limiter and of their combination, and each one's share
    of the whole; layers count from the innermost."""
    column = _columns(batch.device)
    first: dict[int, list[float]] = {}  # programs of a draft share the stages that pack an operand
    rows: list[float] = []
    for prediction in batch.predictions:
        row = _NO_TERMS
        for stage in prediction.stages:
            if stage.once:
                continue
            known = first.get(id(stage)) if row is _NO_TERMS else None
            if known is not None:
                row = known
                continue
            begins = row is _NO_TERMS
            row = row[:]
            for limiter in stage.limiters:
                row[column[limiter.name]] += limiter.seconds
            if begins:
                first[id(stage)] = row
        rows += row
    found, shares = out[: len(_TERMS)], out[len(_TERMS) : -1]
    found[:] = floats(rows).reshape(len(batch), -1).T
    found *= 1e9
    total = out[-1]
    np.multiply(batch.seconds, 1e9, out=total)
    shares[:] = 0.0
    np.divide(found, total, out=shares, where=total > 0)


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


@lru_cache(maxsize=64)
def _columns(device: Device) -> _Columns:
    return _Columns(device)
