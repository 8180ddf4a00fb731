"""Every superstep of a bulk-synchronous program: bytes exchanged, memory held and clocks, tile by tile."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.model.clocks import (
    MatrixWork,
    matrix_clocks,
    partials_clocks,
    phase_operations,
    plain_clocks,
    result_clocks,
    size_of,
)
from rollergen.bsp.model.dealing import Operand, operand
from rollergen.bsp.program import (
    GRANULE_BYTES,
    block_extents,
    index_interval,
    matrix_instruction,
    partial_bytes,
    partial_shape,
    ranges_of,
    round_up,
    step_count,
    steps_of_load,
    superstep,
)
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.costs import costs_of
from rollergen.program.rprogram import RProgram, Stage
from rollergen.program.supersteps import FINISHED

Array = Any


@dataclass(frozen=True, eq=False)
class StepFacts:
    """One superstep.  Bytes and fragments for each tile; clocks are those of the slowest tile, part by part.

    ``received_by``: bytes by the tensor they are of.  ``fragments`` bounds the runs that arrive from above.
    """

    stage: str
    received: Array
    sent: Array
    fragments: Array
    received_by: tuple[tuple[str, Array], ...]
    exchange: float
    local: float
    compute: float
    sync: float
    kind: str

    @property
    def clocks(self) -> float:
        return self.sync + self.exchange + self.local + self.compute


@dataclass(frozen=True, eq=False)
class BulkFacts:
    """All supersteps of a program, in order; ``live`` are the bytes of each [stage, tile], reserve included, and
    ``copies`` of each stage those of (load, bytes of its copy); ``partials`` the bytes beside the output;
    ``owned`` the bytes of each buffer on each tile."""

    steps: tuple[StepFacts, ...]
    live: Array
    copies: tuple[tuple[tuple[int, int], ...], ...]
    partials: tuple[int, ...]
    owned: Mapping[str, Array]
    capacity: int

    @property
    def peak(self) -> int:
        """Bytes of the fullest tile."""
        return int(self.live.max())

    @property
    def shortfall(self) -> int:
        """Bytes by which the fullest tile exceeds its memory."""
        return max(0, self.peak - self.capacity)

    @property
    def clocks(self) -> float:
        return sum(step.clocks for step in self.steps)


def bulk_facts(program: RProgram, device: Device) -> BulkFacts:
    """What `program` costs on `device`, superstep by superstep."""
    return _Account(program, device).facts()


def without_exchange(program: RProgram, device: Device) -> frozenset[tuple[str, int]]:
    """(stage, load) pairs that need no exchange: all that every tile wants lies on it."""
    account, found = _Account(program, device), set()
    for stage in program.stages:
        if stage.name in account.shares:
            continue
        for number in range(len(stage.op.loads())):
            one = account.operand(stage, number)
            if np.array_equal(one.wanted, account.own(stage, number)):
                found.add((stage.name, number))
    return frozenset(found)


class _Account:
    """Collects the facts of one program, stage by stage."""

    def __init__(self, program: RProgram, device: Device) -> None:
        self.program, self.device, self.costs = program, device, costs_of(device)
        self.stages = {stage.name: stage for stage in program.stages}
        self._operands: dict[tuple[str, int], Operand] = {}
        self.owned: dict[str, Array] = {}
        self.shares = {s.name: _shares(self.writer(superstep(s).shares)) for s in program.stages if superstep(s).shares}

    def facts(self) -> BulkFacts:
        memory = self.device.layers[1]
        for mapping in self.program.tile_mappings:
            self.owned[mapping.buffer] = self._owned_bytes(mapping.buffer)
        steps: list[StepFacts] = []
        live, copies, partials = [], [], []
        for number, stage in enumerate(self.program.stages):
            held = np.full(self.device.units, memory.reserved_bytes, dtype=np.int64)
            for name in self._live(number):
                held = held + self.owned[name]
            own = self._copies(stage)
            extra = partial_bytes(stage, self.device) if self._is_separate(stage) else 0
            held[: self._tiles(stage)] += sum(size for _, size in own) + extra
            made = self._shared(stage) if stage.name in self.shares else self._steps(stage)
            if stage.name in self.shares:
                held = held + round_up(self._widened(made[0].received))
            steps += made
            live.append(held)
            copies.append(own)
            partials.append(extra)
        return BulkFacts(
            tuple(steps), np.array(live), tuple(copies), tuple(partials), self.owned, memory.capacity_bytes
        )

    def writer(self, buffer: str) -> Stage:
        return next(stage for stage in self.program.stages if stage.op.output.name == buffer)

    def _is_separate(self, stage: Stage) -> bool:
        """Whether partial results lie beside the output: not where the output is the partial results."""
        return all(superstep(s).shares != stage.op.output.name for s in self.program.stages)

    def _tiles(self, stage: Stage) -> int:
        return self.writer(superstep(stage).shares).blocks if stage.name in self.shares else stage.blocks

    def _live(self, number: int) -> list[str]:
        """Buffers that exist while stage `number` runs: temporaries from their writer to their last reader."""
        names = [b.name for b in (*self.program.inputs, *self.program.outputs)]
        for buffer in self.program.temporaries:
            uses = [
                n for n, stage in enumerate(self.program.stages)
                if buffer.name in {stage.op.output.name, *(x.buffer.name for x in stage.op.loads())}
            ]  # fmt: skip
            if uses and uses[0] <= number <= uses[-1]:
                names.append(buffer.name)
        return [name for name in names if name in self.owned]

    def _copies(self, stage: Stage) -> tuple[tuple[int, int], ...]:
        if stage.name in self.shares:
            return ()
        return tuple((number, self.operand(stage, number).copy) for number in superstep(stage).copied)

    def operand(self, stage: Stage, number: int) -> Operand:
        key = stage.name, number
        if key not in self._operands:
            self._operands[key] = operand(stage, number, self.device)
        return self._operands[key]

    def own(self, stage: Stage, number: int) -> Array:
        return _own(self, stage, number, self.operand(stage, number))

    # Owners ------------------------------------------------------------------------------------

    def _owned_bytes(self, buffer: str) -> Array:
        """Bytes on each tile; what nobody wants of an input lies evenly with all tiles of its first reader."""
        mapping = self.program.mapping(buffer)
        stage = self.stages[mapping.stage]
        if mapping.rule == FINISHED:
            return self._widened(self._finished(stage))
        load, one = stage.op.loads()[mapping.load], self.operand(stage, mapping.load)
        left = load.buffer.elements * ITEMSIZE[load.dtype] - int(one.own.sum())
        granules = -(-left // GRANULE_BYTES)
        tiles = np.arange(stage.blocks)
        return self._widened(one.owned + GRANULE_BYTES * (granules // len(tiles) + (tiles < granules % len(tiles))))

    def _finished(self, stage: Stage) -> Array:
        """Bytes of what each tile stores."""
        item = ITEMSIZE[stage.op.output.dtype]
        if stage.name in self.shares:
            return round_up(self.shares[stage.name] * item)
        if not self._is_separate(stage):
            padded = prod(partial_shape(stage, self.device).values())
            return np.full(stage.blocks, round_up(padded * item), dtype=np.int64)
        return round_up(_stored(stage) * item)

    def _is_planned(self, stage: Stage, number: int) -> bool:
        """Whether the load's tensor was dealt for this very load; of others, what is sent and in how many runs is
        only bounded: everything that a tile has, element by element."""
        mapping = self.program.mapping(stage.op.loads()[number].buffer.name)
        return (mapping.stage, mapping.load) == (stage.name, number)

    def _most_sent(self, load: Load, part: Array) -> Array:
        return self.owned[load.buffer.name][:, None] * bool(part.any())

    def _widened(self, values: Array) -> Array:
        """One figure (or row) for each tile of the device; those without a block have none."""
        missing = max(0, self.device.units - len(values))
        return np.concatenate([values, np.zeros((missing, *values.shape[1:]), dtype=np.int64)])

    # Supersteps --------------------------------------------------------------------------------

    def _steps(self, stage: Stage) -> list[StepFacts]:
        count = step_count(stage)
        received = np.zeros((stage.blocks, count), dtype=np.int64)
        own, sent, fragments = (np.zeros((self.device.units, count), dtype=np.int64) for _ in range(3))
        by: list[tuple[str, Array]] = []
        for number in superstep(stage).copied:
            load, one = stage.op.loads()[number], self.operand(stage, number)
            here = self.own(stage, number)
            part = one.wanted - here
            at = slice(None) if steps_of_load(stage, load) else slice(0, 1)
            received[:, at] += part
            own[: stage.blocks, at] += here
            planned = self._is_planned(stage, number)
            sent[:, at] += self._widened(one.sent) if planned else self._most_sent(load, part)
            runs = one.fragments if planned else part // ITEMSIZE[load.dtype]
            fragments[: stage.blocks, at] += np.where(part > 0, np.maximum(runs, 1), 0)
            by.append((load.buffer.name, part))
        compute, kind = self._compute(stage)
        return [
            self._step(
                stage, received[:, s], sent[:, s], fragments[: stage.blocks, s], own[:, s],
                tuple((name, part[:, min(s, part.shape[1] - 1)] * (s < part.shape[1])) for name, part in by),
                compute + (self._finish(stage) if s == count - 1 else 0), kind,
            )
            for s in range(count)
        ]  # fmt: skip

    def _step(
        self, stage: Stage, received: Array, sent: Array, fragments: Array, own: Array,
        by: tuple[tuple[str, Array], ...], compute: float, kind: str,
    ) -> StepFacts:  # fmt: skip
        remote = self.device.backing
        moved = [
            received.max(initial=0) / self.device.read_bytes_per_clock(remote),
            sent.max(initial=0) / self.device.written_bytes_per_clock(remote),
            self.costs.fragment_clocks * fragments.max(initial=0),
        ]
        local = own.max(initial=0) * self.costs.home_copy_clocks
        return StepFacts(
            stage.name, received, sent, fragments, by, float(np.ceil(max(moved))), float(np.ceil(local)),
            float(compute), self.costs.exchange_clocks, kind,
        )  # fmt: skip

    def _compute(self, stage: Stage) -> tuple[float, str]:
        """Clocks of one superstep's arithmetic, but for what follows the last one; and what it is."""
        blocks: dict[str, Any] = dict(block_extents(stage))
        for position in superstep(stage).steps:
            loop = stage.loops[position]
            blocks[loop.axis] = min(blocks[loop.axis], loop.stride)
        instruction = matrix_instruction(stage, self.device)
        if instruction is None:
            return plain_clocks(stage.op, blocks, self.device), "vector"
        return matrix_clocks(matrix_work(stage, blocks), instruction, self.device), "amp"

    def _finish(self, stage: Stage) -> float:
        if matrix_instruction(stage, self.device) is None or not self._is_separate(stage):
            return 0
        blocks = block_extents(stage)
        outputs = prod(blocks[a.name] for a in stage.op.of_role("spatial"))
        return result_clocks(stage.op, outputs, self.device)

    def _shared(self, stage: Stage) -> list[StepFacts]:
        """Parts of one block, combined in shares by the tiles that hold them."""
        writer, shares = self.writer(superstep(stage).shares), self.shares[stage.name]
        parts = writer.op.output.shape[0]
        item = ITEMSIZE[writer.op.output.dtype]
        received = (parts - 1) * shares * item
        sent = (_stored(writer) - shares) * item
        compute = partials_clocks(parts, int(shares.max()), self.device)
        if phase_operations(stage.op, self.device)[-1]:
            compute += result_clocks(stage.op, int(shares.max()), self.device)
        fragments = (parts - 1) * np.minimum(_runs(writer, self.device), shares)
        by = ((writer.op.output.name, received),)
        return [self._step(stage, received, sent, fragments, np.zeros(1), by, compute, "reduce")]


