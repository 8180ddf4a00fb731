"""Group E: what each operand's buffer goes through along the loops (TVM's features as Pruner lists them), and the
arithmetic intensity by level."""

from __future__ import annotations

import numpy as np

from rollergen.features.batch import NO_LOOP, Batch
from rollergen.features.table import OPERANDS

_POINTS = 10
_STEPS = np.arange(1, _POINTS + 1)[:, None]
BUFFER = (
    "bytes", "unique bytes", "lines", "unique lines", "reuse loop", "reuse serial", "reuse none", "reuse distance",
    "reuse distance bytes", "reuse count", "bytes per reuse", "unique bytes per reuse", "lines per reuse",
    "unique lines per reuse", "stride",
)  # fmt: skip
_NUMBERS = np.arange(len(OPERANDS))[:, None]
_PLAIN = ("reuse loop", "reuse serial", "reuse none")
ACCESS = (
    *(f"{name} {what}" for name in OPERANDS for what in BUFFER), *(f"intensity {n}" for n in range(_POINTS)),
    "register bytes", "block bytes", "loops",
)  # fmt: skip
ACCESS_LOGS = {
    *(f"{name} {what}" for name in OPERANDS for what in BUFFER if what not in _PLAIN), "register bytes", "block bytes",
}  # fmt: skip


def access_features(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (`ACCESS`, programs)."""
    buffers = len(OPERANDS) * len(BUFFER)
    _buffers(batch, out[:buffers].reshape(len(OPERANDS), len(BUFFER), -1))
    _curve(batch, out[buffers : buffers + _POINTS])
    itemsize = batch.own.itemsize
    np.add.reduce(batch.thread_box * itemsize, axis=0, out=out[-3])
    np.add.reduce(batch.block_box * itemsize, axis=0, out=out[-2])
    np.add.reduce(batch.kind != NO_LOOP, axis=0, out=out[-1])


def _buffers(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (operands, `BUFFER`, programs); zeros for an operand that there is not."""
    itemsize = batch.own.itemsize
    size = np.maximum(itemsize, 1.0)
    line = batch.device.layers[1].transaction_bytes
    inside = batch.inside[0]
    unique = batch.unique[:, 0] * itemsize
    stride = _strides(batch)
    apart = np.minimum(unique / size, unique / line * stride)
    out[:, 0] = inside * itemsize
    out[:, 1] = unique
    out[:, 2] = inside * np.minimum(1.0, stride * itemsize / line)
    out[:, 3] = np.where(stride <= 1, np.maximum(1.0, unique / line), apart)
    by_loop, distance, distance_bytes, count = _reuse(batch)
    out[:, 4] = by_loop
    out[:, 5] = ~by_loop & batch.own.repeated
    out[:, 6] = ~by_loop & ~batch.own.repeated
    out[:, 7] = distance
    out[:, 8] = distance_bytes
    out[:, 9] = count
    np.divide(out[:, :4], np.where(by_loop, count, 0.5)[:, None], out=out[:, 10:14])
    out[:, 14] = stride
    if not batch.all_there:
        np.copyto(out, 0.0, where=~batch.there[:, None])


def _strides(batch: Batch) -> np.ndarray:
    """Elements between two iterations of the innermost loop that moves through the buffer; 0: none does."""
    steps = (batch.along(batch.own.slope) * batch.stride)[:, ::-1]
    innermost = (steps != 0).argmax(axis=1)
    return steps[_NUMBERS, innermost, batch.columns]


def _reuse(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(whether some loop reuses the operand; iterations and bytes between two uses; uses): loops outward that index
    the buffer multiply the distance; the first that does not starts the count, the next that does ends it."""
    moves = batch.moves[:, ::-1]
    loops = moves.shape[1]
    stays = moves < (batch.kind != NO_LOOP)[::-1]
    first = stays.argmax(axis=1)
    by_loop = stays[_NUMBERS, first, batch.columns]
    again = moves & (np.arange(loops)[:, None] > first[:, None])
    last = again.argmax(axis=1)
    last = np.where(again[_NUMBERS, last, batch.columns], last, loops)
    points, touched = np.empty((2, loops + 1, len(batch)))
    points[0] = 1.0
    points[1:] = batch.inside[::-1]
    itemsize = batch.own.itemsize
    np.add.reduce(itemsize, axis=0, out=touched[0])
    np.add.reduce(batch.unique[:, ::-1] * itemsize[:, None], axis=0, out=touched[1:])
    distance = points[first, batch.columns]
    count = points[last, batch.columns] / distance
    return by_loop, distance * by_loop, touched[first, batch.columns] * by_loop, count * by_loop


def _curve(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (points, programs): log2(operations) / log2(bytes touched) by loop level, at ten equal steps of
    log2(operations)."""
    inside = batch.inside[::-1]
    levels, programs = inside.shape
    per_point = batch.own.flops / np.maximum(1.0, inside[-1])
    # of each level the one before and itself, 0 before the first, the last again behind the last
    operations, ratio = np.zeros((2, levels + 2, programs))
    found = operations[1:-1]
    np.log2(1 + per_point * inside, out=found)
    touched = (batch.unique * batch.own.itemsize[:, None]).sum(axis=0)[::-1]
    np.divide(found, np.maximum(np.log2(1 + touched), 1.0), out=ratio[1:-1])
    operations[-1], ratio[-1] = operations[-2], ratio[-2]
    at = found[-1] * _STEPS / _POINTS
    level = np.add.reduce((found[:, None] < at).view(np.uint8), axis=0, dtype=np.uint8).astype(np.intp)
    whole = level < levels
    level *= programs
    level += batch.columns
    x0, y0 = operations.reshape(-1).take(level), ratio.reshape(-1).take(level)
    level += programs
    x1, y1 = operations.reshape(-1).take(level), ratio.reshape(-1).take(level)
    rises = x1 > x0
    between = y0 + (y1 - y0) * (at - x0) / np.where(rises, x1 - x0, 1.0)
    np.copyto(out, np.where(whole, np.where(rises, between, y1), ratio[-1]))
    if not batch.all_there:
        np.copyto(out, 0.0, where=~batch.has_loops)
