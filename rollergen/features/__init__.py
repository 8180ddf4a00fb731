"""Programs on a device as rows of numbers: what rankers see (version `VERSION`).

Groups: A operator, B device, C tiling, D analytic terms of Pruner's draft model (ASPLOS 2025, section 4.1, as its
code has them, traffic in bytes), E accesses, F relations (AutoTVM, NeurIPS 2018, section 3.2), G the program's own
decisions, H the limiters of the micro-performance model.  Sizes and counts enter as ``slog(x) = sign(x) log2(1+|x|)``.
All values follow from the rProgram in closed form; nothing is parsed and nothing is run.  All programs of a draft are
computed at once: what their tensor ops have in common is found once, the rest are operations on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rollergen.features.access import ACCESS, ACCESS_LOGS, access_features
from rollergen.features.arrays import slog
from rollergen.features.batch import batch_of
from rollergen.features.draft import DRAFT, DRAFT_LOGS, draft_features
from rollergen.features.limiters import LIMITERS, LIMITERS_LOGS, limiter_features
from rollergen.features.operator import DEVICE, OPERATOR, device_features, operator_features
from rollergen.features.program import PROGRAM, PROGRAM_LOGS, program_features
from rollergen.features.relations import RELATIONS, relation_features
from rollergen.features.tiling import TILING, TILING_LOGS, tiling_features
from rollergen.hal.spec import Device
from rollergen.program.model import Prediction, predict
from rollergen.program.rprogram import RProgram

__all__ = ["GROUPS", "VERSION", "features", "matrix", "names", "vector"]

VERSION = 3
"""Counts changes of the features' meaning; records with another version are computed anew.  2: the class is the
operator's, not the heaviest stage's; dtypes of the inputs."""

GROUPS = {
    "A": "operator", "B": "device", "C": "tiling", "D": "draft terms", "E": "accesses", "F": "relations",
    "G": "program", "H": "limiters",
}  # fmt: skip

_COLUMNS = {
    "A": OPERATOR, "B": DEVICE, "C": TILING, "D": DRAFT, "E": ACCESS, "F": RELATIONS, "G": PROGRAM, "H": LIMITERS,
}  # fmt: skip

_IN_LOG = {
    "A": (), "B": (), "C": TILING_LOGS, "D": DRAFT_LOGS, "E": ACCESS_LOGS, "F": RELATIONS, "G": PROGRAM_LOGS,
    "H": LIMITERS_LOGS,
}  # fmt: skip


def matrix(
    programs: Sequence[RProgram], device: Device, predictions: Sequence[Prediction] | None = None
) -> np.ndarray:
    """Features of programs of one device, float64 (programs, columns of `names`), each row as if it were alone.

    ``predictions``: the model's of each program, where they are known.
    """
    if not programs:
        return np.zeros((0, len(names())))
    said = [predict(one, device) for one in programs] if predictions is None else predictions
    batch = batch_of(programs, device, said)
    rows, logs = _layout()
    found = np.empty((len(names()), len(programs)))
    operator_features(programs, batch.own.sizes, found[rows["A"]])
    found[rows["B"]] = _device(device)
    tiling_features(batch, found[rows["C"]])
    draft_features(batch, found[rows["D"]])
    access_features(batch, found[rows["E"]])
    relation_features(batch, found[rows["F"]])
    program_features(batch, found[rows["G"]])
    limiter_features(batch, found[rows["H"]])
    found[logs] = slog(found[logs])
    return np.ascontiguousarray(found.T)


def vector(program: RProgram, device: Device, prediction: Prediction | None = None) -> np.ndarray:
    """One row of `matrix`."""
    return matrix([program], device, None if prediction is None else [prediction])[0]


def features(program: RProgram, device: Device, prediction: Prediction | None = None) -> dict[str, float]:
    """Every feature by name, ``group.name``; the same names for every program and device."""
    return dict(zip(names(), vector(program, device, prediction).tolist(), strict=True))


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Names of the columns of `matrix`."""
    return tuple(f"{group}.{name}" for group, found in _COLUMNS.items() for name in found)


@lru_cache(maxsize=1)
def _layout() -> tuple[dict[str, slice], np.ndarray]:
    """Rows of each group among `names`; which rows enter as their `slog`."""
    rows, start = {}, 0
    for group, found in _COLUMNS.items():
        rows[group] = slice(start, start + len(found))
        start += len(found)
    all_names = [(group, name) for group, found in _COLUMNS.items() for name in found]
    return rows, np.array([at for at, (group, name) in enumerate(all_names) if name in _IN_LOG[group]])


@lru_cache(maxsize=64)
def _device(device: Device) -> np.ndarray:
    """(`DEVICE`, 1)."""
    return np.array(list(device_features(device).values()))[:, None]
