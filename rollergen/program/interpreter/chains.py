"""Interpreter: chains of two contractions, block by block of keys, with the sums that shrink where a larger score is
found."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.chains import ROW, SCORE, SUM
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Load
from rollergen.program.blocks import grid_positions
from rollergen.program.interpreter.memory import offsets
from rollergen.program.interpreter.points import Array, both
from rollergen.program.interpreter.run import StageRun
from rollergen.program.interpreter.values import Scope, evaluate
from rollergen.program.matrix_chains import block_of_chain
from rollergen.program.rprogram import GRID
from rollergen.program.traffic import STORE

Axes = Mapping[str, Array]
Partials = dict[tuple[str, int], Array]


def run_chain_block(run: StageRun, number: int) -> None:
    """Everything that one block of a chain does.  Arrays have three dimensions: rows, keys, and columns or inner
    axes."""
    stage, op = run.stage, run.stage.op
    assert stage.inner is not None
    positions = grid_positions(stage, number)
    at: dict[str, int] = dict.fromkeys(op.extents(), 0)
    for p, loop in enumerate(stage.loops):
        if loop.kind == GRID:
            at[loop.axis] += int(positions[p]) * loop.stride
    block = block_of_chain(stage)
    extents = op.extents()
    own: dict[str, Array] = dict(at)
    own[block.rows] = _along(0, at[block.rows], min(at[block.rows] + block.row_count, extents[block.rows]))
    own[block.column] = _along(2, 0, extents[block.column])
    held = _identities(op.reductions[1:])
    for begin in range(0, extents[block.key], block.key_count):
        if _is_run(stage.inner.first, stage.inner.last, own, begin, begin + block.key_count):
            behind = _keys_end(stage.inner.last, own, block.key_step, extents[block.key])
            end = min(begin + block.key_count, behind)
            own[block.key] = _along(1, begin, end)
            _add_block(run, own, held)
    result = evaluate(op.result, _scope(run, own, held))
    _store(run, own, result)
    run.counter.close_block((*range(len(op.loads())), STORE))


def _along(dimension: int, begin: int, end: int) -> Array:
    shape = [1, 1, 1]
    shape[dimension] = end - begin
    return np.arange(begin, end, dtype=np.int64).reshape(shape)


def _identities(reductions: tuple[Reduction, ...]) -> Partials:
    return {
        (one.name, component): np.full((1, 1, 1), const.value, np.float32)
        for one in reductions
        for component, const in enumerate(one.combiner.identity)
    }


def _is_run(
    first: tuple[Index, ...], last: tuple[Index, ...], own: Axes, begin: int, end: int
) -> bool:
    """Whether a block of keys is within every bound of some row."""
    early = any(end - 1 < np.min(index.evaluate(own)) for index in first)
    late = any(begin > np.max(index.evaluate(own)) for index in last)
    return not (early or late)


def _keys_end(last: tuple[Index, ...], own: Axes, step: int, extent: int) -> int:
    """The multiple of `step` behind the last key that some row sees; `extent`: keys that exist."""
    return min([extent, *[(int(np.max(index.evaluate(own))) // step + 1) * step for index in last]])


def _scope(run: StageRun, axes: Axes, partials: Partials) -> Scope:
    return Scope(
        partials=partials,
        load=lambda load, wanted: _read(run, load, axes),
        index=lambda index: index.evaluate(axes),
    )


def _read(run: StageRun, load: Load, axes: Axes) -> Array:
    number = run.stage.op.loads().index(load)
    where = f"{run.name}: load {number} of {load.buffer.name}"
    inside: Array = True
    for bound in load.guard:
        inside = both(inside, bound.evaluate(axes))
    at, _ = offsets(load.buffer.shape, load.indices, axes, inside, where)
    if inside is not True:
        at, inside = np.broadcast_arrays(at, inside)
    run.counter.touch(number, at, inside)
    values = run.memory.read(load.buffer, at, inside, where)
    return values if inside is True else np.where(inside, values, np.asarray(load.fill, values.dtype))


def _add_block(run: StageRun, own: dict[str, Array], held: Partials) -> None:
    """A block of keys: its scores, the pair of each row with them, and what their weights add to the sums."""
    op = run.stage.op
    inner, *rows, outer = op.reductions
    known = dict(held)
    known[SCORE, 0] = _inner_sum(run, inner, own)
    shrink: Array = np.float32(1.0)
    if rows:
        (pair,) = rows
        scores = evaluate(pair.bodies[0], _scope(run, own, known))
        largest = np.fmax(held[ROW, 0], np.fmax.reduce(scores, axis=1, keepdims=True))
        shrink = np.exp(held[ROW, 0] - largest)
        total = held[ROW, 1] * shrink + np.sum(np.exp(scores - largest), axis=1, keepdims=True)
        held[ROW, 0], held[ROW, 1] = largest, total
        known[ROW, 0] = largest
    terms = evaluate(outer.bodies[0], _scope(run, own, known))
    held[SUM, 0] = held[SUM, 0] * shrink + np.sum(terms, axis=1, keepdims=True)


def _inner_sum(run: StageRun, inner: Reduction, own: dict[str, Array]) -> Array:
    """The inner contraction for every row and key."""
    extents = run.stage.op.extents()
    sizes = [extents[name] for name in inner.axes]
    places = np.unravel_index(np.arange(int(np.prod(sizes)), dtype=np.int64), sizes)
    axes = own | {name: place.reshape(1, 1, -1) for name, place in zip(inner.axes, places, strict=True)}
    return np.sum(evaluate(inner.bodies[0], _scope(run, axes, {})), axis=2, keepdims=True, dtype=np.float32)


def _store(run: StageRun, own: dict[str, Array], result: Array) -> None:
    op = run.stage.op
    where = f"{run.name}: store to {op.output.name}"
    at, _ = offsets(op.output.shape, op.target, own, True, where)
    flat, values = (np.ravel(one) for one in np.broadcast_arrays(at, result))
    if np.any(run.stored[flat]) or len(np.unique(flat)) < len(flat):
        raise ProgramError(f"{run.name} stores an element of {op.output.name} twice")
    run.memory.write(op.output, flat, values)
    run.counter.touch(STORE, flat, True)
    run.stored[flat] = True
