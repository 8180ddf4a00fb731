"""Matrix instructions in the model: how many, the loads of their fragments, the registers that these take.

Loads of fragments read 16 bytes of a row for each thread, four registers of an execution width at once; what they
cost follows from the threads' addresses in the staged tile, as of any access of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device, Instruction, MemoryLayer
from rollergen.program.matrix import (
    COLUMNS,
    PANEL_BYTES,
    ROW_BYTES,
    WAVEFRONT,
    Operands,
    exchanges,
    factor_dtype,
    first_fragment_loop,
    fragment_bytes,
    matrix_axes,
    matrix_instruction,
    matrix_operands,
    reads_numbers,
    scratch_bytes,
    scratch_pitch,
    tiles_across_rows,
)
from rollergen.program.model.access import Access
from rollergen.program.model.conversions import (
    NOTHING_CONVERTED,
    Converting,
    conversion_accesses,
    conversion_registers,
    converting,
)
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, is_nothing, most, per_distinct
from rollergen.program.model.tiles import block_copy, tile_shape
from rollergen.program.model.wavefronts import wavefronts
from rollergen.program.rows_apart import sum_apart

_REGISTERS_AT_ONCE = 4
"""Of a thread, filled by one load."""
_HELD = 16
"""Registers of a thread for a row of tiles whose factor it brings for all steps of a panel (`sum_apart`): as many hold
what it has read, and one instruction makes each of those that are multiplied."""


def instruction_of(nest: Nest, device: Device) -> Instruction | None:
    """The matrix instruction of the stage, if it has one."""
    return matrix_instruction(nest.stage, device)


def tiles(nest: Nest, device: Device) -> tuple[Number, Number]:
    """Tiles of the instruction that an execution width has along m and n."""
    one = device.instruction(nest.stage.compute.instruction)
    depth = first_fragment_loop(nest.stage, device)
    m, n, _ = matrix_axes(nest.stage)
    rows = nest.product(lambda p, loop: p >= depth and loop.axis == m and _outside(loop.stride, one.m))
    columns = nest.product(lambda p, loop: p >= depth and loop.axis == n and _outside(loop.stride, one.n))
    return rows, columns


def _outside(stride: Number, extent: int) -> bool:
    """Strides of a batch's loops outside the instruction's tile are multiples of its extent."""
    return bool(np.all(stride >= extent))


def steps_of(nest: Nest, device: Device) -> Number:
    """Times that an execution width multiplies each of its tiles, for one block."""
    return nest.trip_count(first_fragment_loop(nest.stage, device))


def products(nest: Nest, device: Device) -> Number:
    """Matrix instructions of one execution width in one block."""
    rows, columns = tiles(nest, device)
    if device.instruction(nest.stage.compute.instruction).is_asynchronous:
        columns = 1
    return steps_of(nest, device) * rows * columns * nest.facts.components


def gathered_accesses(nest: Nest, device: Device, accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Those that fill tiles of a matrix instruction's factors through registers where each element's place is divided
    out of a view (a convolution's images with their channels first)."""
    if instruction_of(nest, device) is None:
        return ()
    staged = [copy for copy in nest.stage.copies if not copy.asynchronous]
    loads = {copy.load for copy in staged if not nest.facts.loads[copy.load].offset.is_affine}
    return tuple([one for one in accesses if one.load in loads and one.role in ("fill_read", "fill_write")])


