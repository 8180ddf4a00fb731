"""A sample of a whole program's blocks: every edge class of every stage, and what those blocks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import summed_axes
from rollergen.expr.values import Load
from rollergen.program.blocks import grid_positions
from rollergen.program.interpreter.loads import executed_everywhere, guarded
from rollergen.program.interpreter.memory import offsets
from rollergen.program.interpreter.points import Points, block_box, both
from rollergen.program.rprogram import GRID, RProgram, Stage
from rollergen.program.traffic import distinct, picked


def edge_blocks(stage: Stage, per_class: int = 1, seed: int = 0) -> tuple[int, ...]:
    """Block numbers, rising, that cover every edge class of the grid.

    A class is one combination of (first, interior, last) over the axes that the grid cuts; each class
    that exists gets up to `per_class` blocks, chosen at random but always the same for a `seed`.
    """
    numbers = np.arange(stage.blocks)
    positions = grid_positions(stage, numbers)
    classes = np.zeros(stage.blocks, dtype=np.int64)
    for own in _grid_axes(stage):
        along = np.zeros(stage.blocks, dtype=np.int64)
        for position, extent in own:
            along = along * extent + positions[position]
        last = prod(extent for _, extent in own) - 1
        classes = classes * 3 + np.where(along == 0, 0, np.where(along == last, 2, 1))
    random = np.random.default_rng(seed)
    chosen = [_some(numbers[classes == kind], per_class, random) for kind in np.unique(classes)]
    return tuple(sorted(int(n) for n in np.concatenate(chosen)))


def _grid_axes(stage: Stage) -> Iterator[tuple[tuple[int, int], ...]]:
    """(position, extent) of the grid loops of each axis, by falling stride."""
    for axis in stage.op.axes:
        own = tuple((p, loop.extent) for p, loop in stage.of_axis(axis.name) if loop.kind == GRID)
        if own:
            yield own


def _some(members: Any, count: int, random: np.random.Generator) -> Any:
    return members if len(members) <= count else random.choice(members, size=count, replace=False)


def edge_classes(stage: Stage) -> int:
    """The number of classes that `edge_blocks` distinguishes for the stage."""
    sizes = [prod(extent for _, extent in own) for own in _grid_axes(stage)]
    return len(list(product(*(range(min(3, size)) for size in sizes))))


def sample_blocks(program: RProgram, per_class: int = 1) -> dict[str, tuple[int, ...]]:
    """Block numbers of every stage, by name, for `interpret`.

    Each stage runs its `edge_blocks`, and all blocks that write what chosen blocks of later stages read,
    so that a sample of a full-size program with packing or split stages costs what its blocks cost.  Of results
    that are added up, all blocks that add to a place, and those that began it.
    """
    chosen = {stage.name: set(edge_blocks(stage, per_class)) for stage in program.stages}
    for at, reader in reversed(list(enumerate(program.stages))):
        if reader.store.adds:
            chosen[reader.name] = blocks_together(reader, chosen[reader.name])
        for writer in program.stages[:at]:
            if reader.store.adds and writer.op.output.name == reader.op.output.name:
                chosen[writer.name].update(blocks_writing(writer, elements_written(reader, chosen[reader.name])))
            elements = elements_read(reader, writer.op.output.name, sorted(chosen[reader.name]))
            if elements.size:
                chosen[writer.name].update(blocks_writing(writer, elements))
    return {name: tuple(sorted(numbers)) for name, numbers in chosen.items()}


def elements_read(stage: Stage, tensor: str, blocks: Iterable[int]) -> Any:
    """Distinct row-major offsets of the elements of `tensor` that the given blocks of a stage read."""
    loads = [load for load in stage.op.loads() if load.buffer.name == tensor]
    parts = [_read_by_block(stage, load, block) for block in blocks for load in loads]
    return distinct(np.concatenate(parts), loads[0].buffer.elements) if parts else np.zeros(0, dtype=np.int64)


def _read_by_block(stage: Stage, load: Load, block: int) -> Any:
    box, axes = block_box(stage, grid_positions(stage, block)), load.axes()
    for position, loop in enumerate(stage.loops):
        if loop.axis not in axes and loop.kind != GRID:
            box = box.fix(position, 0)
    points = Points.of_box(stage, box)
    reads = both(executed_everywhere(points, sorted(axes)), guarded(load, points))
    at, exists = offsets(load.buffer.shape, load.indices, points.axes(), False, f"stage {stage.name}")
    return distinct(picked(at, both(reads, exists)), load.buffer.elements)


def elements_written(stage: Stage, blocks: Iterable[int]) -> Any:
    """Distinct row-major offsets of the elements of its output that the given blocks of a stage write."""
    op = stage.op
    axes, parts = [axis.name for axis in op.of_role("spatial", "row")], [np.zeros(0, dtype=np.int64)]
    for block in blocks:
        box = block_box(stage, grid_positions(stage, block))
        for position, loop in enumerate(stage.loops):
            if loop.axis not in axes and loop.kind != GRID:
                box = box.fix(position, 0)
        points = Points.of_box(stage, box)
        chosen = executed_everywhere(points, axes)
        for bound in op.where:
            chosen = both(chosen, bound.evaluate(points.axes()))
        at, _ = offsets(op.output.shape, op.target, points.axes(), chosen, f"stage {stage.name}")
        parts.append(picked(at, chosen))
    return distinct(np.concatenate(parts), op.output.elements)


def blocks_together(stage: Stage, blocks: Iterable[int]) -> set[int]:
    """The given blocks of a stage and those that add to the same places."""
    summed = {axis.name for axis in summed_axes(stage.op)}
    every = np.arange(stage.blocks)
    positions = grid_positions(stage, every)
    place = np.zeros(stage.blocks, dtype=np.int64)
    for position, loop in stage.of_kind(GRID):
        if loop.axis not in summed:
            place = place * loop.extent + positions[position]
    return {int(block) for block in every[np.isin(place, place[sorted(blocks)])]}


def blocks_writing(stage: Stage, elements: Any) -> set[int]:
    """The blocks of a stage that write the given elements (row-major offsets) of its output.

    All blocks, where the output is not stored at plain axes: then an element does not tell its block.
    """
    axes = _stored_axes(stage)
    loops = stage.of_kind(GRID)
    if axes is None or not all(loop.axis in axes for _, loop in loops):
        return set(range(stage.blocks))
    coordinates = dict(zip(axes, np.unravel_index(elements, stage.op.output.shape), strict=True))
    extents = [loop.extent for _, loop in loops]
    if not extents:
        return {0}
    digits = [coordinates[loop.axis] // loop.stride % loop.extent for _, loop in loops]
    positions = grid_positions(stage, np.arange(stage.blocks))
    number_at = np.empty(extents, dtype=np.int64)
    number_at[tuple(positions[p] for p, _ in loops)] = np.arange(stage.blocks)
    return {int(number) for number in np.unique(number_at[tuple(digits)])}


def _stored_axes(stage: Stage) -> tuple[str, ...] | None:
    """The axis that each dimension of the output is stored at; None unless all are plain and distinct."""
    target = stage.op.target
    names = tuple(next(iter(index.axes()), "") for index in target)
    if len(set(names)) != len(names) or any(index != Index.axis(n) for index, n in zip(target, names, strict=True)):
        return None
    return names
