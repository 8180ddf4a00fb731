"""Group E: what each operand's buffer goes through along the loops (TVM's features as Pruner lists them), and the
arithmetic intensity by level."""

from __future__ import annotations

import numpy as np

from rollergen.verify.features.batch import NO_LOOP, Batch, slog
from rollergen.verify.features.table import OPERANDS

_POINTS = 10
BUFFER = (
    "bytes", "unique bytes", "lines", "unique lines", "reuse loop", "reuse serial", "reuse none", "reuse distance",
    "reuse distance bytes", "reuse count", "bytes per reuse", "unique bytes per reuse", "lines per reuse",
    "unique lines per reuse", "stride",
)  # fmt: skip
ACCESS = (
    *(f"{name} {what}" for name in OPERANDS for what in BUFFER), *(f"intensity {n}" for n in range(_POINTS)),
    "register bytes", "block bytes", "loops",
)  # fmt: skip


def access_features(batch: Batch) -> np.ndarray:
    """(programs, `ACCESS`)."""
    held = (np.stack([batch.thread_box, batch.block_box], axis=2) * batch.own.itemsize[:, :, None]).sum(axis=1)
    loops = (batch.kind != NO_LOOP).sum(axis=1, keepdims=True)
    return np.concatenate([_buffers(batch), _curve(batch), slog(held), loops], axis=1)


def _buffers(batch: Batch) -> np.ndarray:
    """(programs, operands x `BUFFER`); zeros for an operand that there is not."""
    itemsize = batch.own.itemsize
    there = itemsize > 0
    size = np.maximum(itemsize, 1.0)
    line = batch.device.layers[1].transaction_bytes
    touched = batch.inside[:, :1] * itemsize
    unique = batch.unique[:, :, 0] * itemsize
    stride = _strides(batch)
    lines = batch.inside[:, :1] * np.minimum(1.0, stride * itemsize / line)
    apart = np.minimum(unique / size, unique / line * stride)
    unique_lines = np.where(stride <= 1, np.maximum(1.0, unique / line), apart)
    by_loop, distance, distance_bytes, count = _reuse(batch)
    sizes = np.stack([touched, unique, lines, unique_lines], axis=2)
    uses = np.stack([distance, distance_bytes, count], axis=2)
    per = sizes / np.where(by_loop, count, 0.5)[:, :, None]
    logs = slog(np.concatenate([sizes, uses, per, stride[:, :, None]], axis=2))
    kinds = np.stack([by_loop, ~by_loop & batch.own.repeated, ~by_loop & ~batch.own.repeated], axis=2)
    found = np.concatenate([logs[:, :, :4], kinds, logs[:, :, 4:]], axis=2)
    return np.where(there[:, :, None], found, 0.0).reshape(len(batch), -1)


def _strides(batch: Batch) -> np.ndarray:
    """Elements between two iterations of the innermost loop that moves through the buffer; 0: none does."""
    steps = batch.along(batch.own.slope) * batch.stride[:, None]
    programs, operands, loops = steps.shape
    innermost = loops - 1 - (steps[:, :, ::-1] != 0).argmax(axis=2)
    return steps[np.arange(programs)[:, None], np.arange(operands), innermost]


def _reuse(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(whether some loop reuses the operand; iterations and bytes between two uses; uses): loops outward that index
    the buffer multiply the distance; the first that does not starts the count, the next that does ends it."""
    moves = batch.moves[:, :, ::-1]
    extent = batch.extent[:, None, ::-1]
    stays = ~moves & (batch.kind != NO_LOOP)[:, None, ::-1]
    began = np.logical_or.accumulate(stays, axis=2)
    ended = np.logical_or.accumulate(began & moves, axis=2)
    by_loop = began[:, :, -1]
    distance = np.where(began, 1.0, extent).prod(axis=2)
    count = np.where(began & ~ended, extent, 1.0).prod(axis=2)
    inner = (~began).sum(axis=2)
    bytes_inside = batch.unique[:, :, ::-1] * batch.own.itemsize[:, :, None]
    levels = np.concatenate([batch.own.itemsize[:, :, None], bytes_inside], axis=2).sum(axis=1)
    touched = levels[np.arange(len(batch))[:, None], inner]
    distance, touched, count = (np.where(by_loop, one, 0.0) for one in (distance, touched, count))
    return by_loop, distance, touched, count


def _curve(batch: Batch) -> np.ndarray:
    """log2(operations) / log2(bytes touched) by loop level, at ten equal steps of log2(operations)."""
    inside = batch.inside[:, ::-1]
    per_point = batch.own.flops / np.maximum(1.0, inside[:, -1])
    operations = np.log2(1 + per_point[:, None] * inside)
    touched = (batch.unique * batch.own.itemsize[:, :, None]).sum(axis=1)[:, ::-1]
    ratio = operations / np.maximum(np.log2(1 + touched), 1.0)
    at = operations[:, -1:] * (np.arange(_POINTS) + 1) / _POINTS
    reached = operations[:, None] >= at[:, :, None]
    level = np.where(reached[:, :, -1], reached.argmax(axis=2), inside.shape[1])
    zero, last = np.zeros((len(batch), 1)), ratio[:, -1:]
    below, above = (np.concatenate([zero, one], axis=1) for one in (operations, ratio))
    operations, ratio = (np.concatenate([one, one[:, -1:]], axis=1) for one in (operations, ratio))
    rows = np.arange(len(batch))[:, None]
    x0, x1, y0, y1 = (one[rows, level] for one in (below, operations, above, ratio))
    width = np.where(x1 > x0, x1 - x0, 1.0)
    found = np.where(x1 > x0, y0 + (y1 - y0) * (at - x0) / width, y1)
    found = np.where(reached[:, :, -1], found, last)
    return np.where((batch.kind != NO_LOOP).any(axis=1, keepdims=True), found, 0.0)
