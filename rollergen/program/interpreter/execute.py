"""Reader 2: an rProgram executed in NumPy, layer by layer, with the traffic counted from addresses.

Exact where the arithmetic is (small integers), and independent: it shares neither closed forms nor
costs nor loops with the other readers, only the program's definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError, ProgramError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.places import put_of
from rollergen.expr.tensor_op import Reduction, Running, summed_axes
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.blocks import grid_positions
from rollergen.program.check.program import check
from rollergen.program.interpreter import points as nest
from rollergen.program.interpreter import reduce
from rollergen.program.interpreter.chains import run_chain_block
from rollergen.program.interpreter.levels import Levels
from rollergen.program.interpreter.loads import executed_everywhere, fill, fill_ring, read_load, read_take
from rollergen.program.interpreter.memory import Memory, offsets, poison
from rollergen.program.interpreter.plan import StagePlan, Traversal, plan_stage, tile_box
from rollergen.program.interpreter.points import Array, Box, Points, both
from rollergen.program.interpreter.run import StageRun, TilePass, cut, shape_of
from rollergen.program.interpreter.scans import scanned
from rollergen.program.interpreter.values import Scope, evaluate
from rollergen.program.layers import block_capacity, managed_bytes
from rollergen.program.rprogram import KeptRow, RProgram, Stage
from rollergen.program.traffic import STORE, Traffic, TrafficCounter

Blocks = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Interpretation:
    """What a program did.

    ``outputs`` and ``temporaries`` map names to arrays; elements that nothing wrote are NaN (integers:
    the least of the dtype) and False in ``written``.  ``traffic``: one record for each load and the
    store of each stage, in launch order.
    """

    outputs: dict[str, Any]
    written: dict[str, Any]
    traffic: tuple[Traffic, ...]
    temporaries: dict[str, Any]


def interpret(
    program: RProgram,
    arrays: Mapping[str, Any],
    device: Device,
    blocks: Blocks | None = None,
    *,
    layer: str | None = None,
) -> Interpretation:
    """Executes `program` on `arrays` (by name; shapes and dtypes as declared).

    `blocks` maps stage names to the block numbers to run; other stages run in full.
    Traffic is counted in transactions of the device's backing store, or of `layer`.

    Raises ProgramError for a program that breaks an invariant, exceeds a managed layer, or reads what
    was never written; ArgumentError for wrong arrays or block numbers.
    """
    check(program, device)
    return execute(program, arrays, device, blocks, layer=layer)


def execute(
    program: RProgram,
    arrays: Mapping[str, Any],
    device: Device,
    blocks: Blocks | None = None,
    *,
    layer: str | None = None,
) -> Interpretation:
    """Runs the program as `interpret` does, without checking it first."""
    chosen = _chosen_blocks(program, blocks or {})
    memory = Memory(program, arrays)
    transaction_bytes = (device.layer(layer) if layer else device.backing).transaction_bytes
    traffic: list[Traffic] = []
    with np.errstate(all="ignore"):
        for stage in program.stages:
            _require_capacity(stage, device)
            counter = TrafficCounter(stage.name, stage.op, transaction_bytes)
            run = StageRun(_planned(stage, device), memory, counter)
            of_block = run_block if stage.inner is None else run_chain_block
            for number in chosen[stage.name]:
                of_block(run, number)
            traffic.extend(counter.records())
    return Interpretation(
        outputs={buffer.name: memory.array(buffer) for buffer in program.outputs},
        written={buffer.name: memory.mask(buffer) for buffer in (*program.temporaries, *program.outputs)},
        traffic=tuple(traffic),
        temporaries={buffer.name: memory.array(buffer) for buffer in program.temporaries},
    )


def _planned(stage: Stage, device: Device) -> StagePlan:
    """The stage's plan; the blocks of a chain read memory as they go, whatever they keep of it."""
    if stage.inner is None:
        return plan_stage(stage, device)
    return replace(plan_stage(replace(stage, copies=()), device), stage=stage)


