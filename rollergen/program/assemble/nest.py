"""Building blocks of assembly: digits of an axis, dropped unit loops, guards, vector widths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import gcd
from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.places import put_of
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.expr.views import moved_at_once
from rollergen.hal.spec import Device
from rollergen.program.rprogram import GRID, SERIAL, UNROLL, Copy, Loop
from rollergen.tile.rules import contiguous_axis

Digit = tuple[str, Any]
"""(kind, extent): one digit of an axis, without its stride."""


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def is_batch(*sizes: Any) -> bool:
    """Whether any size is an array: then nothing may be decided by its value."""
    for size in sizes:  # noqa: SIM110  (asked of every size of every loop: a generator costs five times as much)
        if isinstance(size, np.ndarray):
            return True
    return False


def larger(a: Any, b: Any) -> Any:
    """The larger size, of each program where one is an array."""
    return np.maximum(a, b) if is_batch(a, b) else max(a, b)


def digits(axis: str, *kinds_and_extents: Digit) -> list[Loop]:
    """Loops of one axis from its digits, listed by falling stride."""
    loops, stride = [], 1
    for kind, extent in reversed(kinds_and_extents):
        loops.append(Loop(axis, extent, stride, kind))
        stride = stride * extent
    return loops[::-1]


def useful(loops: Sequence[Loop]) -> list[Loop]:
    """The loops without those of a plain extent 1."""
    return [loop for loop in loops if isinstance(loop.extent, np.ndarray) or loop.extent != 1]


def useful_digits(axis: str, *kinds_and_extents: Digit) -> list[Loop]:
    """`useful` loops of `digits`: those of a plain extent 1, half of all, are not made at all."""
    loops: list[Loop] = []
    stride: Any = 1
    for kind, extent in reversed(kinds_and_extents):
        if isinstance(extent, np.ndarray) or extent != 1:
            loops.append(Loop(axis, extent, stride, kind))
            stride = stride * extent
    loops.reverse()
    return loops


def overhanging(op: TensorOp, loops: Sequence[Loop]) -> list[str]:
    """Axes with points beyond their extent once serial loops have stopped: these need a guard.

    In a batch it is enough that one program has such points; the model finds from the loops which ones have.
    """
    over, extents = set(), op.extents()
    for loop in loops:
        if loop.kind != GRID and loop.kind != SERIAL and loop.axis not in over:
            cut = extents[loop.axis] % (loop.extent * loop.stride)
            if cut.any() if type(cut) is np.ndarray else cut:
                over.add(loop.axis)
    return [axis.name for axis in op.axes if axis.name in over] if over else []


def common_divisor(first: Any, *others: Any) -> Any:
    """The greatest common divisor of numbers, or of columns of a batch."""
    if not is_batch(first, *others):
        return gcd(first, *others)
    return reduce(np.gcd, others, first)


def copy_vector(
    op: TensorOp, load: Load, along: str, granule: Any, device_bytes: int = 16, *, guarded: bool = False
) -> Any:
    """Widest power of two of elements adjacent along `along` that one access may move.

    Tiles start at multiples of `granule` of the axis; addresses, the axis' extent and every guard must allow it
    wherever they start (see `moved_at_once`, also for `guarded`).
    """
    return run_vector(op, load, along, granule, 1, device_bytes, guarded=guarded)


def run_vector(
    op: TensorOp, load: Load, along: str, granule: Any, every: int, device_bytes: int = 16, *, guarded: bool = True
) -> Any:
    """`copy_vector` of a load whose points along `along` each stand for ``every`` points of the axis."""
    limit = max(1, device_bytes // ITEMSIZE[load.dtype])
    fixed = gcd(_widest(load, along, guarded), op.axis(along).extent // every, limit)
    if (put := put_of(op)) is not None and load is op.stored():
        fixed = gcd(fixed, put.side_by_side(along))
    return common_divisor(granule, fixed)


@lru_cache(maxsize=128)
def _widest(load: Load, along: str, guarded: bool) -> int:
    """Neighbours along an axis that goes on for ever which one access may move."""
    if contiguous_axis(load) != along:
        return 1
    vector = _MOST_NEIGHBOURS
    while vector > 1 and not moved_at_once(load, along, vector, vector, guarded=guarded):
        vector //= 2
    return vector


_MOST_NEIGHBOURS = 64
"""Of the widest vectors that any instruction has: 64 bytes."""


def lane_stride(load: Load, axis: str) -> int | None:
    """Elements between neighbours along `axis`; 0 if it does not matter, None if not constant."""
    if axis not in load.axes():
        return 0
    offset = load.offset()
    return None if _divided(offset, axis) else offset.coefficient(axis)


def is_divided(load: Load, axis: str) -> bool:
    """Whether the axis stands in a quotient or a remainder of the load's place."""
    return _divided(load.offset(), axis)


def _divided(offset: Index, axis: str) -> bool:
    """Whether the axis stands in a quotient or a remainder."""
    return any(not isinstance(atom, str) and axis in atom.index.axes() for atom, _ in offset.terms)


def vector_copies(
    op: TensorOp, device: Device, loops: list[Loop], axis: str, vector: int
) -> tuple[Copy, ...]:
    """Register copies that make the loads along `axis` vectors, where the innermost digit is one."""
    if vector == 1 or not loops or loops[-1].axis != axis or loops[-1].kind != UNROLL or loops[-1].extent != vector:
        return ()
    depth = len(loops) - 1
    return tuple(
        Copy(number, device.backing.name, "registers", depth, (axis,), axis, vector)
        for number, load in enumerate(op.loads())
        if axis in load.axes() and copy_vector(op, load, axis, vector) == vector
    )
