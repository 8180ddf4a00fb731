"""Reader 1 of the rProgram: its predicted time, from named limiters in closed form.

One model for all devices: which terms apply follows from what the spec has (banks, sets and ways, ports, a
reorder window, translation buffers, ...); every constant is a field of the spec (`model_costs.MEANINGS`).

A limiter is the time that one resource of the busiest unit would need alone.  Limiters of resources that
work side by side combine as a p-norm; what no overlap hides is added; the backing store's bandwidth
is a floor; a launch is paid on top.  Sources: ROLLER (OSDI 2022) section 3.4 for the idea; terms and
constants were chosen on measured programs of GPUs and of a CPU, see `benches/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model_access import Access, path_layer
from rollergen.program.model_costs import Costs, costs_of
from rollergen.program.model_facts import ITEMSIZE, facts_of
from rollergen.program.model_memory import Stream, Walks, cache_of, sets_reached, tlb_cache
from rollergen.program.model_nest import Nest, Waves, nest_of, waves_of
from rollergen.program.model_numeric import Number, ceil_div, choose, least, most, ratio, whole
from rollergen.program.model_work import Work, register_cap, work_of
from rollergen.program.rprogram import RProgram, Stage

OVERLAPS, ADDS, FLOOR = "overlaps", "adds", "floor"


@dataclass(frozen=True, slots=True, eq=False)
class Limiter:
    """The time that one resource needs: ``seconds``, and ``clocks`` of the busiest unit.

    ``how``: overlaps with the others (p-norm), adds to them, or is a floor under the sum.
    """

    name: str
    seconds: Number
    clocks: Number
    how: str


@dataclass(frozen=True, slots=True, eq=False)
class StagePrediction:
    """Predicted time of one launch, with what it follows from.  Numbers are arrays for a batch.

    ``seconds`` is infinite where a block does not fit a unit.  ``occupancy``: resident threads over the
    unit's most.  ``traffic_bytes``: bytes that leave each layer towards the units, whole launch.
    """

    name: str
    seconds: Number
    limiters: tuple[Limiter, ...]
    blocks: Number
    waves: Number
    resident_blocks: Number
    occupancy: Number
    threads: Number
    registers: Number
    spilled: Number
    shared_bytes: Number
    traffic_bytes: tuple[tuple[str, Number], ...]
    flops: Number
    once: bool

    @property
    def binding(self) -> Any:
        """Name of the largest limiter; for a batch an array of names."""
        names = [limiter.name for limiter in self.limiters]
        if np.ndim(self.seconds):
            rows = np.stack([np.broadcast_to(x.seconds, np.shape(self.seconds)) for x in self.limiters])
            return np.array(names)[rows.argmax(axis=0)]
        return max(self.limiters, key=lambda limiter: limiter.seconds).name


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted time of one call: the stages that run at each call, in order."""

    seconds: Number
    stages: tuple[StagePrediction, ...]


def predict(program: RProgram, device: Device) -> Prediction:
    """Predicted time of `program` on `device`; stages that run once at build are reported, not counted."""
    stages = tuple(predict_stage(stage, device) for stage in program.stages)
    total: Number = 0.0
    for stage in stages:
        if not stage.once:
            total = total + stage.seconds
    return Prediction(total, stages)


def predict_stage(stage: Stage, device: Device) -> StagePrediction:
    """Predicted time of one launch.

    ``Loop.extent`` and ``Loop.stride`` may be int64 arrays of one length (a batch of programs with one loop
    structure and one definition); every number of the answer is then an array.
    """
    costs = costs_of(device)
    nest = nest_of(stage, facts_of(stage.definition, stage.residents), device)
    work = work_of(nest, device, costs)
    fits, resident = resident_blocks(nest, device, work)
    waves = waves_of(nest, device, resident)
    clock_hz = device.clock_mhz * 1e6
    limiters, traffic = _limiters(nest, device, costs, work, waves)
    clocks = combine(limiters, costs)
    seconds = choose(fits, clocks / clock_hz, np.inf) + device.launch_us * 1e-6
    launch = Limiter("launch", device.launch_us * 1e-6, device.launch_us * device.clock_mhz, ADDS)
    named = tuple(Limiter(n, c / clock_hz, c, how) for n, c, how in limiters) + (launch,)
    most_threads = device.limits.threads_per_unit
    return StagePrediction(
        stage.name, seconds, named, nest.blocks, waves.waves, waves.resident,
        least(waves.resident * nest.threads / most_threads, 1.0), nest.threads, work.registers, work.spilled,
        work.shared_bytes, traffic, flops_of(stage), stage.once,
    )  # fmt: skip


