"""Limiters inside one unit: multiply-adds, issue, load/store paths, latency, entering tiles.  All for one block."""

from __future__ import annotations

from rollergen.expr.values import loads
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.loops import panel_part, prefetched_loads
from rollergen.program.model.access import Access
from rollergen.program.model.costs import Costs
from rollergen.program.model.facts import Operand
from rollergen.program.model.lanes import masks_loads, masks_stores
from rollergen.program.model.moved import PhaseReads
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, most
from rollergen.program.model.services import path_layer
from rollergen.program.model.work import Work
from rollergen.program.rprogram import GRID, LANE, PARALLEL
from rollergen.tile.rules import main_instruction


def slot_clocks(nest: Nest, device: Device) -> float:
    """Clocks of one multiply-add instruction of one warp (of one vector) on one unit; beside a matrix instruction
    those of a plain one."""
    instruction = device.instruction(nest.stage.compute.instruction)
    if instruction.is_matrix:
        instruction = main_instruction(device, instruction.accumulator_dtype)
    plain = instruction.m == 1 and instruction.k == 1
    width = max(nest.lanes, instruction.lanes) if plain else nest.lanes
    multiply_adds = max(instruction.m * instruction.n * instruction.k, instruction.lanes)
    return nest.lockstep * width / (multiply_adds * instruction.per_clock)


def arithmetic_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Clocks of the multiply-add pipes for one block; spilled vector registers stall them."""
    clocks = nest.warps * work.slots * slot_clocks(nest, device)
    instruction = device.instruction(nest.stage.compute.instruction)
    clocks = clocks + nest.warps * work.products / instruction.per_clock
    narrow = nest.lanes * 2 <= instruction.lanes
    each = costs.spill_narrow_clocks if narrow else costs.spill_clocks
    return clocks + nest.warps * each * work.spilled * work.steps


def issued_multiply_adds(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Clocks of one block in which multiply-adds of scalar threads are issued: those of the arithmetic and of the
    issue slots alike, all of both where a unit has a lane for each thread that it issues.  (Matrix units and vector
    pipes are busy while other instructions are issued.)"""
    instruction = device.instruction(nest.stage.compute.instruction)
    if nest.lockstep == 1 or instruction.is_matrix:
        return 0
    return nest.warps * work.slots * min(slot_clocks(nest, device), 1 / issue_rate(device, costs))