def _chosen_blocks(program: RProgram, blocks: Blocks) -> dict[str, Sequence[int]]:
    names = [stage.name for stage in program.stages]
    for name, numbers in blocks.items():
        if name not in names:
            raise ArgumentError(f"blocks names a stage {name!r}; the program has {names}")
        count = program.stages[names.index(name)].blocks
        wrong = [n for n in numbers if not 0 <= n < count]
        if wrong or len(set(numbers)) != len(numbers):
            raise ArgumentError(f"blocks[{name!r}] is {list(numbers)}; expected distinct numbers from 0 to {count - 1}")
    return {stage.name: blocks.get(stage.name, _in_order(stage)) for stage in program.stages}


def _in_order(stage: Stage) -> Sequence[int]:
    """Every block's number, those together that one launched block computes."""
    launched = stage.launched_blocks
    return [number for first in range(launched) for number in range(first, stage.blocks, launched)]


def _require_capacity(stage: Stage, device: Device) -> None:
    for layer, used in managed_bytes(stage, device).items():
        if used > block_capacity(layer, device):
            raise ProgramError(
                f"stage {stage.name}: one block takes {used} bytes of {layer}; "
                f"expected at most {block_capacity(layer, device)} on {device.name}"
            )


# Loops -----------------------------------------------------------------------------------------


def run_block(run: StageRun, number: int) -> None:
    """Everything that one block does, and its share of the traffic."""
    stage, start = run.stage, run.plan.start
    run.block = number
    run.tiles.clear()
    run.rings.clear()
    box = nest.block_box(stage, grid_positions(stage, number))
    outer = tuple(n for n, copy in enumerate(stage.copies) if copy.at_loop <= start)
    for tile in walk(run, box, nest.first_inner(stage), start, _ordered(run, outer)):
        run_tile(run, TilePass(tile))
    direct = tuple(load for load, chain in enumerate(run.plan.chains) if not chain)
    taken = range(len(run.plan.chains), len(stage.op.reads()))
    run.counter.close_block((*direct, *taken, STORE))


def _ordered(run: StageRun, numbers: Sequence[int]) -> tuple[int, ...]:
    """The copies so that each comes after the one it reads from."""
    return tuple(n for chain in run.plan.chains for n in chain if n in numbers)


def walk(run: StageRun, box: Box, depth: int, stop: int, due: tuple[int, ...]) -> Iterator[Box]:
    """The boxes at depth `stop`, in the order of the nest; copies of `due` are filled at their depth."""
    for number in due:
        if run.stage.copies[number].at_loop != depth:
            continue
        if run.stage.copies[number].asynchronous:
            fill_ring(run, number, box, nest.trip_count(run.stage, box, depth - 1))
        else:
            fill(run, number, box)
    if depth == stop:
        yield box
        return
    start, end = box.ranges[depth]
    for value in range(start, min(end, nest.trip_count(run.stage, box, depth))):
        yield from walk(run, box.fix(depth, value), depth + 1, stop, due)


def run_tile(run: StageRun, tile: TilePass) -> None:
    """Accumulators made, reductions one after the other, results stored."""
    stage = run.stage
    first, last = is_first(stage, tile.box, run.plan.start), is_last(stage, tile.box, run.plan.start)
    *reductions, result = run.plan.traversals
    for traversal, reduction in zip(reductions, stage.op.reductions, strict=True):
        if isinstance(reduction, Running):
            run_scan(run, tile, traversal, reduction)
        else:
            run_reduction(run, tile, traversal, reduction, first)
    if last:
        store_results(run, tile, result)
    else:
        store_partial(run, tile)


def traverse(run: StageRun, tile: TilePass, traversal: Traversal) -> Iterator[Box]:
    """The leaves of a traversal: boxes whose points are computed at once, with their copies filled."""
    start, stop = run.plan.start, traversal.depth
    depths = {n: run.stage.copies[n].at_loop for n in traversal.copies}
    box = tile_box(tile.box, traversal)
    for leaf in walk(run, box, start, stop, tuple(n for n in traversal.copies if start < depths[n] <= stop)):
        for number in traversal.copies:
            if depths[number] > stop:
                fill(run, number, leaf)
        yield leaf


def is_first(stage: Stage, box: Box, depth: int) -> bool:
    """Whether no reduce loop outside `depth` has run before."""
    return all(box.start(p) == 0 for p in carried_loops(stage, depth))


