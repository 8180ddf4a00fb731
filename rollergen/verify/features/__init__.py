"""A program on a device as one row of numbers: what rankers see (version `VERSION`).

Groups: A operator, B device, C tiling, D analytic terms of Pruner's draft model (ASPLOS 2025, section 4.1, as its
code has them, traffic in bytes), E accesses, F relations (AutoTVM, NeurIPS 2018, section 3.2), G the program's own
decisions, H the limiters of the micro-performance model.  Sizes and counts enter as ``slog(x) = sign(x) log2(1+|x|)``.
All values follow from the rProgram in closed form; nothing is parsed and nothing is run.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.model import Prediction, predict
from rollergen.program.rprogram import RProgram
from rollergen.verify.features.access import access_features
from rollergen.verify.features.draft import draft_features, draft_seconds
from rollergen.verify.features.limiters import limiter_features
from rollergen.verify.features.operator import device_features, operator_features
from rollergen.verify.features.program import program_features
from rollergen.verify.features.relations import relation_features
from rollergen.verify.features.tiling import tiling_features
from rollergen.verify.features.view import view_of

__all__ = ["GROUPS", "VERSION", "draft_ms", "features", "names", "vector"]

VERSION = 1
"""Counts changes of the features' meaning; records with another version are computed anew."""

GROUPS = {
    "A": "operator", "B": "device", "C": "tiling", "D": "draft terms", "E": "accesses", "F": "relations",
    "G": "program", "H": "limiters",
}  # fmt: skip


def features(program: RProgram, device: Device, prediction: Prediction | None = None) -> dict[str, float]:
    """Every feature by name, ``group.name``; the same names for every program and device."""
    predicted = prediction or predict(program, device)
    view = view_of(program, device, predicted)
    groups = {
        "A": operator_features(view),
        "B": _device(device),
        "C": tiling_features(view),
        "D": draft_features(view),
        "E": access_features(view),
        "F": relation_features(view),
        "G": program_features(view),
        "H": limiter_features(view),
    }
    return {f"{group}.{name}": value for group, found in groups.items() for name, value in found.items()}


def vector(program: RProgram, device: Device, prediction: Prediction | None = None) -> np.ndarray:
    """`features` as float64, in the order of `names`."""
    return np.array(list(features(program, device, prediction).values()), dtype=np.float64)


def draft_ms(program: RProgram, device: Device) -> float:
    """Predicted milliseconds of the draft model alone."""
    return draft_seconds(view_of(program, device, predict(program, device))) * 1e3


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Names of the columns of `vector`."""
    import rollergen as rg

    A = rg.tensor("A", (32, 32))
    program = rg.construct(rg.ops.matmul(A, rg.tensor("B", (32, 32))), "v100", 1)[0]
    return tuple(features(program, rg.load_device("v100")))


_device = lru_cache(maxsize=64)(device_features)
