"""Occupancy: how many blocks of a stage one unit holds at once."""

from __future__ import annotations

import numpy as np

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.boxes import producer_threads
from rollergen.program.matrix import matrix_instruction
from rollergen.program.model.costs import Costs
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, choose, least, most
from rollergen.program.rprogram import UNROLL


def register_cap(nest: Nest, device: Device) -> Number:
    """Registers that one thread can have when its block is resident."""
    if nest.lockstep == 1:
        return device.limits.registers_per_thread
    known = nest.unbuffered.get(register_cap)
    if known is None:
        known = nest.unbuffered[register_cap] = granted_registers(nest, device, 1)
    return known


def spilled_registers(nest: Nest, device: Device, costs: Costs, registers: Number) -> Number:
    """Registers of a thread that wants so many which lie in memory."""
    excess = registers - register_cap(nest, device)
    more: Number = costs.spill_margin
    for loop in nest.loops:
        if loop.kind == UNROLL and not nest.spatial(loop.axis):
            more = choose(loop.extent > 1, costs.spill_margin + costs.spill_unrolled, more)
    return choose(excess > 0, excess + more, 0)


def granted_registers(nest: Nest, device: Device, resident: Number) -> Number:
    """Registers that each thread can have while `resident` blocks share a unit.

    Each scheduler has its part of the register file, and warps are dealt evenly: nine warps on four schedulers leave
    each thread what twelve would (held against what NVIDIA's assembler grants for `__launch_bounds__`).
    """
    limits = device.limits
    if nest.lockstep == 1:
        return limits.registers_per_thread
    sums = limits.accumulation_registers if matrix_instruction(nest.stage, device) is not None else 0
    step = max(1, limits.register_allocation)
    sharing = ceil_div(resident * _warps(nest), device.schedulers) * nest.lockstep
    share = limits.registers_per_unit // device.schedulers // sharing // step * step
    return least(share, limits.registers_per_thread + sums)


def warps_by_registers(device: Device, registers: Number, lockstep: int) -> Number:
    """Warps of `lockstep` threads that a unit holds at once where each thread takes so many registers."""
    limits = device.limits
    step = max(1, limits.register_allocation)
    each = most(ceil_div(registers, step) * step * lockstep, 1)
    return device.schedulers * (limits.registers_per_unit // device.schedulers // each)


def resident_blocks(nest: Nest, device: Device, wanted: Number, shared_bytes: Number) -> tuple[Number, Number]:
    """The pair (whether a block fits a unit, blocks resident on a unit), limited by threads, registers, shared memory
    and slots."""
    limits = device.limits
    threads = nest.threads + producer_threads(nest.stage, nest.lockstep)
    blocks: Number = least(limits.blocks_per_unit, limits.threads_per_unit // threads)
    fits = threads <= limits.threads_per_block
    if nest.lockstep > 1:
        held = least(wanted, register_cap(nest, device))
        blocks = least(blocks, warps_by_registers(device, held, nest.lockstep) // _warps(nest))
    layer = block_memory(nest, device)
    if layer is not None:
        fits = fits & (shared_bytes <= limits.block_memory_bytes)
        blocks = least(blocks, layer.blocks_within(most(shared_bytes, 1)))
    fits = fits & (blocks >= 1)
    return fits, most(choose(fits, blocks, 1), 1).astype(np.int64)


def _warps(nest: Nest) -> Number:
    """Warps of one block, of which one may only start copies."""
    return nest.warps + nest.stage.compute.producer


def block_memory(nest: Nest, device: Device) -> MemoryLayer | None:
    """The layer that holds a block's staged tiles and what its threads exchange."""
    own = device.layers[0].name
    for copy in nest.stage.copies:
        if copy.to_layer != own:
            return device.layer(copy.to_layer)
    shared = device.kind.block_layer
    return None if nest.lockstep == 1 or shared is None else device.layer(shared)
