"""Windows that a block stages: the steps and addresses of their staging, what threads read of them, what waits.

A thread stages elements one block apart along each dimension, in rolled loops; it reads each distinct element of its
unrolled points once.  All costs per access are counted over every execution width of the block, for rows of threads
that are no multiple of it make each one's addresses differ.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, distinct_rows, per_distinct_rows
from rollergen.program.model.wavefronts import digits_of_rows, transactions, wavefronts_of_rows
from rollergen.program.rprogram import PARALLEL, SERIAL, UNROLL, Copy
from rollergen.program.windows import Digits, thread_digits, threads_along, window_digits, window_shape


def fill_steps(nest: Nest, copy: Copy) -> Number:
    """Elements that a thread stages in one pass, one after the other."""
    steps: Number = 1
    for extent, digits in zip(window_shape(nest.stage, copy), thread_digits(nest.stage, copy), strict=True):
        steps = steps * ceil_div(extent, threads_along(nest.stage, digits))
    return steps


def fill_services(nest: Nest, device: Device, copy: Copy, path: MemoryLayer | None) -> tuple[Number, Number]:
    """Service of one step of the staging: of the load from the tensor, of the store into the window."""
    operand = nest.facts.loads[copy.load]
    dealt = thread_digits(nest.stage, copy)
    tensor = [stride // operand.itemsize for stride in operand.strides]
    read = _service(nest, path, _steps(nest, dealt, tensor), operand.itemsize, merge=False)
    target = device.layer(copy.to_layer)
    written = _service(nest, target, _steps(nest, dealt, _pitches(nest, copy)), operand.itemsize, merge=False)
    return read, written


def read_service(nest: Nest, device: Device, copy: Copy) -> Number:
    """Service of a read of one element by each thread."""
    steps = _steps(nest, window_digits(nest.stage, copy), _pitches(nest, copy))
    itemsize = nest.facts.loads[copy.load].itemsize
    return _service(nest, device.layer(copy.to_layer), steps, itemsize, merge=True)


def _pitches(nest: Nest, copy: Copy) -> list[Number]:
    """Elements of the staged window from one position of each dimension to the next."""
    pitches: list[Number] = []
    step: Number = 1
    for extent in (window_shape(nest.stage, copy)[-1] + copy.padding, *reversed(window_shape(nest.stage, copy)[:-1])):
        pitches.append(step)
        step = step * extent
    return pitches[::-1]


def _steps(nest: Nest, dimensions: tuple[Digits, ...], pitches: list[Number]) -> dict[int, Number]:
    """Elements between neighbouring iterations of each loop."""
    found: dict[int, Number] = {}
    for digits, pitch in zip(dimensions, pitches, strict=True):
        for p, weight in digits:
            found[p] = found.get(p, 0) + weight * pitch
    return found


def _service(
    nest: Nest, layer: MemoryLayer | None, steps: dict[int, Number], itemsize: int, *, merge: bool
) -> Number:
    """Mean service of an access by all execution widths of a block: wavefronts, or transactions without banks."""
    if layer is None or nest.lockstep == 1:
        return 1
    parallel = nest.positions(*PARALLEL)
    columns = [nest.loops[p].extent for p in parallel] + [steps.get(p, 0) for p in parallel]

    def served(row: tuple[int, ...]) -> float:
        extents = [np.array([[extent]]) for extent in row[: len(parallel)]]
        threads = int(np.prod(row[: len(parallel)]))
        digits = digits_of_rows(extents, threads)
        addresses = sum((d[0] * step for d, step in zip(digits, row[len(parallel) :], strict=True)), start=0)
        addresses = np.broadcast_to(addresses, (threads,)) * itemsize
        widths = [addresses[at : at + nest.lockstep] for at in range(0, threads, nest.lockstep)]
        if layer.banks:
            each = [wavefronts_of_rows(one[None], itemsize, layer, merge_pairs=merge)[0] for one in widths]
        else:
            each = [transactions(one, itemsize, layer.transaction_bytes) for one in widths]
        return sum(each) / len(each)

    return per_distinct_rows(lambda rows: [served(row) for row in rows], columns)


class Reuse(NamedTuple):
    """What one thread reads of a window in one pass through its unrolled points, in the order of the nest.

    ``distinct`` elements; ``kept`` of them are used again by a later point, ``again`` times in all; ``live``: the
    most of them that wait for a later use at once."""

    distinct: Number
    kept: Number
    again: Number
    live: Number


def reuse_of(nest: Nest, copy: Copy, loops: tuple[int, ...]) -> tuple[Reuse, Number]:
    """(what is reused in a pass, passes): the passes are those of the serial loops among `loops`, a thread's."""
    axes = nest.facts.loads[copy.load].axes
    last = max((p for p in loops if nest.loops[p].kind == SERIAL and nest.loops[p].axis in axes), default=-1)
    passes: Number = 1
    for p in loops:
        if p <= last:
            passes = passes * nest.trips[p]
    inner = tuple(p for p in loops if p > last and nest.loops[p].kind == UNROLL and nest.loops[p].axis in axes)
    steps = _steps(nest, window_digits(nest.stage, copy), _pitches(nest, copy))
    columns = [nest.loops[p].extent for p in inner] + [steps.get(p, 0) for p in inner]
    rows, each = distinct_rows(columns)
    found = np.array([_reuse(row) for row in rows], dtype=float)[each]
    return Reuse(*found.T), passes


@lru_cache(maxsize=256)
def _reuse(row: tuple[int, ...]) -> Reuse:
    extents, steps = row[: len(row) // 2], row[len(row) // 2 :]
    addresses: np.ndarray = np.zeros(1, dtype=np.int64)
    for extent, step in zip(extents, steps, strict=True):
        addresses = (addresses[:, None] + np.arange(extent) * step).reshape(-1)
    distinct, first, counts = np.unique(addresses, return_index=True, return_counts=True)
    final = len(addresses) - 1 - np.unique(addresses[::-1], return_index=True)[1]
    change = np.zeros(len(addresses) + 1, dtype=np.int64)
    again = counts > 1
    np.add.at(change, first[again], 1)
    np.add.at(change, final[again], -1)
    return Reuse(len(distinct), int(again.sum()), int((counts - 1).sum()), int(change.cumsum().max()))