def is_last(stage: Stage, box: Box, depth: int) -> bool:
    """Whether no reduce loop outside `depth` has an iteration left that is executed."""
    loops = carried_loops(stage, depth)
    return tuple(box.start(p) for p in loops) == last_iterations(stage, box, loops)


def last_iterations(stage: Stage, box: Box, loops: tuple[int, ...]) -> tuple[int, ...] | None:
    """Values of nested `loops` at the last iteration of all that is executed; None if none is."""
    if not loops:
        return ()
    for value in reversed(range(nest.trip_count(stage, box, loops[0]))):
        inner = last_iterations(stage, box.fix(loops[0], value), loops[1:])
        if inner is not None:
            return (value, *inner)
    return None


def carried_loops(stage: Stage, depth: int) -> tuple[int, ...]:
    reduced = reduce.reduced_axes(stage)
    inner = nest.first_inner(stage)
    return tuple(p for p, loop in enumerate(stage.loops[:depth]) if p >= inner and loop.axis in reduced)


# Computation -----------------------------------------------------------------------------------


def run_reduction(run: StageRun, tile: TilePass, traversal: Traversal, reduction: Reduction, first: bool) -> None:
    """One reduction over all its points, finished into the pass's partials."""
    stage, box, combiner = run.stage, tile.box, reduction.combiner
    levels = Levels(stage, reduction, box, traversal.depth)
    for leaf in traverse(run, tile, traversal):
        points = Points.of_box(stage, leaf)
        scope = leaf_scope(run, tile, traversal, leaf, points)
        bodies = tuple(evaluate(value, scope) for value in traversal.values)
        bodies = reduce.masked(combiner, bodies, executed_everywhere(points, reduction.axes))
        levels.add(leaf, bodies)
    found = levels.finished()
    if not first:
        found = reduce.combine(combiner, (waiting(run, tile, reduction),), found)
    for component, part in enumerate(found):
        tile.partials[reduction.name, component] = part


def run_scan(run: StageRun, tile: TilePass, traversal: Traversal, reduction: Running) -> None:
    """Values at all points of the row, in its order, each combined with all before it."""
    stage, combiner = run.stage, reduction.combiner
    shape = shape_of(stage, tile.box)
    whole = reduce.identities(combiner, shape)
    for leaf in traverse(run, tile, traversal):
        points = Points.of_box(stage, leaf)
        scope = leaf_scope(run, tile, traversal, leaf, points)
        bodies = tuple(evaluate(value, scope) for value in traversal.values)
        bodies = reduce.masked(combiner, bodies, executed_everywhere(points, reduction.axes))
        for array, body in zip(whole, bodies, strict=True):
            cut(array, stage, tile.box, leaf)[...] = body
    for component, part in enumerate(scanned(stage, reduction, whole)):
        tile.partials[reduction.name, component] = part


def leaf_scope(run: StageRun, tile: TilePass, traversal: Traversal, leaf: Box, points: Points) -> Scope:
    """What the leaves of the traversal's values mean at `points`; computes the kept rows due here."""
    stage = run.stage
    names = {name: cut(array, stage, tile.box, leaf) for name, array in tile.kept.items()}
    scope = Scope(
        names=names,
        partials={key: cut(array, stage, tile.box, leaf) for key, array in tile.partials.items()},
        load=lambda load, wanted: read_load(run, load, points, wanted),
        index=lambda index: index.evaluate(points.axes()),
        take=lambda take, places, wanted: read_take(run, take, places, points, wanted),
        wanted=executed_everywhere(points, [axis.name for axis in stage.op.axes]),
    )
    for kept_row in traversal.kept:
        names[kept_row.name] = keep(run, tile, kept_row, leaf, evaluate(kept_row.value, scope))
    return scope


def keep(run: StageRun, tile: TilePass, kept_row: KeptRow, leaf: Box, values: Array) -> Array:
    """A kept row's values at the points of `leaf`, put where later traversals find them."""
    if kept_row.name not in tile.kept:
        shape = shape_of(run.stage, tile.box)
        dtype = kept_row.value.dtype
        tile.kept[kept_row.name] = np.full(shape, poison(dtype), numpy_dtype(dtype))
    part = cut(tile.kept[kept_row.name], run.stage, tile.box, leaf)
    part[...] = values
    return part


# Results ---------------------------------------------------------------------------------------


