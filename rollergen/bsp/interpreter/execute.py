"""A bulk-synchronous program executed: supersteps in order, tiles in chunks, every byte and every tile counted.

Tiles of a superstep may be run in any order, as all of them read tensors that were complete before it and write
places of their own: running some at a time is the machine's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.interpreter.compute import Compute
from rollergen.bsp.interpreter.exchange import Counts, Gather
from rollergen.bsp.interpreter.stores import Stored, flat_of
from rollergen.bsp.interpreter.supersteps import MOST_POINTS, Points, points_of
from rollergen.bsp.interpreter.tile_tensors import TileTensor, planned, tile_tensor_of
from rollergen.bsp.program import partial_bytes, ranges_of, step_count, superstep
from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.values import Buffer, Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.check.program import check
from rollergen.program.interpreter import reduce
from rollergen.program.interpreter.memory import Memory
from rollergen.program.interpreter.values import Scope, evaluate
from rollergen.program.rprogram import RProgram, Stage
from rollergen.program.supersteps import PLANNED

Array = Any


@dataclass(frozen=True, eq=False)
class StepCount:
    """One superstep: bytes received, bytes sent (each once, however many listen) and fragments received, by tile."""

    stage: str
    received: Array
    sent: Array
    fragments: Array


@dataclass(frozen=True, eq=False)
class BulkInterpretation:
    """What a program did.  ``outputs`` and ``written`` by name; ``steps`` in order; ``live``: bytes of each
    [stage, tile], reserve included; ``owned``: bytes of each buffer on each tile."""

    outputs: dict[str, Any]
    written: dict[str, Any]
    steps: tuple[StepCount, ...]
    live: Array
    owned: dict[str, Array]

    @property
    def peak(self) -> int:
        """Bytes of the fullest tile."""
        return int(self.live.max())


def interpret_bulk(program: RProgram, arrays: Mapping[str, Any], device: Device) -> BulkInterpretation:
    """Executes `program` on `arrays` (by name; shapes and dtypes as declared) across all tiles.

    Raises ProgramError for a program that breaks an invariant, whose tiles read what they do not hold or what was
    never written, or exceed their memory; ArgumentError for wrong arrays.
    """
    check(program, device)
    if not program.tile_mappings:
        raise ProgramError("the program has no tile mappings; expected one of a bulk-synchronous machine")
    with np.errstate(all="ignore"):
        return _Machine(program, arrays, device).run()


class _Machine:
    def __init__(self, program: RProgram, arrays: Mapping[str, Any], device: Device) -> None:
        self.program, self.device = program, device
        self.given = Memory(program, arrays)
        self.tensors: dict[str, TileTensor] = {}
        self.steps: list[StepCount] = []
        self.working: list[Array] = []

    def run(self) -> BulkInterpretation:
        for buffer in self.program.inputs:
            self._load(buffer)
        for stage in self.program.stages:
            if superstep(stage).shares:
                self._combine(stage)
            else:
                self._run(stage)
        live = self._live()
        nothing = lambda b: (np.zeros(0, numpy_dtype(b.dtype)), np.zeros(0, bool))
        outputs = {b.name: self.tensors[b.name].whole() if b.elements else nothing(b) for b in self.program.outputs}
        return BulkInterpretation(
            {b.name: outputs[b.name][0].reshape(b.shape) for b in self.program.outputs},
            {b.name: outputs[b.name][1].reshape(b.shape) for b in self.program.outputs},
            tuple(self.steps), live, {name: tensor.bytes for name, tensor in self.tensors.items()},
        )  # fmt: skip

    def _load(self, buffer: Buffer) -> None:
        """An input's elements brought to their owners before the program starts."""
        mapping = next((mapping for mapping in self.program.tile_mappings if mapping.buffer == buffer.name), None)
        if mapping is None:
            return
        if mapping.rule != PLANNED:
            what = f"the tile mapping of {buffer.name}"
            raise ProgramError(f"{what} is {mapping.rule}; expected planned, as for every input")
        stage = next(stage for stage in self.program.stages if stage.name == mapping.stage)
        tensor = planned(stage, mapping.load, buffer, self.device)
        values = np.asarray(self.given.array(buffer)).reshape(-1)
        tensor.write(values)
        self.tensors[buffer.name] = tensor

    def _live(self) -> Array:
        """Bytes on each tile while each stage runs; ProgramError where a tile's memory is exceeded."""
        memory, rows = self.device.layers[1], []
        for number, (stage, working) in enumerate(zip(self.program.stages, self.working, strict=True)):
            held = memory.reserved_bytes + working
            for name, tensor in self.tensors.items():
                if self._exists(name, number):
                    held = held + tensor.bytes
            if held.max() > memory.capacity_bytes:
                raise ProgramError(
                    f"stage {stage.name}: tile {int(held.argmax())} holds {int(held.max())} bytes; expected at most "
                    f"{memory.capacity_bytes}, the {memory.name} of {self.device.name}"
                )
            rows.append(held)
        return np.array(rows)

    def _exists(self, name: str, number: int) -> bool:
        if all(name != buffer.name for buffer in self.program.temporaries):
            return True
        uses = [
            n for n, stage in enumerate(self.program.stages)
            if name == stage.op.output.name or any(name == x.buffer.name for x in stage.op.loads())
        ]  # fmt: skip
        return uses[0] <= number <= uses[-1]

    # A stage, block b on tile b ------------------------------------------------------------------

    def _run(self, stage: Stage) -> None:
        count, where = step_count(stage), f"stage {stage.name}"
        ranges = ranges_of(stage)
        counts = Counts(self.device.units, count)
        gathers = [
            Gather(stage, number, self.tensors[load.buffer.name], ranges, self.device)
            for number, load in enumerate(stage.op.loads())
        ]
        stored = Stored(stage, self.device, self._is_parts(stage))
        for tiles in _chunks(stage, gathers):
            compute = Compute(stage, where)
            for step in range(count):
                locals_ = {g.load: g.fetch(tiles, step, counts, where) for g in gathers}
                points = points_of(stage, ranges, tiles, step)
                compute.add(points, locals_)
            stored.take(tiles, points, compute.results(points, locals_))
        for gather in gathers:
            gather.finish(counts)
        self.tensors[stage.op.output.name] = stored.tensor()
        working = np.zeros(self.device.units, dtype=np.int64)
        extra = 0 if self._is_parts(stage) else partial_bytes(stage, self.device)
        working[: stage.blocks] = sum(gather.bytes for gather in gathers) + extra
        self.working.append(working)
        self.steps += [
            StepCount(stage.name, counts.received[:, s], counts.sent[:, s], counts.fragments[:, s])
            for s in range(count)
        ]

    def _is_parts(self, stage: Stage) -> bool:
        return any(superstep(other).shares == stage.op.output.name for other in self.program.stages)

    # Shares of blocks ----------------------------------------------------------------------------

    def _combine(self, stage: Stage) -> None:
        """Every block's parts added by the tiles that hold them, each a share, in rising order."""
        op, where = stage.op, f"stage {stage.name}"
        parts = self.tensors[superstep(stage).shares]
        points = _all_points(stage)
        (reduction,) = op.reductions
        (load,) = op.body_loads()
        name = reduction.axes[0]
        elements = []
        for part in range(op.axis(name).extent):
            values = {**points.values, name: np.full((1,), part)}
            elements.append(_flat(load.indices, load.buffer.shape, values, len(next(iter(points.values.values())))))
        held = np.stack([parts.tile[one] for one in elements])
        slots = np.stack([parts.address[one] - parts.tile[one] * np.int64(parts.width) for one in elements])
        finisher, order = _finishers(held, slots[0], ITEMSIZE[load.dtype])
        counts = Counts(self.device.units, 1)
        total: tuple[Array, ...] = ()
        for part, one in enumerate(elements):
            _count_part(counts, parts, one[order], finisher[order], slots[part][order])
            body = evaluate(reduction.bodies[0], Scope(load=_reader(parts, one, where)))
            total = reduce.combine(reduction.combiner, total, (body,)) if total else (body,)
        finished = {(reduction.name, 0): total[0]}
        result = evaluate(
            op.result, Scope(partials=finished, index=lambda index: index.evaluate(points.values))
        )
        flat = _flat(op.target, op.output.shape, points.values, len(finisher))
        tile, place = np.full((2, op.output.elements), -1, dtype=np.int64)
        tile[flat] = finisher
        place[flat[order]] = np.arange(len(order))
        tensor = tile_tensor_of(op.output, tile, place, self.device.units)
        results = np.empty(op.output.elements, tensor.values.dtype)
        results[flat] = np.broadcast_to(result, flat.shape)
        tensor.write(results)
        self.tensors[op.output.name] = tensor
        self.working.append(-(-counts.received[:, 0] // 8) * 8)
        self.steps.append(StepCount(stage.name, counts.received[:, 0], counts.sent[:, 0], counts.fragments[:, 0]))


def _chunks(stage: Stage, gathers: list[Gather]) -> Iterator[Array]:
    """Tiles that are run together: as many as keep arrays small."""
    largest = max([prod(g.shape) for g in gathers] + [_points_of_tile(stage)], default=1)
    size = max(1, MOST_POINTS // largest)
    for begin in range(0, stage.blocks, size):
        yield np.arange(begin, min(begin + size, stage.blocks))


def _points_of_tile(stage: Stage) -> int:
    """Points of one block that are in an array at once: results, and what is gathered for products."""
    op = stage.op
    blocks = {axis.name: 1 for axis in op.axes}
    for loop in stage.loops:
        if loop.kind != "grid":
            blocks[loop.axis] *= loop.extent
    axes = [load.axes() for load in op.body_loads()]
    spatial = [axis.name for axis in op.of_role("spatial", "row")]
    sizes = [prod(blocks[name] for name in one) for one in axes]
    return max([prod(blocks[name] for name in spatial), *sizes], default=1)


def _all_points(stage: Stage) -> Points:
    """Every spatial point of a tensor op, as vectors."""
    op = stage.op
    spatial = op.of_role("spatial")
    shape = [axis.extent for axis in spatial]
    numbers = np.arange(prod(shape))
    values = dict(zip((axis.name for axis in spatial), np.unravel_index(numbers, shape), strict=True)) if shape else {}
    if not values:
        values = {"": numbers}
    return Points(op, values, tuple(shape))


def _flat(indices: Any, shape: tuple[int, ...], values: Mapping[str, Array], count: int) -> Array:
    """Flat element numbers of vectors of points."""
    return flat_of(indices, shape, values, (count,))


def _reader(parts: TileTensor, elements: Array, where: str) -> Callable[[Load, Array], Array]:
    return lambda load, wanted: parts.read(parts.address[elements], where)


def _finishers(held: Array, slot: Array, item: int) -> tuple[Array, Array]:
    """(tile that finishes each point, points by block and place): a block's points are dealt in granules to the
    tiles that hold its parts."""
    parts = len(held)
    order = np.lexsort((slot, held[0]))
    block = held[0][order]
    begin = np.flatnonzero(np.concatenate([[True], block[1:] != block[:-1]]))
    sizes = np.diff(np.append(begin, len(block)))
    number = np.repeat(np.arange(len(begin)), sizes)
    rank = np.arange(len(block)) - begin[number]
    each = max(1, 8 // item)
    granules = -(-sizes // each)
    short, longer = (granules // parts)[number], (granules % parts)[number]
    granule = rank // each
    edge = longer * (short + 1)
    share = np.where(granule < edge, granule // (short + 1), longer + (granule - edge) // np.maximum(short, 1))
    finisher = np.empty(len(block), dtype=np.int64)
    finisher[order] = held[share, order]
    return finisher, order


def _count_part(counts: Counts, parts: TileTensor, elements: Array, finisher: Array, slot: Array) -> None:
    """One part's elements on their way to the tiles that finish them."""
    sender = parts.tile[elements]
    remote = sender != finisher
    item = ITEMSIZE[parts.buffer.dtype]
    counts.received[:, 0] += item * np.bincount(finisher[remote], minlength=len(counts.received))
    counts.send(parts, elements[remote], 0)
    same = (sender[1:] == sender[:-1]) & (finisher[1:] == finisher[:-1]) & (slot[1:] == slot[:-1] + 1)
    begins = np.flatnonzero(remote & np.concatenate([[True], ~(same & remote[:-1])]))
    counts.fragments[:, 0] += np.bincount(finisher[begins], minlength=len(counts.fragments))