def _stored(stage: Stage) -> Array:
    """Elements that each tile stores: its block, as far as the axes reach."""
    intervals = ranges_of(stage, whole=True).intervals
    total: Array = np.ones((stage.blocks, 1), dtype=np.int64)
    for axis in stage.op.of_role("spatial", "row"):
        first, last = intervals[axis.name]
        total = total * np.maximum(last - first + 1, 0)
    return np.broadcast_to(total, (stage.blocks, 1))[:, 0]


def _runs(stage: Stage, device: Device) -> Array:
    """How many runs of adjacent places each tile's partial results fill in a whole block's, digit by digit of
    their order, innermost first: what is whole inside goes on."""
    shape, instruction = partial_shape(stage, device), matrix_instruction(stage, device)
    intervals = ranges_of(stage, whole=True).intervals
    outputs, unit = (superstep(stage).outputs, instruction.n) if instruction is not None else ("", 1)
    runs: Array = np.ones((stage.blocks, 1), dtype=np.int64)
    length = {name: np.maximum(intervals[name][1] - intervals[name][0] + 1, 1) for name in shape}
    whole: Array = length[outputs] % unit == 0 if outputs else np.ones_like(runs, dtype=bool)
    for name in reversed([name for name in shape if name != outputs]):
        runs = np.where(whole, runs, runs * length[name])
        whole = whole & (length[name] == shape[name])
    if outputs:
        runs = np.where(whole, runs, runs * -(-length[outputs] // unit))
    return np.broadcast_to(runs, (stage.blocks, 1))[:, 0]


def _shares(writer: Stage) -> Array:
    """Elements of its block that each tile of `writer` finishes: the tile's number among those of the block is
    its part's."""
    item = ITEMSIZE[writer.op.output.dtype]
    parts, part = writer.op.output.shape[0], writer.op.axes[0].name
    number = np.broadcast_to(ranges_of(writer, whole=True).intervals[part][0], (writer.blocks, 1))[:, 0]
    granules = -(-_stored(writer) * item // GRANULE_BYTES)
    share = granules // parts + (number < granules % parts)
    start = number * (granules // parts) + np.minimum(number, granules % parts)
    each = GRANULE_BYTES // item
    return np.clip(_stored(writer) - start * each, 0, share * each)


def _own(account: _Account, stage: Stage, number: int, one: Operand) -> Array:
    """Of what a tile wants, the bytes that lie on it; 0, a bound, where the tensor was dealt for another reader in
    other blocks."""
    load = stage.op.loads()[number]
    mapping = account.program.mapping(load.buffer.name)
    if (mapping.stage, mapping.load) == (stage.name, number):
        return one.own
    if mapping.rule == FINISHED and mapping.stage not in account.shares:
        kept = _overlap(account.stages[mapping.stage], stage, load)
        if kept is not None:
            return kept
    return np.zeros_like(one.own)


def _overlap(writer: Stage, reader: Stage, load: Load) -> Array | None:
    """Bytes that a tile wants and has stored itself; None where the two see the tensor in different shapes."""
    output = writer.op.output
    if output.shape != load.buffer.shape or writer.op.where:
        return None
    ranges = ranges_of(reader, whole=not steps_of_load(reader, load))
    made = ranges_of(writer, whole=True)
    tiles = min(ranges.tiles, made.tiles)
    total: Array = np.full((tiles, ranges.steps), ITEMSIZE[load.dtype], dtype=np.int64)
    for wanted, stored, extent in zip(load.indices, writer.op.target, output.shape, strict=True):
        if not (_plain(wanted) and _plain(stored)):
            return None
        low, high = (_cut(x, tiles, ranges) for x in index_interval(wanted, ranges.intervals))
        first, last = (_cut(x, tiles, made) for x in index_interval(stored, made.intervals))
        both = np.minimum(np.minimum(high, last), extent - 1) - np.maximum(np.maximum(low, first), 0) + 1
        total = total * np.maximum(both, 0)
    whole = np.zeros((ranges.tiles, ranges.steps), dtype=np.int64)
    whole[:tiles] = total
    return whole


def _plain(index: Any) -> bool:
    """Whether an index reaches every element between its bounds."""
    return index.is_affine and (len(index.terms) == 0 or min(abs(c) for _, c in index.terms) == 1)


def _cut(array: Array, tiles: int, ranges: Any) -> Array:
    return np.broadcast_to(array, (ranges.tiles, ranges.steps))[:tiles]


def matrix_work(stage: Stage, blocks: Mapping[str, Any]) -> MatrixWork:
    """The matrix vertices of a tile's block: axes that both factors have make vertices of their own."""
    step, op = superstep(stage), stage.op
    loads = op.body_loads()
    weights = loads[step.weights].axes()
    inputs = frozenset().union(*(load.axes() for n, load in enumerate(loads) if n != step.weights))
    spatial = [axis.name for axis in op.of_role("spatial")]
    rows = [name for name in spatial if name in inputs and name not in weights]
    taps = [axis.name for axis in op.of_role("reduce") if axis.name != step.inputs]
    others = [name for name in spatial if name not in rows and name != step.outputs]
    return MatrixWork(
        size_of(blocks, others), size_of(blocks, rows), blocks[rows[-1]] if rows else 1, blocks[step.outputs],
        blocks[step.inputs], size_of(blocks, taps),
    )  # fmt: skip
