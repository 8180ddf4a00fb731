"""Group C: how each role's axes are cut into loops."""

from __future__ import annotations

import numpy as np

from rollergen.features.arrays import floats
from rollergen.features.batch import KINDS, Batch
from rollergen.features.table import OPERANDS, ROLES
from rollergen.program.rprogram import GRID, GROUP, LANE, THREAD, UNROLL

TILING = (
    *(f"{role} {what}" for role in ROLES for what in ("extent", "register tile", "block tile", "trips", "waste")),
    *(f"{role} threads" for role in ROLES[:3]),
    "block threads", "grid", "waves", "tail", "vector", "unroll",
    *(f"{name} contiguous bytes" for name in OPERANDS),
)  # fmt: skip
TILING_LOGS = {*TILING} - {"tail", *(f"{role} waste" for role in ROLES)}


def tiling_features(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (`TILING`, programs)."""
    by_role = out[: 5 * len(ROLES)].reshape(len(ROLES), 5, -1)
    out = out[5 * len(ROLES) :]
    of_role = batch.by_role_and_kind
    extents = np.multiply.reduce(np.where(batch.has_role, batch.own.extents, 1.0), axis=1)
    by_role[:, 0] = extents
    np.multiply.reduce(of_role[:, KINDS[UNROLL] :], axis=1, out=by_role[:, 1])
    np.multiply.reduce(of_role[:, KINDS[GROUP] :], axis=1, out=by_role[:, 2])
    by_role[:, 3] = of_role[:, KINDS[GRID]]
    by_role[:, 4] = (by_role[:, 2] * by_role[:, 3] - extents) / extents
    np.multiply(of_role[:3, KINDS[GROUP]], of_role[:3, KINDS[THREAD]], out=out[:3])
    waves = floats([one.waves for one in batch.predicted])
    out[3] = batch.threads
    out[4] = batch.blocks
    out[5] = waves
    np.subtract(waves, np.floor(waves), out=out[6])
    out[7] = batch.by_kind[KINDS[LANE]]
    out[8] = batch.by_kind[KINDS[UNROLL]]
    np.multiply(batch.contiguous, batch.own.itemsize, out=out[9:])
