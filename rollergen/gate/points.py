"""Elements of an output that are compared with the oracle: every edge class of the program's tiles."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

import numpy as np

from rollergen.expr.index import linear
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.program.rprogram import RProgram, Stage

SAMPLES = 192
"""Points of each kind (edges, anywhere) compared for one output."""

CORNERS = 1024
"""Up to so many combinations of first and last positions are all taken."""


def edge_positions(axis: Axis, stages: tuple[Stage, ...]) -> tuple[int, ...]:
    """Positions beside every boundary that a loop of an equal axis makes: the ends of the axis, of its
    first block, register tile and vector, of its last full one, and of the tail behind it."""
    last = axis.extent - 1
    found = {0, last, max(0, last - 1)}
    for stage in stages:
        if any(own.name == axis.name and own.extent == axis.extent for own in stage.op.axes):
            for _, loop in stage.of_axis(axis.name):
                for size in {loop.stride, loop.stride * loop.extent}:
                    whole = axis.extent // size * size
                    found |= {size - 1, size, whole - 1, whole}
    return tuple(sorted(p for p in found if 0 <= p <= last))


def sample_axes(
    op: TensorOp, stages: tuple[Stage, ...], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Values of every stored axis at the points to compare, equally long int64 arrays.

    All corners (each axis at its first element, its last one and the first of its last block), then
    edge positions combined at random, each at least once, then points anywhere; of few points all.
    """
    axes = op.of_role("spatial", "row")
    if not axes:
        return {}
    edges = [edge_positions(axis, stages) for axis in axes]
    corners = _corners(axes, stages)
    count = max(SAMPLES, *(len(e) for e in edges))
    anywhere = _anywhere(tuple(axis.extent for axis in axes), rng)  # first: the same for all tiles of an axis
    columns = {}
    for number, (axis, positions) in enumerate(zip(axes, edges, strict=True)):
        each_once = rng.permutation(np.resize(np.asarray(positions), count))
        columns[axis.name] = np.concatenate([corners[:, number], each_once, anywhere[number]]).astype(np.int64)
    return columns


def _anywhere(extents: tuple[int, ...], rng: np.random.Generator) -> list[np.ndarray]:
    if prod(extents) <= 2 * SAMPLES:
        return [positions.reshape(-1) for positions in np.indices(extents)]
    return [rng.integers(0, extent, SAMPLES) for extent in extents]


def _corners(axes: tuple[Axis, ...], stages: tuple[Stage, ...]) -> np.ndarray:
    choices = []
    for axis in axes:
        strides = [loop.stride for stage in stages for _, loop in stage.of_axis(axis.name) if loop.stride < axis.extent]
        start_of_last = (axis.extent - 1) // max(strides, default=1) * max(strides, default=1)
        choices.append(sorted({0, start_of_last, axis.extent - 1}))
    if np.prod([len(c) for c in choices]) > CORNERS:
        choices = [sorted({c[0], c[-1]}) for c in choices]
    return np.array(list(product(*choices)), dtype=np.int64)[:CORNERS]


def output_offsets(op: TensorOp, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The output's elements (row-major offsets) that the tensor op stores for the given axis values.

    Offsets, because a tensor op may view its output in another shape; masked ones are dropped.
    """
    length = len(next(iter(columns.values()))) if columns else 1
    kept = np.ones(length, dtype=bool)
    for bound in op.where:
        kept &= np.broadcast_to(bound.evaluate(columns), kept.shape)
    offset = linear(op.target, op.output.shape).evaluate(columns)
    return np.broadcast_to(offset, kept.shape)[kept]


def sample_stages(program: RProgram, seed: int) -> dict[int, dict[str, np.ndarray]]:
    """`sample_axes` of every stage, by its number.  Of stages that write to one output, and of programs that differ in
    their tiles only, the points anywhere are the same."""
    return {
        number: sample_axes(stage.op, program.stages, np.random.default_rng(seed))
        for number, stage in enumerate(program.stages)
    }


def sample_points(program: RProgram, seed: int) -> dict[str, tuple[np.ndarray, ...]]:
    """For every output its coordinates to compare, each once, one array for each dimension; none where it has no
    elements."""
    points: dict[str, list[np.ndarray]] = {}
    names, sampled = {buffer.name for buffer in program.outputs}, sample_stages(program, seed)
    for number, stage in enumerate(program.stages):
        if stage.op.output.name in names:
            columns = sampled[number]
            points.setdefault(stage.op.output.name, []).append(output_offsets(stage.op, columns))
    shapes = {buffer.name: buffer.shape for buffer in program.outputs}
    nowhere = {b.name: tuple(np.zeros(0, np.int64) for _ in b.shape) for b in program.outputs if not b.elements}
    return nowhere | {
        name: _viewed(each_once(np.concatenate(several)), shapes[name]) for name, several in points.items()
    }


def each_once(offsets: np.ndarray) -> np.ndarray:
    """Each offset once, in the order in which they come: a short output has fewer elements than there are samples, and
    few of a long one lie at edges, while the oracle may add up a whole tensor for each."""
    return offsets[np.sort(np.unique(offsets, return_index=True)[1])]


def _viewed(offsets: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return np.unravel_index(offsets, shape) if shape else ()
