"""Factors of a convolution, copied so that the longest axis of its sum is the innermost in memory.

Of images that lie channels first, neighbours along the sum are far apart, and windows are gathered element by element.
A copy with the channels last has rows that vectors move.  Like packing, each copy is an ordinary elementwise tensor op
into a temporary; weights that are constant are copied once.

Of many channels the sum is taken a line of memory at a time, all taps of a line before the next one: what neighbouring
taps read again is then still in a unit's cache.  (256 channels of 14 x 14 on a V100: 155 MB from its L2 with all
channels of a tap one after the other, 88 so.)
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.canonical import canonical_op, split_axis
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.packing import Prepared, fresh_buffer, replace_load
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load

LINE_BYTES = 128
"""Of a line of a GPU's caches; a row of a tile of a matrix instruction's factors has as many."""


def sums_inside(op: TensorOp) -> Prepared | None:
    """`op` over factors that lie so, and the copies that make them.

    None where the sum has a single axis (then nothing is gathered), where no axis of it is a dimension of every factor,
    and where all factors lie so already.
    """
    reduced, loads = op.of_role("reduce"), op.body_loads()
    if len(op.reductions) != 1 or len(reduced) < 2 or op.of_role("row") or any(x.buffer.packs for x in loads):
        return None
    common = [axis for axis in reduced if all(Index.axis(axis.name) in load.indices for load in loads)]
    return _turned(*_in_lines(op, max(common, key=lambda axis: axis.extent))) if common else None


def _in_lines(op: TensorOp, axis: Axis) -> tuple[TensorOp, tuple[Index, ...]]:
    """`op` with the axis in lines, and the axes that it is of now: itself where it is no whole number of lines, or one,
    or where a factor's dimension cannot be taken apart."""
    whole = op, (Index.axis(axis.name),)
    elements = LINE_BYTES // max(ITEMSIZE[load.dtype] for load in op.body_loads())
    if axis.extent % elements or axis.extent == elements:
        return whole
    split = split_axis(op, axis.name, elements)
    at = split.axes.index(replace(axis, extent=axis.extent // elements))
    inner = tuple(Index.axis(one.name) for one in split.axes[at : at + 2])
    return (split, inner) if all({*inner} <= {*load.indices} for load in split.body_loads()) else whole


def _turned(op: TensorOp, inner: tuple[Index, ...]) -> Prepared | None:
    """`op` over factors with the ``inner`` axes innermost; of those without windows the last one alone, whose order is
    that of the sum."""
    copies: dict[tuple[Buffer, tuple[int, ...]], tuple[Buffer, TensorOp]] = {}
    made = op
    for load in dict.fromkeys(op.body_loads()):
        windows = any(len(index.terms) > 1 for index in load.indices)
        last = [load.indices.index(one) for one in (inner if windows else inner[-1:])]
        order = (*(d for d in range(len(load.indices)) if d not in last), *last)
        if order == tuple(sorted(order)):
            continue
        output, _ = copies.setdefault((load.buffer, order), _copy(made, load, order))
        turned = replace(load, buffer=output, indices=tuple(load.indices[d] for d in order))
        made = replace_load(made, load, turned)
    return Prepared(tuple(copy for _, copy in copies.values()), made) if copies else None


def _copy(op: TensorOp, load: Load, order: tuple[int, ...]) -> tuple[Buffer, TensorOp]:
    """The load's buffer with its dimensions in another order; those that stay neighbours are one axis of the copy."""
    axes = tuple(Axis(f"dim{d}", load.buffer.shape[d]) for d in order)
    name = fresh_buffer(op, f"{load.buffer.name}_turned")
    output = Buffer(name, tuple(axis.extent for axis in axes), load.dtype, "temporary")
    source = Load(load.buffer, tuple(Index.axis(f"dim{d}") for d in range(len(order))))
    return output, canonical_op(TensorOp(output, axes, tuple(Index.axis(axis.name) for axis in axes), source))