def combine(limiters: list[tuple[str, Number, str]], costs: Costs) -> Number:
    """Clocks of the whole: p-norm of what overlaps, plus what does not, at least the floors."""
    exponent = costs.norm_exponent
    overlapping: Number = 0.0
    added: Number = 0.0
    for _, clocks, how in limiters:
        if how == OVERLAPS:
            overlapping = overlapping + (clocks * clocks if exponent == 2 else clocks**exponent)
        elif how == ADDS:
            added = added + clocks
    total = overlapping ** (1 / exponent) + added
    for _, clocks, how in limiters:
        if how == FLOOR:
            total = most(total, clocks)
    return total


def flops_of(stage: Stage) -> int:
    """Arithmetic operations of the definition, a multiply-add counted as two."""
    facts = facts_of(stage.definition, stage.residents)
    total = 0
    for phase in facts.phases:
        per_point = sum(count for _, count in phase.operations)
        if phase.reduces and any(name == "add" for name, _ in phase.operations):
            per_point += 1
        spatial_only = not phase.reduces and facts.definition.reductions and not facts.by_row
        size = 1
        for axis, extent in facts.extents.items():
            size *= 1 if spatial_only and facts.roles[axis] != "spatial" else extent
        total += per_point * size
    return total


def resident_blocks(nest: Nest, device: Device, work: Work) -> tuple[Number, Number]:
    """(whether a block fits a unit, how many run on one unit at once): threads, registers, shared memory, slots."""
    limits = device.limits
    blocks: Number = least(limits.blocks_per_unit, limits.threads_per_unit // nest.threads)
    fits = nest.threads <= limits.threads_per_block
    if nest.lockstep > 1:
        step = max(1, limits.register_allocation)
        each = ceil_div(least(work.registers, register_cap(nest, device)), step) * step
        blocks = least(blocks, limits.registers_per_unit // most(each * nest.warps * nest.lockstep, 1))
    layer = _staging_layer(nest, device)
    if layer is not None:
        fits = fits & (work.shared_bytes + layer.reserved_bytes <= limits.block_memory_bytes)
        blocks = least(blocks, layer.capacity_bytes // (work.shared_bytes + layer.reserved_bytes))
    fits = fits & (blocks >= 1)
    return fits, whole(most(choose(fits, blocks, 1), 1))


def _staging_layer(nest: Nest, device: Device) -> MemoryLayer | None:
    names = [c.to_layer for c in nest.stage.copies if c.to_layer != device.layers[0].name]
    return device.layer(names[0]) if names else None


def _limiters(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves
) -> tuple[list[tuple[str, Number, str]], tuple[tuple[str, Number], ...]]:
    found: list[tuple[str, Number, str]] = []
    blocks = waves.per_unit
    found.append(("multiply-adds", blocks * arithmetic_clocks(nest, device, costs, work), OVERLAPS))
    instructions = instructions_of(nest, costs, work)
    found.append(("issue", blocks * nest.warps * instructions / issue_rate(device, costs), OVERLAPS))
    for name, clocks in path_clocks(nest, device, costs, work):
        found.append((name, blocks * clocks, OVERLAPS))
    latency = latency_clocks(nest, device, costs, work, instructions)
    found.append(("latency", latency * ceil_div(blocks, waves.resident), OVERLAPS))
    walks = Walks(nest, waves, work.streams)
    supply, traffic, misses = _supply(nest, device, costs, work, waves, walks)
    found += supply
    found += _exposed(nest, device, costs, work, waves, walks, instructions, misses)
    found.append(("tiles", blocks * tile_clocks(nest, costs, work), ADDS))
    found.append(("blocks", blocks * costs.block_clocks, ADDS))
    return [(n, c, how) for n, c, how in found if np.ndim(c) or c > 0], traffic


def slot_clocks(nest: Nest, device: Device) -> float:
    """Clocks of one multiply-add instruction of one warp (of one vector) on one unit."""
    instruction = device.instruction(nest.stage.compute.instruction)
    plain = instruction.m == 1 and instruction.k == 1
    width = max(nest.lanes, instruction.lanes) if plain else nest.lanes
    multiply_adds = max(instruction.m * instruction.n * instruction.k, instruction.lanes)
    return nest.lockstep * width / (multiply_adds * instruction.per_clock)


def arithmetic_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Clocks of the multiply-add pipes for one block; spilled vector registers stall them."""
    clocks = nest.warps * work.slots * slot_clocks(nest, device)
    instruction = device.instruction(nest.stage.compute.instruction)
    narrow = nest.lanes * 2 <= instruction.lanes
    each = costs.spill_narrow_clocks if narrow else costs.spill_clocks
    return clocks + nest.warps * each * work.spilled * work.steps


def instructions_of(nest: Nest, costs: Costs, work: Work) -> Number:
    """Instructions of one thread in one block."""
    total = work.slots + costs.loop_instructions * work.iterations + costs.spill_accesses * work.spilled * work.steps
    for access in work.accesses:
        if access.role == "read":
            folded = choose(access.uses == 1, costs.memory_operands, 0)
            total = total + access.count * (1 - folded)
        elif access.role == "fill_read":
            total = total + access.count * costs.staging_instructions
        elif access.role in ("write", "read_back") and not work.reduces:
            total = total + access.count
    return total


def issue_rate(device: Device, costs: Costs) -> float:
    return costs.issue_per_clock or device.schedulers


def path_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> list[tuple[str, Number]]:
    """Clocks of each load/store path for one block: data in wavefronts or bytes, and ports.

    Banked layers are one SRAM with one path; any other layer has its own.
    """
    data: dict[str, Number] = {}
    ports: dict[str, Number] = {"load": 0, "store": 0}
    for access in work.accesses:
        layer = _served_by(device, access)
        if layer is None or (nest.lockstep == 1 and access.role in ("write", "read_back") and work.reduces):
            continue
        name = "shared path" if layer.banks else f"{layer.name} path"
        data[name] = data.get(name, 0) + nest.warps * access.count * _access_clocks(nest, costs, layer, access)
        side = "load" if "read" in access.role else "store"
        ports[side] = ports[side] + nest.warps * access.count
    spills = nest.warps * costs.spill_accesses * work.spilled * work.steps
    banked = next((x for x in device.layers if x.banks), None)
    if banked is not None:
        wave = banked.banks * banked.bank_bytes / banked.bytes_per_clock
        data["shared path"] = data.get("shared path", 0) + spills * wave
    found = list(data.items())
    for side, rate in (("load", costs.load_ports), ("store", costs.store_ports)):
        if rate:
            found.append((f"{side} ports", ports[side] / rate))
    return _wider_of_load_paths(found, device)


def _wider_of_load_paths(found: list[tuple[str, Number]], device: Device) -> list[tuple[str, Number]]:
    """Bytes and ports of the same loads are one limiter: whichever is more."""
    named = dict(found)
    layer = path_layer(device)
    name = f"{layer.name} path" if layer is not None and not layer.banks else ""
    if "load ports" in named and name in named:
        named["load ports"] = most(named["load ports"], named.pop(name))
    return list(named.items())


def _served_by(device: Device, access: Access) -> MemoryLayer | None:
    if access.layer == device.backing.name:
        return path_layer(device)
    return device.layer(access.layer)


def _access_clocks(nest: Nest, costs: Costs, layer: MemoryLayer, access: Access) -> Number:
    rate = layer.bytes_per_clock
    if "write" in access.role and layer.write_bytes_per_clock:
        rate = layer.write_bytes_per_clock
    if layer.banks:
        clocks = access.service * layer.banks * layer.bank_bytes / rate if rate else 0
    elif nest.lockstep > 1:
        clocks = access.service * layer.transaction_bytes / rate if rate else 0
    else:
        clocks = access.width_bytes * access.split / rate if rate else 0
    if costs.load_store_lanes:
        clocks = most(clocks, nest.lockstep / costs.load_store_lanes)
    return clocks + costs.gather_clocks if access.gathered else clocks


def latency_clocks(nest: Nest, device: Device, costs: Costs, work: Work, instructions: Number) -> Number:
    """Clocks of one block during which it waits for its own loads, barriers and dependent accumulations."""
    staged: Number = 0
    for visits, depth in work.stagings:
        staged = staged + visits * (costs.exposed_staging_clocks if depth == 1 else costs.exposed_prefetched_clocks)
    rounds = most(work.iterations, 1)
    exposed = costs.exposed_managed_clocks if work.reads_managed else 0.0
    if work.reads_direct:
        exposed = costs.exposed_direct_clocks
    if work.reads_stream:
        exposed = max(exposed, costs.exposed_stream_clocks)
    chain = chain_clocks(device, nest, costs, work, instructions)
    return staged + most(rounds * exposed, chain) + work.combine_steps * costs.combine_clocks


def chain_clocks(device: Device, nest: Nest, costs: Costs, work: Work, instructions: Number) -> Number:
    """Clocks of dependent accumulations; a short chain overlaps the next one within the reorder window."""
    if not nest.facts.definition.reductions:
        return 0
    latency = device.instruction(nest.stage.compute.instruction).latency_clocks
    chain = work.chain * latency
    if not costs.reorder_window:
        return chain
    one_tile = instructions / most(work.entries, 1)
    return chain * most(1 - costs.reorder_window / (2 * one_tile), 0)


def tile_clocks(nest: Nest, costs: Costs, work: Work) -> Number:
    """Clocks of entering and leaving the register tiles of one block, their stores and their ragged edges."""
    if not nest.facts.definition.reductions:
        return 0
    clocks = work.entries * costs.tile_clocks
    if costs.store_ports and nest.lockstep == 1:
        for access in work.accesses:
            if access.role == "write" and access.load == -1:
                clocks = clocks + access.count / costs.store_ports
    return clocks + costs.edge_clocks * work.entries * work.tile_elements * _overhanging(nest)


def _overhanging(nest: Nest) -> Number:
    """Share of register tiles that reach beyond their tensor."""
    inside: Number = 1.0
    depth = nest.stage.accumulator.at_loop
    for axis, _ in nest.stage.guards:
        if not nest.spatial(axis):
            continue
        tile = nest.product(lambda p, loop: loop.axis == axis and p >= depth and loop.kind in ("serial", "unroll", "lane"))
        tiles = ceil_div(nest.facts.extents[axis], tile)
        inside = inside * (1 - choose(nest.facts.extents[axis] % tile != 0, 1 / tiles, 0))
    return 1 - inside


def _caches(device: Device) -> list[MemoryLayer]:
    return [layer for layer in device.layers[:-1] if not layer.managed]


def _supply(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves, walks: Walks
) -> tuple[list[tuple[str, Number, str]], tuple[tuple[str, Number], ...], dict[str, list[Number]]]:
    """Clocks of each layer that feeds the caches (or the staged tiles), and the bytes that leave it."""
    caches = _caches(device)
    limiters: list[tuple[str, Number, str]] = []
    traffic: list[tuple[str, Number]] = []
    misses: dict[str, list[Number]] = {}
    for number, layer in enumerate([*caches[1:], device.backing]):
        inner = caches[number] if caches else None
        line = inner.transaction_bytes if inner is not None else layer.transaction_bytes
        cache = cache_of(inner, waves.resident) if inner is not None else None
        lines = walks.of_line(line).fetched(cache, costs)
        misses[layer.name] = lines
        last = layer is device.backing
        reads, writes = _directions(nest, costs, work.streams, lines, last)
        if last and inner is not None and costs.warm_cache:
            beyond = _beyond(nest, inner)
            reads, writes = reads * beyond, (writes * beyond if not nest.stage.store.streaming else writes)
        spilled = _spill_lines(nest, costs, work, waves, inner, line) if number == 0 else 0
        read_bytes, write_bytes = (reads + spilled) * line, (writes + spilled) * line
        clocks = _layer_clocks(device, layer, waves, nest.blocks, read_bytes, write_bytes)
        limiters.append((f"{layer.name} bandwidth", clocks, FLOOR if last else OVERLAPS))
        traffic.append((layer.name, (read_bytes + write_bytes) * nest.blocks))
    return limiters, tuple(traffic), misses


def _directions(
    nest: Nest, costs: Costs, streams: tuple[Stream, ...], lines: list[Number], last: bool
) -> tuple[Number, Number]:
    """(lines read, lines written) of one block: a store reads its line first where the cache allocates on write."""
    reads: Number = 0
    writes: Number = 0
    for stream, amount in zip(streams, lines, strict=True):
        if stream.load >= 0:
            reads = reads + amount
        elif nest.stage.store.streaming:
            writes = writes + (amount if last else 0)
        else:
            writes = writes + amount
            reads = reads + amount * (1.0 if nest.stage.accumulator.carry else costs.write_allocate)
    return reads, writes


def _beyond(nest: Nest, outermost: MemoryLayer) -> float:
    """Share of a warm problem that the outermost cache cannot hold."""
    seen = {operand.buffer.name: operand.bytes for operand in (*nest.facts.loads, nest.facts.store)}
    total = sum(seen.values())
    return max(0.0, 1 - outermost.capacity_bytes / total)


def _spill_lines(
    nest: Nest, costs: Costs, work: Work, waves: Waves, inner: MemoryLayer | None, line: int
) -> Number:
    """Lines that spilled registers miss in the innermost cache, for each direction, of one block."""
    if inner is None or not costs.spill_accesses:
        return 0
    bytes_held = work.spilled * nest.warps * nest.lockstep * 4
    missing = most(bytes_held * waves.resident - inner.capacity_bytes, 0)
    share = ratio(missing, bytes_held * waves.resident)
    return share * work.steps * bytes_held / line * costs.spill_accesses / 2


def _layer_clocks(
    device: Device, layer: MemoryLayer, waves: Waves, blocks: Number, read_bytes: Number, write_bytes: Number
) -> Number:
    """Clocks for the given bytes of each block: at one unit's rate, and at the whole chip's."""
    clocks: Number = 0.0
    if layer.bytes_per_clock:
        writing = layer.write_bytes_per_clock or layer.bytes_per_clock
        clocks = waves.per_unit * (read_bytes / layer.bytes_per_clock + write_bytes / writing)
    if layer.bandwidth_gb_s:
        per_clock = layer.bandwidth_gb_s * 1e9 / (device.clock_mhz * 1e6)
        share = blocks if layer.scope == "device" else ceil_div(blocks, device.units)
        clocks = most(clocks, share * (read_bytes + write_bytes) / per_clock)
    return clocks


def _exposed(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves, walks: Walks, instructions: Number,
    misses: dict[str, list[Number]],
) -> list[tuple[str, Number, str]]:
    """What no overlap hides: long column walks past the prefetchers, and translation misses."""
    found: list[tuple[str, Number, str]] = []
    per_step = instructions / most(work.steps, 1) + 2 * work.spilled if work.reduces else 2 * work.spilled + 4
    if costs.walk_clocks:
        found.append(("column walks", waves.per_unit * _column_walks(device, costs, work, walks, per_step, misses), ADDS))
    for number, tlb in enumerate(device.tlbs):
        clocks: Number = 0
        for pages in walks.of_line(tlb.page_bytes).fetched(tlb_cache(tlb), costs):
            clocks = clocks + pages * tlb.miss_clocks
        if number and costs.miss_buffers:
            clocks = clocks * costs.miss_buffers / least(costs.miss_buffers, costs.miss_window / per_step)
        found.append((f"tlb {number + 1}", waves.per_unit * clocks, ADDS))
    return found


def _column_walks(
    device: Device, costs: Costs, work: Work, walks: Walks, per_step: Number, misses: dict[str, list[Number]]
) -> Number:
    """Exposed clocks of one block: operands walked down a column whose stride reaches few sets of the first cache."""
    caches = _caches(device)
    first = caches[0]
    outer = [x for x in caches if x.scope == "device"]
    beyond = misses[(outer[0] if outer else device.backing).name]
    walk = walks.of_line(first.transaction_bytes)
    total: Number = 0
    for i, stream in enumerate(work.streams):
        rate = costs.walk_clocks
        if outer and stream.operand.bytes * 2 > outer[-1].capacity_bytes:
            rate = costs.walk_far_clocks
        worst: Number = 0
        for number in range(walk.start_level(stream), len(walk.levels)):
            tile = walk.tiles[number + 1][i]
            if walk.levels[number].axis not in stream.operand.axes or walk.levels[number].position < 0:
                continue
            segment = most(tile.segment / first.transaction_bytes, 1)
            few = sets_reached(tile._replace(rows=tile.rows * 0 + first.sets, segment=0), first.sets, first.transaction_bytes)
            exposed = (tile.rows > costs.walk_rows) & (few <= costs.walk_sets)
            fewer = costs.miss_buffers / least(costs.miss_buffers, costs.miss_window / per_step * segment)
            worst = most(worst, choose(exposed, rate / segment * fewer, 0))
        total = total + beyond[i] * worst
    return total


def roofline_seconds(stage: Stage, device: Device) -> float:
    """What no program of this stage can beat: the definition's multiply-adds at the nominal rate of the stage's
    instruction, and each tensor once at the backing store's nominal bandwidth (cold caches only)."""
    facts = facts_of(stage.definition, stage.residents)
    instruction = device.instruction(stage.compute.instruction)
    wide = max(instruction.m * instruction.n * instruction.k, instruction.lanes)
    per_second = device.units * wide * instruction.per_clock * device.clock_mhz * 1e6
    return multiply_adds_of(stage) / per_second if facts else 0.0


def multiply_adds_of(stage: Stage) -> int:
    """Multiply-add slots that the definition needs at least: those of its reductions, one for each point."""
    facts = facts_of(stage.definition, stage.residents)
    size = 1
    for extent in facts.extents.values():
        size *= extent
    return size * len(facts.definition.reductions)


__all__ = ["ITEMSIZE", "Limiter", "Prediction", "StagePrediction", "predict", "predict_stage", "roofline_seconds"]