def product_clocks(nest: Nest, device: Device) -> Number:
    """Clocks of a unit's matrix units for one of an execution width's instructions: its share of one that several
    execute, which is of all their tiles along n."""
    one = device.instruction(nest.stage.compute.instruction)
    if not one.is_asynchronous:
        return 1 / one.per_clock
    return tiles(nest, device)[1] / one.per_clock / (one.lanes // nest.lockstep)


def fragment_registers(nest: Nest, device: Device) -> Number:
    """Registers of a thread that hold operands."""
    one = device.instruction(nest.stage.compute.instruction)
    operands = matrix_operands(nest.facts.op, matrix_axes(nest.stage), one)
    if operands is None or (one.is_asynchronous and not sum_apart(nest.stage)):
        return 0
    if one.is_asynchronous:
        return 2 * _HELD * len(operands.a) * tiles(nest, device)[0]
    rows, columns = tiles(nest, device)
    narrow = conversion_registers(nest, operands, one, (rows, columns)) if operands.conversions else 0
    return len(operands.a) * rows * one.a_registers + len(operands.b) * columns * one.b_registers + narrow


def converting_of(nest: Nest, device: Device) -> Converting:
    """Instructions of a thread in one block that convert factors."""
    one = instruction_of(nest, device)
    operands = matrix_operands(nest.facts.op, matrix_axes(nest.stage), one) if one is not None else None
    if one is not None and operands is not None and one.is_asynchronous and sum_apart(nest.stage):
        held = steps_of(nest, device) * tiles(nest, device)[0] * len(operands.a)
        return Converting(held * _HELD / (PANEL_BYTES // (one.k * ITEMSIZE[one.dtype])), 0)
    if one is None or operands is None or not operands.conversions:
        return NOTHING_CONVERTED
    return converting(nest, operands, one, steps_of(nest, device), tiles(nest, device), device)


def fragment_accesses(nest: Nest, device: Device) -> tuple[Access, ...]:
    """The loads of all operands' fragments, and those of opaque results that pass through the block's layer."""
    one = device.instruction(nest.stage.compute.instruction)
    operands = matrix_operands(nest.facts.op, matrix_axes(nest.stage), one)
    if operands is None:
        return ()
    if one.is_asynchronous:
        return _operand_accesses(nest, device, one, operands)
    steps, (rows, columns) = steps_of(nest, device), tiles(nest, device)
    if operands.conversions:
        return conversion_accesses(nest, device, one, operands, steps, (rows, columns))
    wavefront, numbers = one.layout == WAVEFRONT, reads_numbers(one)
    width, service_of = (fragment_bytes(one), _wavefront_service) if wavefront else (ROW_BYTES, _row_service)
    at_once = one.a_registers if wavefront else _REGISTERS_AT_ONCE
    itemsize = ITEMSIZE[factor_dtype(one)]
    if numbers:
        width, at_once = itemsize, itemsize // 4
    found = []
    factors = [(load, rows, one.a_registers) for load in operands.a]
    factors += [(load, columns, one.b_registers) for load in operands.b]
    for load, count, registers in factors:
        copy = block_copy(nest, load)
        if copy is not None:
            layer = device.layer(copy.to_layer)
            row = [tile_shape(nest, copy, block=True)[-1] + copy.padding]
            if numbers:
                service_of = _along_service if copy.order[-1] == matrix_axes(nest.stage)[2] else _across_service
            served = lambda pitch, of=service_of, layer=layer: of(pitch * itemsize, layer, width)
            loads = steps * count * registers / at_once
            found.append(Access(load, "read", copy.to_layer, loads, width, per_distinct(served, row)))
    results = rows * columns * nest.facts.components
    return (*found, *_results_through(nest, device, one, results, found))


def _operand_accesses(
    nest: Nest, device: Device, one: Instruction, operands: Operands
) -> tuple[Access, ...]:
    """What the matrix units themselves read of the block's layer, each instruction both of its factors: swizzled rows
    meet all banks once.  Each of its execution widths is charged its share."""
    rows, columns = tiles(nest, device)
    width, itemsize = one.lanes // nest.lockstep, ITEMSIZE[factor_dtype(one)]
    found = []
    for load, elements in [(a, one.m) for a in operands.a] + [(b, one.n * columns) for b in operands.b]:
        copy = block_copy(nest, load)
        if copy is not None and load in operands.a and sum_apart(nest.stage):
            service = _piece_service(device.layer(copy.to_layer))
            found.append(Access(load, "read", copy.to_layer, steps_of(nest, device) * rows, ROW_BYTES, service))
        elif copy is not None:
            layer = device.layer(copy.to_layer)
            service = elements * one.k * itemsize / (width * layer.banks * layer.bank_bytes)
            found.append(Access(load, "operand", copy.to_layer, steps_of(nest, device) * rows, ROW_BYTES, service))
    return tuple(found)


def _results_through(
    nest: Nest, device: Device, one: Instruction, count: Number, operands: list[Access]
) -> tuple[Access, ...]:
    """Once for each tile: written by the instruction's store, read by the threads that store the elements."""
    if not scratch_pitch(one) or not operands:
        return ()
    layer = operands[0].layer
    service = _row_service(scratch_pitch(one) * ITEMSIZE[one.accumulator_dtype], device.layer(layer))
    each = count * one.accumulator_registers / _REGISTERS_AT_ONCE
    return tuple(Access(-2, role, layer, each, ROW_BYTES, service, reduces=False) for role in ("write", "read"))


def exchanged_results(nest: Nest, device: Device) -> Number:
    """Warp shuffles of one thread in one block that exchange results before they are stored: one for each result among
    the threads of a row, as each of two steps gives half of them away, and half as many more among those of a column,
    in three steps."""
    one = instruction_of(nest, device)
    if one is None:
        return 0
    rows, columns = tiles(nest, device)
    each = rows * columns * nest.facts.components * (one.m * one.n // one.lanes)
    return each * (exchanges(nest.stage, one) + 1.5 * share_across_rows(nest, device))


def share_across_rows(nest: Nest, device: Device) -> Number:
    """Share of a thread's results that threads of a column have exchanged before they are stored."""
    one, store = instruction_of(nest, device), nest.stage.store
    if one is None or is_nothing(store.across_rows):
        return 0
    columns, together = tiles(nest, device)[1], tiles_across_rows(one, store.vector)
    return store.across_rows * (columns // most(together, 1) * together / columns)


@lru_cache(maxsize=256)
def _piece_service(layer: MemoryLayer) -> int:
    """Wavefronts of a load whose 32 threads read every other piece of 8 rows of a swizzled panel, four in a row."""
    lane = np.arange(32)
    addresses = lane // COLUMNS * PANEL_BYTES + (lane % COLUMNS * 2 ^ lane // COLUMNS) * ROW_BYTES
    return wavefronts(addresses, ROW_BYTES, layer, merge_pairs=False)


@lru_cache(maxsize=256)
def _row_service(pitch: int, layer: MemoryLayer, width: int = ROW_BYTES) -> int:
    """Wavefronts of a load whose threads name 16 rows of 16 bytes, in two columns."""
    lane = np.arange(32)
    addresses = lane % 16 * pitch + lane // 16 * width
    return wavefronts(addresses, width, layer, merge_pairs=False)


@lru_cache(maxsize=256)
def _wavefront_service(pitch: int, layer: MemoryLayer, width: int) -> int:
    """Wavefronts of a load whose 64 threads name 16 rows, in four columns of a fragment's width."""
    lane = np.arange(64)
    return wavefronts(lane % 16 * pitch + lane // 16 * width, width, layer, merge_pairs=False)


@lru_cache(maxsize=256)
def _along_service(pitch: int, layer: MemoryLayer, width: int) -> int:
    """Wavefronts of a load whose 32 threads read neighbours, four of them in a row."""
    lane = np.arange(32)
    return wavefronts(lane // COLUMNS * pitch + lane % COLUMNS * width, width, layer, merge_pairs=False)


@lru_cache(maxsize=256)
def _across_service(pitch: int, layer: MemoryLayer, width: int) -> int:
    """The same from rows across k: neighbours eight in a row."""
    lane = np.arange(32)
    return wavefronts(lane % COLUMNS * pitch + lane // COLUMNS * width, width, layer, merge_pairs=False)


def scratch_of(nest: Nest, device: Device) -> Number:
    """Bytes of the block's layer through which opaque results pass."""
    one = instruction_of(nest, device)
    return 0 if one is None else scratch_bytes(nest.stage, one)
