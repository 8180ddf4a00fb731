"""What takes read, as if their ids were drawn uniformly: places that stand for them, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count as numbers
from math import gcd, prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index, linear
from rollergen.expr.takes import axes_of_ids
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Take, Within

Read = tuple[Buffer, tuple[Index, ...], frozenset[str], tuple[Within, ...], bool]
"""The array, the indices, the axes on which they depend, the bounds under which it is read, and whether places that
follow one another are scattered over lines that others read too."""


def taken(take: Take, op: TensorOp) -> Read:
    """What a take reads where as many rows differ as can: each id has a row of its own, as long as there are so many,
    else rows are scattered; and each row begins a line of its own.

    That is what ids drawn uniformly from a long table read; of a short one they would leave some rows out.
    """
    row = take.row
    varied = axes_of_ids(take, op)
    axes = [axis for axis in op.axes if axis.name in varied]
    own = [axis for axis in axes if axis.name not in row.axes()]
    used = row.axes() | {axis.name for axis in axes}
    if own and len(take.ids) == 1 and (within := _taken_within_lines(take, own)):
        return row.buffer, within, used, row.guard, True
    count, most = prod(axis.extent for axis in axes), prod(take.extents)
    rows = _number(axes) if count <= most else _scattered(axes, own, most)
    offset = row.offset()
    _, last = Index(offset.terms).bounds(op.ranges())
    line = max(last + 1, _LINE_BYTES // ITEMSIZE[row.dtype])
    buffer = replace(row.buffer, shape=(min(count, most), line))
    return buffer, (rows, Index(offset.terms)), used, row.guard, count > most


def _taken_within_lines(take: Take, axes: Sequence[Axis]) -> tuple[Index, ...] | None:
    """What a take along ``axes`` of elements of which a line holds several reads: places scattered over the table's
    own axis, whose lines other ids read too; None where a line holds one element of the axis."""
    row, (extent,), (stride,) = take.row, take.extents, take.strides
    steps = [prod(row.buffer.shape[n + 1 :]) for n in range(len(row.buffer.shape))]
    at = next((n for n, step in enumerate(steps) if (step, row.buffer.shape[n]) == (stride, extent)), None)
    if at is None or extent == 1 or stride * ITEMSIZE[row.dtype] >= _LINE_BYTES:
        return None
    place = _number(axes) * _multiplier(extent, _GOLDEN) % extent
    return tuple(place if n == at else index for n, index in enumerate(row.indices))


def _number(axes: Sequence[Axis]) -> Index:
    return linear(tuple(Index.axis(axis.name) for axis in axes), tuple(axis.extent for axis in axes))


def _scattered(axes: Sequence[Axis], own: Sequence[Axis], extent: int) -> Index:
    """A place below `extent` for each point: along the take's ``own`` axes and along those that the row has too, places
    of neighbours lie far apart, and all lie evenly."""
    beside = [axis for axis in axes if axis not in own]
    return (_number(own) * _multiplier(extent, _GOLDEN) + _number(beside) * _multiplier(extent, _SILVER)) % extent


def _multiplier(extent: int, section: float) -> int:
    """By which numbers are multiplied to lie far apart, each at a place of its own, modulo the extent (Fibonacci
    hashing; Knuth, The Art of Computer Programming 3, section 6.4)."""
    return next(n for n in numbers(max(1, round(extent * section))) if gcd(n, extent) == 1)


_GOLDEN, _SILVER = (5**0.5 - 1) / 2, 2**0.5 - 1
_LINE_BYTES = 64
"""Of a line of most devices' memories: rows of fewer bytes are read in lines of others that nobody asked for."""