def instructions_of(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Instructions of one thread in one block."""
    total = work.products * device.instruction(nest.stage.compute.instruction).issued + work.slots
    iterations = sum([phase.iterations for phase in work.phase_reads])
    total = total + costs.loop_instructions * (iterations + work.window_steps)
    total = total + costs.spill_accesses * work.spilled * work.steps
    if nest.stage.prefetch >= 0:
        total = total + _prefetches(nest)
    for access in work.accesses:
        each: Number = 0
        if access.role == "read":
            each = 1 - choose(access.uses == 1, costs.memory_operands, 0)
        elif access.role == "fill_read":
            each = costs.staging_instructions + access.decoded * costs.decode_instructions
        elif access.role == "fill_past":
            each = costs.asynchronous_instructions + access.decoded * costs.decode_instructions
        elif access.role in _ONE_EACH or (access.role in ("write", "read_back") and not work.reduces):
            each = 1
        one_by_one: Number = 0
        if not is_nothing(access.broken):
            one_by_one = access.broken * nest.lanes
            each = each * (1 - access.broken) + one_by_one
        if not is_nothing(access.tested):
            each = each + access.tested * costs.guard_instructions * (1 + one_by_one)
        if access.role == "read" and not is_nothing(access.decoded):
            each = each + access.decoded * costs.decode_instructions
        if not is_nothing(each):
            total = total + access.count * each
    return total


def _prefetches(nest: Nest) -> Number:
    """Instructions of one thread that ask for lines of the next row: one for each vector that the last reduction
    reads of it; of the next panel, one for each step of a register tile."""
    asked = len(prefetched_loads(nest.stage, loads(*nest.stage.op.reductions[-1].bodies)))
    part = panel_part(nest.stage)
    if part is not None:
        return asked * nest.passed(tuple([p for p in nest.in_thread() if p < part.depth]))
    return asked * nest.product(lambda p, loop: loop.kind not in (GRID, *PARALLEL, LANE))


_ONE_EACH = ("exchange", "ahead_read", "spill_write", "spill_read")


def issue_rate(device: Device, costs: Costs) -> float:
    return costs.issue_per_clock or device.schedulers


def path_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> list[tuple[str, Number]]:
    """Clocks of each load/store path for one block: data in wavefronts or bytes, and ports.

    Banked layers are one SRAM with one path; any other layer has its own.
    """
    data: dict[str, Number] = {}
    ports: dict[str, Number] = {"load": 0, "store": 0}
    rates = {"load": costs.load_ports, "store": costs.store_ports}
    for access in work.accesses:
        layer = _served_by(device, access)
        if layer is None or (nest.lockstep == 1 and access.role in ("write", "read_back") and work.reduces):
            continue
        name = "shared path" if layer.banks else f"{layer.name} path"
        issued = nest.warps * access.count
        data[name] = data.get(name, 0) + issued * _access_clocks(nest, device, costs, layer, access)
        side = "load" if "read" in access.role else "store"
        if rates[side]:
            ports[side] = ports[side] + issued
    spills = nest.warps * costs.spill_accesses * work.spilled * work.steps
    banked = next((x for x in device.layers if x.banks), None)
    if banked is not None:
        wave = banked.banks * banked.bank_bytes / device.read_bytes_per_clock(banked)
        if costs.load_store_lanes:
            wave = max(wave, nest.lockstep / costs.load_store_lanes)
        data["shared path"] = data.get("shared path", 0) + spills * wave
    found = list(data.items())
    for side, rate in rates.items():
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
    layer = device.layer(access.layer)
    if access.layer == device.backing.name or (layer.scope == "unit" and not layer.managed):
        return path_layer(device)
    return layer


def _access_clocks(nest: Nest, device: Device, costs: Costs, layer: MemoryLayer, access: Access) -> Number:
    writes = "write" in access.role
    rate = device.written_bytes_per_clock(layer) if writes else device.read_bytes_per_clock(layer)
    if layer.banks:
        clocks = access.service * layer.banks * layer.bank_bytes / rate
    elif nest.lockstep > 1:
        clocks = access.service * layer.transaction_bytes / rate
    else:
        clocks = access.width_bytes * access.split / rate
    if costs.load_store_lanes:
        clocks = most(clocks, nest.lockstep / costs.load_store_lanes)
    if not is_nothing(access.broken):
        alone = costs.gather_clocks * nest.lanes
        clocks = clocks * (1 - access.broken) + access.broken * alone
    return clocks + costs.gather_clocks if access.gathered else clocks


def latency_clocks(
    nest: Nest, device: Device, costs: Costs, work: Work, instructions: Number, busy: Number
) -> Number:
    """Clocks of one block during which it waits for its own loads, barriers and dependent accumulations.

    What no copy brings is exchanged once for the whole block, as is what the block stores.  Copies made ahead of
    their use wait only for what the steps between do not hide (Little's law): ``busy`` are the clocks that its unit
    is at work while this block does all its steps."""
    direct = 1 + any(phase.direct or phase.stream for phase in work.phase_reads)
    staged: Number = direct * costs.exchange_clocks
    for trip_count, depth in work.stagings:
        exposed: Number = costs.exposed_staging_clocks
        hidden = (depth - 1) * busy / most(trip_count, 1)
        exposed = choose(depth > 1, costs.exposed_prefetched_clocks + most(exposed - hidden, 0), exposed)
        staged = staged + trip_count * (exposed + costs.exchange_clocks)
    reads: Number = 0
    for phase in work.phase_reads:
        reads = reads + most(phase.iterations, 1) * _exposed_clocks(phase, costs)
    chain = chain_clocks(device, nest, costs, work, instructions)
    staged = staged + work.window_steps * costs.window_step_clocks
    return staged + most(reads, chain) + work.combine_clocks


def _exposed_clocks(phase: PhaseReads, costs: Costs) -> float:
    """Latency of its reads that one iteration of a phase cannot hide."""
    exposed = costs.exposed_managed_clocks if phase.managed else 0.0
    if phase.direct:
        exposed = costs.exposed_direct_clocks
    if phase.stream:
        exposed = max(exposed, costs.exposed_stream_clocks)
    return exposed


def chain_clocks(device: Device, nest: Nest, costs: Costs, work: Work, instructions: Number) -> Number:
    """Clocks of dependent accumulations; a short chain overlaps the next one within the reorder window."""
    if not nest.facts.op.reductions:
        return 0
    latency = device.instruction(nest.stage.compute.instruction).latency_clocks
    chain = work.chain * latency
    if not costs.reorder_window:
        return chain
    one_tile = instructions / most(work.entries, 1)
    return chain * most(1 - costs.reorder_window / (2 * one_tile), 0)


def tile_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Clocks of entering and leaving the register tiles of one block, their stores and their ragged edges."""
    if not nest.facts.op.reductions:
        return 0
    clocks = work.entries * costs.tile_clocks
    if costs.store_ports and nest.lockstep == 1:
        for access in work.accesses:
            if access.role == "write" and access.load == -1:
                one_by_one = access.broken * nest.lanes * costs.edge_clocks
                clocks = clocks + access.count * (1 / costs.store_ports + one_by_one)
    return clocks + costs.edge_clocks * work.entries * work.tile_elements * _overhanging(nest, device)


def _overhanging(nest: Nest, device: Device) -> Number:
    """Share of register tiles that reach beyond their tensor; where a tile spans its whole axis, which compilers
    see, only its last vector; none where results are stored under a mask and operands are packed in whole vectors, or
    read under one."""
    inside: Number = 1.0
    depth = nest.stage.accumulator.at_loop
    at = next((p for p, loop in enumerate(nest.loops) if loop.kind == LANE), None)
    lane = None if at is None else nest.loops[at].axis
    masked = at is not None and masks_stores(nest, device) and _without_tails(nest, device, at)
    for axis, _ in nest.stage.guards:
        if not nest.spatial(axis) or (axis == lane and masked):
            continue
        tile: Number = 1
        for p in nest.in_thread():
            if p >= depth and nest.loops[p].axis == axis:
                tile = tile * nest.trips[p]
        tiles = ceil_div(nest.facts.extents[axis], tile)
        share = choose(tiles == 1, nest.lanes / tile, 1 / tiles) if axis == lane else 1 / tiles
        inside = inside * (1 - choose(nest.facts.extents[axis] % tile != 0, share, 0))
    return 1 - inside


def _without_tails(nest: Nest, device: Device, lane: int) -> bool:
    """Whether no operand has a path of its own for the end of the lanes' axis: each lies in panels along it, which end
    on whole vectors, or is read under a mask."""
    axis = nest.loops[lane].axis
    of_axis = [load for load in nest.facts.loads if axis in load.axes]
    return all(_packed(load, axis) or masks_loads(nest, device, load, lane) for load in of_axis)


def _packed(load: Operand, axis: str) -> bool:
    return not any(axis == atom for index in load.indices for atom, _ in index.terms)