def store_points(run: StageRun, points: Points) -> tuple[Array, Array]:
    """The element offsets of the output, and a mask of those that are stored."""
    op = run.stage.op
    chosen = executed_everywhere(points, [axis.name for axis in op.of_role("spatial", "row")])
    for bound in op.where:
        chosen = both(chosen, bound.evaluate(points.axes()))
    where = f"{run.name}: store to {op.output.name}"
    at, _ = offsets(op.output.shape, op.target, points.axes(), chosen, where)
    return at, chosen


def waiting(run: StageRun, tile: TilePass, reduction: Reduction) -> Array:
    """The partial results of earlier passes in the output; identities where nothing is stored."""
    stage = run.stage
    points = Points.of_box(stage, tile_box(tile.box, run.plan.traversals[-1]))
    at, chosen = store_points(run, points)
    where = f"{run.name}: partial results in {stage.op.output.name}"
    values = run.memory.read(stage.op.output, at, chosen, where)
    identity = reduction.combiner.identity[0]
    return np.where(chosen, values, numpy_dtype(identity.dtype).type(identity.value))


def store_partial(run: StageRun, tile: TilePass) -> None:
    """Unfinished partial results wait in the output."""
    points = Points.of_box(run.stage, tile_box(tile.box, run.plan.traversals[-1]))
    reduction = run.stage.op.reductions[0]
    at, chosen = store_points(run, points)
    put(run, at, chosen, tile.partials[reduction.name, 0])


def store_results(run: StageRun, tile: TilePass, traversal: Traversal) -> None:
    """Stores ``result`` at every point, each element once."""
    for leaf in traverse(run, tile, traversal):
        points = Points.of_box(run.stage, leaf)
        scope = leaf_scope(run, tile, traversal, leaf, points)
        values = evaluate(traversal.values[0], scope)
        if run.stage.store.adds:
            add(run, points, values)
            continue
        at, chosen = store_points(run, points)
        flat = put(run, placed(run, at, scope), chosen, values)
        if np.any(run.stored[flat]):
            raise ProgramError(f"{run.name} stores an element of {run.stage.op.output.name} twice")
        run.stored[flat] = True


def placed(run: StageRun, at: Array, scope: Scope) -> Array:
    """The offsets `at`, moved where the stage puts its results."""
    one = put_of(run.stage.op)
    if one is None:
        return at
    moved = at + one.multiple * evaluate(one.shift, scope).astype(np.int64)
    inside = (moved >= 0) & (moved < run.stage.op.output.elements)
    if not np.all(np.logical_or(inside, np.logical_not(scope.wanted))):
        raise ProgramError(f"{run.name}: a place leaves {run.stage.op.output.name}")
    return np.where(inside, moved, 0)


def add(run: StageRun, points: Points, values: Array) -> None:
    """Adds to what is there: every element once for each point of the axes along which places are shared."""
    at, chosen = store_points(run, points)
    flat, values = _picked(at, chosen, values)
    run.memory.add(run.stage.op.output, flat, values, f"{run.name}: sums in {run.stage.op.output.name}")
    run.counter.touch(STORE, flat, True)
    most = prod(axis.extent for axis in summed_axes(run.stage.op))
    run.added[flat] += 1
    if np.any(run.added[flat] > most):
        raise ProgramError(f"{run.name} adds to an element of {run.stage.op.output.name} over {most} times")


def put(run: StageRun, at: Array, chosen: Array, values: Array) -> Array:
    """Writes and counts; returns the flat offsets written."""
    flat, values = _picked(at, chosen, values)
    run.memory.write(run.stage.op.output, flat, values)
    run.counter.touch(STORE, flat, True)
    return flat


def _picked(at: Array, chosen: Array, values: Array) -> tuple[Array, Array]:
    """Flat offsets and values of what is chosen."""
    shape = np.broadcast_shapes(np.shape(at), np.shape(chosen), np.shape(values))
    at, values = np.broadcast_to(at, shape), np.broadcast_to(values, shape)
    if chosen is not True:
        kept = np.broadcast_to(chosen, shape)
        at, values = at[kept], values[kept]
    return np.asarray(at).reshape(-1), np.asarray(values).reshape(-1)


__all__ = ["Interpretation", "execute", "interpret"]
