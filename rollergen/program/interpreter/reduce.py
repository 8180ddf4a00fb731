"""Interpreter: accumulators, from the identity through the body's values to the finished reduction.

An accumulator is an array with one dimension for each loop that is not of the grid: its size is the
loop's extent where the loop has accumulators of its own, else 1.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.rows import PART, WHOLE, shrinking
from rollergen.expr.values import Combiner, is_named
from rollergen.program.interpreter.points import Array, Box, grid_loops
from rollergen.program.interpreter.values import Scope, evaluate
from rollergen.program.rprogram import GROUP, LANE, PARALLEL, UNROLL, Stage

Parts = tuple[Any, ...]
"""One array for each component of a reduction."""

_NAMED = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def reduced_axes(stage: Stage) -> frozenset[str]:
    return frozenset(axis.name for axis in stage.op.of_role("reduce", "row"))


def own_accumulators(stage: Stage, separate: bool = True) -> frozenset[int]:
    """Positions of loops whose every iteration has an accumulator of its own (see `Accumulator`), those that are
    ``separate`` included or not."""
    reduced, apart = reduced_axes(stage), separate_positions(stage) if separate else frozenset[int]()
    return frozenset(
        p
        for p, loop in enumerate(stage.loops)
        if loop.axis not in reduced or loop.kind in (LANE, *PARALLEL) or p in apart
    )


def separate_positions(stage: Stage) -> frozenset[int]:
    return frozenset(p for p in stage.accumulator.separate if stage.loops[p].kind == UNROLL)


def accumulator_shape(stage: Stage, box: Box, separate: bool = True) -> tuple[int, ...]:
    """Sizes of the accumulators of a pass over `box`."""
    own = own_accumulators(stage, separate)
    return tuple(box.size(p) if p in own else 1 for p in range(grid_loops(stage), len(stage.loops)))


def identities(combiner: Combiner, shape: tuple[int, ...]) -> Parts:
    """Fresh accumulators."""
    return tuple(np.full(shape, const.value, numpy_dtype(const.dtype)) for const in combiner.identity)


def masked(combiner: Combiner, bodies: Parts, executed: Array) -> Parts:
    """Points that are not executed contribute the identity."""
    if executed is True:
        return bodies
    return tuple(
        np.where(executed, body, numpy_dtype(const.dtype).type(const.value))
        for body, const in zip(bodies, combiner.identity, strict=True)
    )


def accumulate(
    combiner: Combiner, accumulators: Parts, bodies: Parts, leaf_shape: tuple[int, ...], together: bool = False
) -> None:
    """Adds the bodies at all points of a leaf to its accumulators, in place.

    ``together``: see `Accumulator.gathered`."""
    chained = tuple(
        d for d, (kept, size) in enumerate(zip(accumulators[0].shape, leaf_shape, strict=True)) if kept == 1 < size
    )
    whole = tuple(_spread(body, accumulators[0].shape, leaf_shape, chained) for body in bodies)
    if together:
        joined = gathered(accumulators, whole, chained)
    else:
        joined = combine(combiner, accumulators, fold(combiner, whole, chained))
    for array, new in zip(accumulators, joined, strict=True):
        array[...] = new


def blocks(
    stage: Stage, combiner: Combiner, depths: tuple[int, ...], bodies: Parts, leaf_shape: tuple[int, ...]
) -> Parts:
    """The bodies of a leaf put together block by block, for blocks that begin at these `depths` (rising)."""
    grid, own = grid_loops(stage), own_accumulators(stage, separate=False)
    shape = tuple(leaf_shape[p - grid] if p in own else 1 for p in range(grid, len(stage.loops)))
    inside = tuple(d for d, size in enumerate(shape) if size < leaf_shape[d])
    parts = tuple(_spread(body, shape, leaf_shape, inside) for body in bodies)
    apart = frozenset(p - grid for p in separate_positions(stage))
    for depth in reversed(depths):
        chained = tuple(d for d in inside if d + grid >= depth and d not in apart and parts[0].shape[d] > 1)
        if depth == depths[-1]:
            start = identities(combiner, (1,) * len(shape))
            parts = gathered(start, parts, chained) if stage.accumulator.gathered else fold(combiner, parts, chained)
            parts = chains(stage, combiner, parts)
        else:
            parts = fold(combiner, parts, chained)
    return parts


def chains(stage: Stage, combiner: Combiner, parts: Parts) -> Parts:
    """Accumulators of separate positions put together, one after the other."""
    for position in sorted(separate_positions(stage)):
        parts = in_order(combiner, parts, position - grid_loops(stage))
    return parts


def _spread(body: Array, kept: tuple[int, ...], leaf: tuple[int, ...], chained: tuple[int, ...]) -> Array:
    """`body` with its full size along the dimensions that are folded."""
    body = np.asarray(body).reshape((1,) * (len(leaf) - np.ndim(body)) + np.shape(body))
    return np.broadcast_to(body, [size if d in chained else body.shape[d] for d, size in enumerate(leaf)])


def fold(combiner: Combiner, parts: Parts, dimensions: tuple[int, ...]) -> Parts:
    """`parts` combined along `dimensions`, which keep size 1."""
    if not dimensions:
        return parts
    if is_named(combiner):
        return tuple(_folded(combiner.name, part, dimensions) for part in parts)
    for dimension in dimensions:
        parts = halved(combiner, parts, dimension)
    return parts


def _folded(name: str, part: Array, dimensions: tuple[int, ...]) -> Array:
    """One component of a named combiner."""
    if name == "sum" and part.dtype.kind == "f":
        return _added_in_order(part, dimensions)
    return PRIMITIVES[_NAMED[name]].on_arrays().reduce(part, axis=dimensions, keepdims=True, dtype=part.dtype)  # type: ignore[attr-defined]


def _added_in_order(part: Array, dimensions: tuple[int, ...]) -> Array:
    """The sum along `dimensions`, one term after the other as the program adds them (NumPy's own adds neighbours
    pairwise)."""
    shape = tuple(1 if d in dimensions else size for d, size in enumerate(part.shape))
    count = prod(part.shape[d] for d in dimensions)
    terms = np.moveaxis(part, dimensions, range(len(dimensions))).reshape(count, -1)
    total = np.add.reduce(terms, axis=0) if terms.shape[1] > 1 else np.add.accumulate(terms, axis=0)[-1]
    return total.reshape(shape)


def gathered(pair: Parts, points: Parts, dimensions: tuple[int, ...]) -> Parts:
    """An online pair and all points along `dimensions`: the largest first, then what each adds to the sum."""
    whole = np.maximum(pair[0], np.max(points[0], axis=dimensions, keepdims=True))
    factor = shrinking(pair[0].dtype.name)
    shrunk = lambda part: part[1] * evaluate(factor, Scope(names={PART: part[0], WHOLE: whole}))
    return whole, shrunk(pair) + np.sum(shrunk(points), axis=dimensions, keepdims=True, dtype=pair[1].dtype)


def combine(combiner: Combiner, lhs: Parts, rhs: Parts) -> Parts:
    """The combiner applied to two tuples of arrays."""
    names = {f"lhs{c}": part for c, part in enumerate(lhs)} | {f"rhs{c}": part for c, part in enumerate(rhs)}
    scope = Scope(names=names)
    return tuple(evaluate(value, scope) for value in combiner.combine)


def finished(stage: Stage, combiner: Combiner, accumulators: Parts, separate: bool = True) -> Parts:
    """Accumulators of lanes, ``separate`` positions (unless that is done) and threads combined: what every thread then
    has."""
    grid = grid_loops(stage)
    accumulators = chains(stage, combiner, accumulators) if separate else accumulators
    for position in (*combined_lanes(stage), *combined_across_threads(stage)):
        accumulators = halved(combiner, accumulators, position - grid)
    return accumulators


def combined_lanes(stage: Stage) -> tuple[int, ...]:
    """Position of the lane loop, where it reduces."""
    reduced = reduced_axes(stage)
    return tuple(p for p, loop in stage.of_kind(LANE) if loop.axis in reduced)


def combined_across_threads(stage: Stage) -> tuple[int, ...]:
    """Positions of thread loops that share reductions, in the order in which they are folded."""
    if stage.accumulator.combine == "none":
        return ()
    reduced = reduced_axes(stage)
    shared = tuple(p for p, loop in stage.of_kind(*PARALLEL) if loop.axis in reduced)
    if stage.accumulator.combine != "groups":
        return shared
    return tuple(sorted(shared, key=lambda p: (stage.loops[p].kind == GROUP, p)))


def in_order(combiner: Combiner, parts: Parts, dimension: int) -> Parts:
    """One after the other, in rising order."""
    take = lambda at: tuple(np.take(part, [at], axis=dimension) for part in parts)
    total = take(0)
    for position in range(1, parts[0].shape[dimension]):
        total = combine(combiner, total, take(position))
    return total


def halved(combiner: Combiner, parts: Parts, dimension: int) -> Parts:
    """The upper half combined into the lower one until one is left (lanes of a vector, shuffle, groups and tree)."""
    parts = tuple(np.moveaxis(part, dimension, 0) for part in np.broadcast_arrays(*parts))
    while (count := parts[0].shape[0]) > 1:
        half = -(-count // 2)
        joined = combine(combiner, tuple(p[: count - half] for p in parts), tuple(p[half:] for p in parts))
        parts = tuple(np.concatenate([j, p[count - half : half]]) for j, p in zip(joined, parts, strict=True))
    return tuple(np.moveaxis(part, 0, dimension) for part in parts)
