"""Boxes: tiles that a device's copy engine brings beside the program (`Copy.boxes`), and where that is possible.

The engine knows a tensor by a map: extents, strides and the box that one of its copies brings.  Here its dimensions are
the axes of the load, those of the tile among them.  A tile in panels is a box for each panel, or several, one behind
the other, where a box may not be as tall.  What lies outside the axes is 0.

Strides of a map are multiples of 16 bytes (CUDA driver API, "cuTensorMapEncodeTiled"), but a box may begin at any
element: coordinates count these (PTX ISA, "cp.async.bulk.tensor").  So rows of any length come in boxes of rows that
are `SWIZZLE` apart (`Copy.apart`): rows 8 q + s, of which the map for s knows element x of row q as the one
``8 q length + x`` behind the tensor's first, and ends behind row s: what lies behind it is 0, too.  (No GPU has run
these yet, nor told what boxes cost whose rows begin between 16 bytes: the model charges their sectors.)  Of a factor
whose rows are those of the sum, see `rows_apart.sum_apart`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.places import put_of
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, Within
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Instruction
from rollergen.hal.tensor_maps import MOST_DIMENSIONS, MOST_EXTENT, MOST_STRIDE_BYTES, STRIDE_BYTES, TensorMap
from rollergen.program.matrix import LEAST_WIDE, PANEL_BYTES, SWIZZLE, exchanged_loops, matrix_axes
from rollergen.program.rows_apart import rows_apart
from rollergen.program.rprogram import GRID, PARALLEL, Copy, Stage

BARRIER_BYTES = 8
"""Of a barrier in the block's layer that counts the bytes that have come (PTX ISA, "mbarrier object")."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of a tile.  ``axes``: of the map's dimensions; ``rows`` of a box, ``parts`` boxes of a panel, one below
    the other; ``panels``.  ``sharing``: blocks of a cluster, each of which brings as many of the boxes for all.
    ``pitch``: where rows are apart, the elements of one; parts then take turns with the ``maps``."""

    axes: tuple[str, ...]
    maps: tuple[TensorMap, ...]
    rows: int
    parts: int
    panels: int
    sharing: int
    pitch: int = 0

    @property
    def map(self) -> TensorMap:
        """One of them: all have the same boxes."""
        return self.maps[0]

    def corner(
        self, order: tuple[str, ...], first: Mapping[str, Index], column: Index | int, part: Index | int
    ) -> tuple[int, tuple[Index, ...]]:
        """(number of the map, coordinates) of a part's box from so many columns on, of a tile with rows and columns of
        the ``order``, which begins at ``first`` along each axis."""
        rows, columns = order
        if not self.pitch:
            steps = {columns: column, rows: part * self.rows}
            return 0, tuple(first[axis] + steps.get(axis, 0) for axis in self.axes)
        if not isinstance(part, int):  # blocks share whole panels of rows apart (`box_problem`)
            raise ProgramError(f"part {part} of a tile of rows apart is known at run time only; expected a number")
        which, row = part % SWIZZLE, first[rows] + part // SWIZZLE * SWIZZLE * SWIZZLE
        return which, (first[columns] + (column + which * self.pitch), row // SWIZZLE)

    @property
    def count(self) -> int:
        return self.parts * self.panels

    @property
    def bytes(self) -> int:
        """Of all boxes of the tile; what lies outside the tensor counts."""
        return self.count * prod(self.map.box) * self.map.itemsize


def map_problem(op: TensorOp, load: Load, order: tuple[str, ...]) -> str:
    """Why the copy engine cannot be told of the load, whose tile has its last axis of the ``order`` side by side; ""
    where it can."""
    offset, itemsize = load.offset(), ITEMSIZE[load.dtype]
    if [*(read.buffer.name for read in op.reads()), op.output.name].count(load.buffer.name) != 1:
        return f"{load.buffer.name} has another use, too"
    if load.guard or not offset.is_affine or offset.const:
        return f"its elements, at {offset}, are guarded or do not begin where {load.buffer.name} does"
    axes = _axes(op, load, order)
    strides = [offset.coefficient(axis) * itemsize for axis in axes]
    extents = [op.axis(axis).extent for axis in axes]
    if len(axes) > MOST_DIMENSIONS or strides[0] != itemsize or axes[0] != order[-1] or max(extents) > MOST_EXTENT:
        return f"its axes {', '.join(axes)} are not at most {MOST_DIMENSIONS}, {order[-1]} side by side"
    if any(stride % STRIDE_BYTES or not 0 < stride < MOST_STRIDE_BYTES for stride in strides[1:]):
        return f"its strides {strides[1:]} are no multiples of {STRIDE_BYTES} bytes"
    inside = zip(strides, strides[1:], extents, strict=False)
    if any(outer < inner * extent or (n and outer % inner) for n, (inner, outer, extent) in enumerate(inside)):
        return f"its strides {strides} do not step over each other"
    return ""


def box_problem(stage: Stage, copy: Copy, longest: int) -> str:
    """Why the copy engine, whose boxes are at most so long a side, cannot bring the copy's tiles; "" where it can."""
    load = stage.load(copy)
    if not copy.asynchronous or not copy.panel or copy.swizzle != SWIZZLE or copy.panel > longest:
        return f"panels of {copy.panel} columns, swizzle {copy.swizzle}, asynchronous {copy.asynchronous}"
    problem = (apart_problem if copy.apart else map_problem)(stage.op, load, copy.order)
    if problem:
        return problem
    if any(not _is_whole(stage, copy, axis) for axis in copy.order):
        return f"positions of its tile along {' or '.join(copy.order)} are apart"
    (rows, columns), sharing = stage.buffer_shape(copy, block=True), sharing_blocks(stage, copy)
    if copy.apart and rows % SWIZZLE**2 == 0 and columns // copy.panel % sharing == 0:
        return ""
    if not copy.apart and _parts(rows, longest, columns // copy.panel, sharing):
        return ""
    return f"its {rows} rows are no boxes of at most {longest}" + f", in {sharing} equal parts" * (sharing > 1)


def boxes_of(stage: Stage, copy: Copy, longest: int) -> Boxes:
    """The boxes of a copy that has no `box_problem`."""
    load, (rows, columns) = stage.load(copy), stage.buffer_shape(copy, block=True)
    panels, sharing = columns // copy.panel, sharing_blocks(stage, copy)
    if copy.apart:
        return _apart(stage.op, load, copy.order, copy.panel, rows // SWIZZLE, panels, sharing)
    axes, offset = _axes(stage.op, load, copy.order), load.offset()
    parts = _parts(rows, longest, panels, sharing)
    itemsize, high = ITEMSIZE[load.dtype], rows // parts
    sides = {copy.order[-1]: copy.panel, copy.order[0]: high}
    made = TensorMap(
        itemsize,
        tuple(stage.op.axis(axis).extent for axis in axes),
        tuple(offset.coefficient(axis) * itemsize for axis in axes[1:]),
        tuple(sides.get(axis, 1) for axis in axes),
    )
    return Boxes(axes, (made,), high, parts, panels, sharing)


def apart_problem(op: TensorOp, load: Load, order: tuple[str, ...]) -> str:
    """Why rows of the load that are apart cannot come or leave in boxes; "" where they can."""
    offset, itemsize = load.offset(), ITEMSIZE[load.dtype]
    if [*(read.buffer.name for read in op.reads()), op.output.name].count(load.buffer.name) != 1:
        return f"{load.buffer.name} has another use, too"
    pitch, rows = offset.coefficient(order[0]), op.axis(order[0]).extent
    if load.guard or offset != Index.axis(order[0]) * pitch + Index.axis(order[1]) or pitch < 1:
        return f"its elements, at {offset}, are guarded, or are not just the rows of {load.buffer.name}"
    if load.buffer != op.output and pitch < op.axis(order[1]).extent:
        return f"its rows of {op.axis(order[1]).extent} elements begin {pitch} behind each other"
    bytes_ = SWIZZLE * pitch * itemsize
    if rows < SWIZZLE or bytes_ % STRIDE_BYTES or bytes_ >= MOST_STRIDE_BYTES or SWIZZLE * pitch > MOST_EXTENT:
        return f"its {rows} rows are fewer than {SWIZZLE}, or {bytes_} bytes of as many no multiple of {STRIDE_BYTES}"
    return ""


def _apart(
    op: TensorOp, load: Load, order: tuple[str, ...], panel: int, parts: int, panels: int, sharing: int = 1
) -> Boxes:
    """Boxes of `SWIZZLE` rows that are as far apart, of a tile of so many parts and panels."""
    pitch, itemsize = load.offset().coefficient(order[0]), ITEMSIZE[load.dtype]
    rows, columns = op.axis(order[0]).extent, min(op.axis(order[1]).extent, pitch)
    extents = [(which * pitch + columns, -(-(rows - which) // SWIZZLE)) for which in range(SWIZZLE)]
    stride = SWIZZLE * pitch * itemsize
    maps = tuple([TensorMap(itemsize, own, (stride,), (panel, SWIZZLE)) for own in extents])
    return Boxes(order[::-1], maps, SWIZZLE, parts, panels, sharing, pitch)


def store_problem(op: TensorOp, axes: tuple[str, ...], one: Instruction, longest: int, apart: bool = False) -> str:
    """Why the copy engine, whose boxes are at most so long a side, cannot store what the asynchronous instruction
    computes along the axes (m, n, k), whose rows are perhaps ``apart``; "" where it can."""
    stored = op.stored()
    ends = (Within(Index.axis(axes[1]), 0, stored.offset().coefficient(axes[0])),) if apart else ()
    if put_of(op) or not set(op.where) <= set(ends):
        return "results are not just stored, each at its place"
    if not set(axes[:2]) <= stored.axes():
        return f"results do not lie along {axes[0]} and {axes[1]}"
    if one.n * LEAST_WIDE * ITEMSIZE[op.output.dtype] % PANEL_BYTES or one.m > longest:
        return f"rows of {op.output.dtype} are no panels of {PANEL_BYTES} bytes"
    return (apart_problem if apart else map_problem)(op, stored, axes[:2])


def stored_boxes(stage: Stage, one: Instruction) -> tuple[Boxes, int]:
    """The boxes in which results leave that are written together, where there is no `store_problem`, and how many
    times that is for the rows of one instruction."""
    op, (m, n, _) = stage.op, matrix_axes(stage)
    stored, itemsize = op.stored(), ITEMSIZE[op.output.dtype]
    panel, axes, offset = PANEL_BYTES // itemsize, _axes(op, stored, (m, n)), stored.offset()
    rounds = columns_at_once(stage, one) // (stage.store.boxes * panel)
    if rows_apart(stage, one):
        return _apart(op, stored, (m, n), panel, one.m // SWIZZLE, stage.store.boxes), rounds
    sides = {m: one.m, n: panel}
    made = TensorMap(
        itemsize,
        tuple(op.axis(axis).extent for axis in axes),
        tuple(offset.coefficient(axis) * itemsize for axis in axes[1:]),
        tuple(sides.get(axis, 1) for axis in axes),
    )
    return Boxes(axes, (made,), one.m, 1, stage.store.boxes, 1), rounds


def columns_at_once(stage: Stage, one: Instruction) -> int:
    """Columns of all tiles along n that one asynchronous instruction computes."""
    return one.n * stage.loops[exchanged_loops(stage, one)[0]].extent


def results_bytes(stage: Stage, one: Instruction) -> int:
    """Bytes of the block's layer through which results leave in boxes.  For a batch of programs: an array."""
    threads = 1
    for _, loop in stage.of_kind(*PARALLEL):
        threads = threads * loop.extent
    return stage.store.boxes * one.m * PANEL_BYTES * (threads // one.lanes)


def sharing_blocks(stage: Stage, copy: Copy) -> int:
    """Blocks of a cluster that read the copy's tiles alike and bring them together; 1: each its own.  For a batch of
    programs: an array."""
    rows = [loop.axis for loop in stage.loops if loop.kind == GRID][-2:-1]
    alike = rows and rows[0] not in stage.load(copy).axes()
    cluster = stage.block_order.cluster
    return cluster + (cluster == 0) if alike else 1


def barrier_bytes(stage: Stage) -> int:
    """Bytes of the block's layer for the barriers of its boxes: for each buffer of the ring one, or with a producer
    another that says that it is free, in whole 16 bytes.  For a batch of programs: an array."""
    depth = next((copy.depth for copy in stage.copies if copy.boxes), 0)
    return (depth + depth % 2) * BARRIER_BYTES * (1 + stage.compute.producer)


def producer_threads(stage: Stage, width: int) -> int:
    """Threads of a block beside those of the loops, on a device of that execution width."""
    return width * stage.compute.producer


def _axes(op: TensorOp, load: Load, order: tuple[str, ...]) -> tuple[str, ...]:
    """The axes along which the load's elements differ, by rising stride."""
    own = [axis for axis in load.axes() if axis in order or op.axis(axis).extent > 1]
    return tuple(sorted(own, key=lambda axis: (load.offset().coefficient(axis), axis != order[-1], axis)))


def _is_whole(stage: Stage, copy: Copy, axis: str) -> bool:
    """Whether the tile has neighbours of the axis in neighbouring positions."""
    own = [x for p, x in reversed(stage.of_axis(axis)) if x.kind in PARALLEL or (x.kind != GRID and p >= copy.at_loop)]
    return all(loop.stride == prod(inner.extent for inner in own[:n]) for n, loop in enumerate(own))


def _parts(rows: int, longest: int, panels: int, sharing: int) -> int:
    """Into how many boxes each panel of so many rows is cut, of whole swizzles, all of them in equal shares; 0: it
    cannot be."""
    fitting = (n for n in range(1, rows // SWIZZLE + 1) if rows % (n * SWIZZLE) == 0 and rows // n <= longest)
    return next((n for n in fitting if n * panels % sharing == 0), 0)
