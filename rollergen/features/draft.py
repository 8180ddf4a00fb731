"""Group D: Pruner's draft model (ASPLOS 2025, section 4.1): symbols, penalties, latency.

The penalties are those of its code: register reuse ``r / (1 + r)`` (the printed form exceeds 1), overflowing
registers divide the compute throughput, blocks and warps fill units together; traffic is in bytes and the terms of
statements are summed.  On a CPU a warp is a vector, one thread runs on a core, and the limits are the spec's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.features.batch import Batch
from rollergen.features.operator import backing_gb_s, peak_gflop_s
from rollergen.tile.rules import main_instruction

SYMBOLS = (
    "S1 register elements", "S2 thread operations", "S3 staged elements", "S4 threads", "S5 traffic", "S6 blocks",
    "S7 contiguous", "S8 operations",
)  # fmt: skip
PENALTIES = (
    "P registers memory", "P registers compute", "P staged memory", "P units", "P warps", "alpha lanes",
    "P transactions",
)  # fmt: skip
DRAFT = (*SYMBOLS, *PENALTIES, "draft latency", "micro latency", "compute over memory")
DRAFT_LOGS = {*DRAFT} - {*PENALTIES}


def draft_features(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (`DRAFT`, programs)."""
    symbols = _symbols(batch)
    penalties = _penalties(batch, symbols)
    compute, memory = _latencies(batch, symbols, penalties)
    last = ((compute + memory) * 1e9, batch.seconds * 1e9, compute / np.maximum(memory, 1e-12))
    for row, found in zip(out, (*symbols.values(), *penalties.values(), *last), strict=True):
        row[:] = found


def _symbols(batch: Batch) -> dict[str, np.ndarray]:
    """`SYMBOLS`, in their order."""
    itemsize = batch.own.itemsize
    there = batch.there
    staged = np.where(there, batch.block_region, 0.0)[:2]
    reads = np.add.reduce(staged * itemsize[:2], axis=0) * batch.steps * batch.blocks
    neighbours = np.where(there, batch.contiguous, np.inf)
    inputs = np.minimum(neighbours[0], neighbours[1])
    return {
        "S1 register elements": np.add.reduce(np.where(there, batch.thread_region, 0.0), axis=0),
        "S2 thread operations": batch.own.flops / np.maximum(1.0, batch.blocks * batch.threads),
        "S3 staged elements": np.add.reduce(staged, axis=0),
        "S4 threads": batch.threads,
        "S5 traffic": reads + batch.own.output_bytes,
        "S6 blocks": batch.blocks,
        "S7 contiguous": np.where(np.isfinite(inputs), inputs, neighbours[2]),
        "S8 operations": batch.own.flops,
    }


def _penalties(batch: Batch, s: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`PENALTIES`, in their order."""
    device = batch.device
    staging = device.kind.block_layer
    single = staging is None
    lanes = main_instruction(device, "float32").lanes if single else device.execution_width
    registers = device.limits.registers_per_thread * (lanes if single else 1)
    room = (device.layer(staging) if staging else device.layers[1]).capacity_bytes / 4
    warps = np.ones(len(batch)) if single else np.ceil(s["S4 threads"] / lanes)
    per_unit = 1 if single else device.schedulers
    few = s["S6 blocks"] < device.units
    busy = np.where(few, s["S6 blocks"] * np.minimum(warps, per_unit), s["S6 blocks"])
    slots = device.units * np.where(few, per_unit, 1)
    reuse = s["S2 thread operations"] / np.maximum(1.0, s["S1 register elements"])
    line = device.backing.transaction_bytes / 4
    return {
        "P registers memory": np.minimum(registers / np.maximum(1.0, s["S1 register elements"]), 1.0),
        "P registers compute": reuse / (1 + reuse),
        "P staged memory": np.minimum(room / np.maximum(1.0, s["S3 staged elements"]), 1.0),
        "P units": busy / (np.ceil(busy / slots) * slots),
        "P warps": warps / (np.ceil(warps / per_unit) * per_unit),
        "alpha lanes": np.ones(len(batch)) if single else s["S4 threads"] / (warps * lanes),
        "P transactions": s["S7 contiguous"] / (np.ceil(s["S7 contiguous"] / line) * line),
    }


def _latencies(
    batch: Batch, s: Mapping[str, np.ndarray], p: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of arithmetic, and of memory."""
    device = batch.device
    overflow = np.maximum(1.0, 1 / np.maximum(p["P registers memory"], 1e-9))
    rate = peak_gflop_s(device) * 1e9 * p["P registers compute"] * p["P units"] * p["alpha lanes"] / overflow
    return s["S8 operations"] / np.maximum(rate, 1.0), s["S5 traffic"] / (backing_gb_s(device) * 1e9)
