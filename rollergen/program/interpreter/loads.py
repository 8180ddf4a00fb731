"""Interpreter: copies being filled, and loads from the innermost layer that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.values import Load, Take
from rollergen.program.boxes import sharing_blocks
from rollergen.program.interpreter import copies
from rollergen.program.interpreter.memory import offsets
from rollergen.program.interpreter.points import Array, Box, Points, both
from rollergen.program.interpreter.run import StageRun
from rollergen.program.rprogram import Copy
from rollergen.program.traffic import Filling


def fill(run: StageRun, number: int, box: Box) -> None:
    """One copy's buffer filled for every filling in `box`; what is out of range or guarded has the fill."""
    layout = run.plan.layouts[number]
    if isinstance(layout, copies.WindowLayout):
        run.tiles[number] = fill_window(run, layout, box)
        return
    points = copies.cell_points(layout, box)
    inside = fillable(layout, points)
    chain = run.plan.chains[layout.copy.load]
    at = chain.index(number)
    source = run.tiles[chain[at - 1]] if at else None
    values = source.get(points, inside) if source else read_filling(run, layout, box, points, inside)
    tile = copies.Tile(layout, box)
    tile.put(points, filled_in(layout.load, values, inside))
    run.tiles[number] = tile


def fill_window(run: StageRun, layout: copies.WindowLayout, box: Box) -> copies.Tile:
    """A window filled with what the points of each thread that are within their axes read."""
    for position in layout.inner:
        box = box.open(position, run.stage.loops[position].extent)
    points = Points.of_box(run.stage, box)
    executed = executed_everywhere(points, layout.load_axes)
    inside = both(executed, guarded(layout.load, points))
    values = filled_in(layout.load, read_filling(run, layout, box, points, inside), inside)
    tile = copies.Tile(layout, box)
    tile.put_window(layout, points, values, executed)
    return tile


def fill_ring(run: StageRun, number: int, box: Box, count: int) -> None:
    """A ring's buffers filled as far ahead as it goes, up to iteration `count` of the loop around the copy; the one
    of this iteration is then in use.  A buffer that is filled anew no longer holds what it held."""
    copy, around = run.stage.copies[number], run.stage.copies[number].at_loop - 1
    value = box.start(around)
    ring = run.rings.setdefault(number, {})
    if value == 0:
        ring.clear()
    for tile in range(0 if value == 0 else value + copy.depth - 1, min(count, value + copy.depth)):
        fill(run, number, box.fix(around, tile))
        ring[buffer_of(copy, tile)] = run.tiles[number]
    run.tiles[number] = ring[buffer_of(copy, value)]


def buffer_of(copy: Copy, tile: int) -> int:
    """The buffer of a ring in which an iteration's tile lies."""
    return tile % copy.depth


def fillable(layout: copies.Layout, points: Points) -> Array:
    """The mask of points that a copy may read: every axis of the load within its extent, every bound of its guard
    kept."""
    inside: Array = True
    for axis in layout.load_axes:
        inside = both(inside, points.inside(axis))
    return both(inside, guarded(layout.load, points))


def guarded(load: Load, points: Points) -> Array:
    """The mask of points where all bounds of the load's guard hold."""
    inside: Array = True
    for bound in load.guard:
        inside = both(inside, bound.evaluate(points.axes()))
    return inside


def read_filling(run: StageRun, layout: copies.Layout, box: Box, points: Points, inside: Array) -> Array:
    """The elements that a copy takes from memory, counted."""
    load, stage = layout.load, run.stage
    at, _ = offsets(load.buffer.shape, load.indices, points.axes(), inside, f"{run.name}: {layout.name}")
    axes = [axis.name for axis in stage.op.axes]
    others = [axis for axis in axes if axis not in layout.load_axes]
    filling = Filling(
        number=copies.filling_number(layout, box, points),
        numbers=box.volume(layout.filling_loops),
        executed=prod(copies.executed_fillings(layout, box, axis) for axis in axes),
        repeated=prod(copies.reaching_fillings(layout, box, axis) for axis in others),
    )
    if run.block % sharing_blocks(stage, layout.copy) == 0:  # what a cluster brings for all its blocks is counted once
        run.counter.fill(layout.copy.load, at, inside, filling)
    return run.memory.read(load.buffer, at, inside, f"{run.name}: load {layout.copy.load}")


def read_load(run: StageRun, load: Load, points: Points, wanted: Array) -> Array:
    """The load's values at `points`: from its innermost copy, else from memory; its fill where guarded."""
    number = run.plan.load_numbers[id(load)]
    executed = executed_everywhere(points, run.plan.load_axes[number])
    chain = run.plan.chains[number]
    if chain:
        return cut_as_factor(run, number, run.tiles[chain[-1]].get(points, both(executed, wanted)))
    return read_directly(run, number, load, points, both(executed, guarded(load, points)), wanted)


TF32_BITS = np.uint32(0xFFFFE000)
"""Of a float32, those that a tf32 instruction looks at."""


def cut_as_factor(run: StageRun, number: int, values: Array) -> Array:
    """`values` as the stage's instruction sees them, if it multiplies them."""
    op = run.stage.op
    if run.stage.compute.factors != "tf32" or op.loads()[number] not in op.body_loads():
        return values
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) & TF32_BITS).view(np.float32)


def read_directly(run: StageRun, number: int, load: Load, points: Points, passing: Array, wanted: Array) -> Array:
    """A load that no copy serves, counted; only `wanted` points may be in error."""
    where = f"{run.name}: load {number} of {load.buffer.name}"
    at, exists = offsets(load.buffer.shape, load.indices, points.axes(), both(passing, wanted), where)
    readable = both(passing, exists)
    if any_executed(points, [axis.name for axis in run.stage.op.axes]):
        run.counter.touch(number, at, readable)
    values = run.memory.read(load.buffer, at, readable, where)
    return filled_in(load, values, readable)


def read_take(run: StageRun, take: Take, places: tuple[Array, ...], points: Points, wanted: Array) -> Array:
    """Elements at places that were computed, from memory and counted where they really lie."""
    op, row = run.stage.op, take.row
    number = len(op.loads()) + op.takes().index(take)
    where = f"{run.name}: take of {row.buffer.name}"
    passing = both(executed_everywhere(points, [axis.name for axis in op.axes]), guarded(row, points))
    at, exists = offsets(row.buffer.shape, row.indices, points.axes(), both(passing, wanted), where)
    for place, extent, stride in zip(places, take.extents, take.strides, strict=True):
        if np.any((place < 0) | (place >= extent)):
            raise ProgramError(f"{where}: a position leaves 0 <= position < {extent}")
        at = at + place.astype(np.int64) * stride
    readable = both(both(passing, wanted), exists)
    run.counter.touch(number, at, readable)
    return filled_in(row, run.memory.read(row.buffer, at, readable, where), readable)


def filled_in(load: Load, values: Array, there: Array) -> Array:
    """`values` with the load's fill where nothing is there."""
    return values if there is True else np.where(there, values, np.asarray(load.fill, dtype=values.dtype))


def any_executed(points: Points, axes: Sequence[str]) -> bool:
    """Whether some point is executed at all."""
    return all(points.executed(axis) is True or bool(np.any(points.executed(axis))) for axis in axes)


def executed_everywhere(points: Points, axes: Sequence[str]) -> Array:
    """The mask of points where all the given axes let the program execute."""
    mask: Array = True
    for axis in axes:
        mask = both(mask, points.executed(axis))
    return mask
