"""Entering: tiles of windows that are staged, register tiles with their ragged edges, and blocks."""

from __future__ import annotations

from rollergen.hal.spec import Device
from rollergen.program.model.costs import Costs
from rollergen.program.model.facts import Operand
from rollergen.program.model.lanes import masks_loads, masks_stores
from rollergen.program.model.limiters.latency import first_tile_clocks
from rollergen.program.model.limiters.limit import ADDS, OVERLAPS, Limit
from rollergen.program.model.limiters.paths import result_clocks
from rollergen.program.model.nest import Nest, Waves, fills_past_registers
from rollergen.program.model.numeric import Number, ceil_div, choose
from rollergen.program.model.work import Work
from rollergen.program.rprogram import LANE


def entering(nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves) -> list[Limit]:
    """Clocks of steps that stage windows, of register tiles, of blocks.  Nothing hides them, but other blocks of the
    same unit hide a block's start.

    Where copies fill tiles past the registers and a unit has room for one block, nothing is computed while results are
    stored, nor until the next block has begun and its first tile is there.  The blocks of a cluster begin together,
    once there is room for all of them, also where units have several."""
    rounds = ceil_div(waves.per_unit, waves.resident)
    between: Number = 0
    stored: Number = 0
    if fills_past_registers(nest):
        alone = waves.resident == 1
        together = costs.next_block_clocks * (nest.stage.block_order.cluster > 1) / waves.resident
        started = choose(alone, costs.next_block_clocks + first_tile_clocks(device, costs, work), 0)
        between = (waves.starts - 1) * (started + together)
        stored = choose(alone, waves.per_unit * result_clocks(nest, device, costs, work), 0)
    return [
        ("staging", rounds * work.window_steps * costs.window_step_clocks, ADDS),
        ("tiles", waves.per_unit * tile_clocks(nest, device, costs, work), ADDS),
        ("blocks", waves.starts * costs.block_clocks, ADDS if nest.lockstep == 1 else OVERLAPS),
        ("next blocks", between, ADDS),
        ("results", stored, ADDS),
    ]


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
