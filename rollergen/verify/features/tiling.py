"""Group C: how each role's axes are cut into loops."""

from __future__ import annotations

import numpy as np

from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL
from rollergen.verify.features.batch import KINDS, Batch, slog
from rollergen.verify.features.table import OPERANDS, ROLES

TILING = (
    *(f"{role} {what}" for role in ROLES for what in ("extent", "register tile", "block tile", "trips", "waste")),
    *(f"{role} threads" for role in ROLES[:3]),
    "block threads", "grid", "waves", "tail", "vector", "unroll",
    *(f"{name} contiguous bytes" for name in OPERANDS),
)  # fmt: skip


def tiling_features(batch: Batch) -> np.ndarray:
    """(programs, `TILING`)."""
    roles = np.arange(len(ROLES))
    held = batch.is_kind(UNROLL, LANE)
    threads = batch.is_kind(*PARALLEL)
    kinds = (None, held, held | threads | batch.is_kind(SERIAL), batch.is_kind(GRID), threads)
    of_role = np.where(batch.role.T[:, None] == roles[:, None], batch.extent.T[:, None], 1.0)
    over = [
        (of_role if kind is None else np.where(kind.T[:, None], of_role, 1.0)).prod(axis=0).T for kind in kinds
    ]
    covered, registers, block, trips, parallel = over
    extents = np.where(batch.roles[:, None] == roles[:, None], batch.own.extents[:, None], 1.0).prod(axis=2)
    waste = (covered - extents) / extents
    by_role = np.stack([slog(extents), slog(registers), slog(block), slog(trips), waste], axis=2)
    waves = np.array([float(one.waves) for one in batch.predicted])
    inner = (batch.by_kind[KINDS[kind]] for kind in (LANE, UNROLL))
    logs = slog(np.stack([batch.threads, batch.blocks, waves, *inner], axis=1))
    tail = (waves - np.floor(waves))[:, None]
    return np.concatenate(
        [
            by_role.reshape(len(batch), -1), slog(parallel[:, :3]), logs[:, :3], tail, logs[:, 3:],
            slog(batch.contiguous * batch.own.itemsize),
        ],
        axis=1,
    )  # fmt: skip
