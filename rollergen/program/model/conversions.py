"""Factors that threads convert in registers, in the model: the reads of narrow elements, the instructions, registers.

Instructions are those that the functions of `emit.conversions` take, by row of a fragment (4 elements of a thread).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.dtypes import FLOAT8
from rollergen.hal.spec import Device, Instruction, MemoryLayer
from rollergen.program.conversions import EIGHT, NEIGHBOURS, Conversion, neighbours_of
from rollergen.program.matrix import COLUMNS, ROWS, Operands
from rollergen.program.model.access import Access
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, is_nothing, most, per_distinct
from rollergen.program.model.tiles import block_copy, tile_shape
from rollergen.program.model.wavefronts import wavefronts
from rollergen.tile.rules import main_instruction

_MADE = {
    ("int8", "float16"): (3, 2), ("uint8", "float16"): (2, 2), ("int8", "bfloat16"): (7, 4),
    ("uint8", "bfloat16"): (6, 4),
    **{(kind, dtype): (5, 2) for kind in ("int4", "uint4") for dtype in ("float16", "bfloat16")},
}  # fmt: skip
"""(integer, floating) instructions that make two pairs of numbers of four narrow ones, as the functions are written."""
_OF_FLOAT8 = {"float8_e4m3fn": (20, 2), "float8_e5m2": (2, 0)}
"""The same of float8 as float16; `_BY_INSTRUCTION` where the device has matrix instructions of it (sm_89 on)."""
_BY_INSTRUCTION = (0, 2)
_IN_BFLOAT16 = (0, 6)
"""What making bfloat16 of two such pairs takes beside."""
_OF_EIGHT = {"float16": (2.5, 2), "bfloat16": (3.5, 2)}
"""The same of a word of eight of four bits, whose second half is shifted first: instructions of a half."""
_PERMUTED = 2
"""Instructions that put the pairs of a half together of what a thread reads of the other factor."""
_PAIRS = 2
"""Instructions of one further operation: one for each pair."""
_COLUMN = 1
"""Instructions that put what is the same for all neighbours into both halves of a register."""


class Converting(NamedTuple):
    """Instructions of a thread that convert factors: of integers, and of floats (pairs, most of them)."""

    integer: Number
    floating: Number


NOTHING_CONVERTED = Converting(0, 0)


def converting_clocks(work: Converting, device: Device, integer_per_clock: float) -> Number:
    """Clocks of a unit for one execution width's: integers, so many of which it executes in a clock, and floats have
    pipes of their own."""
    if is_nothing(work.integer):
        return 0
    pairs = [one.per_clock for one in device.instructions if one.name == "hfma2"]
    rate = max(pairs, default=main_instruction(device, "float32").per_clock)
    return most(work.integer / integer_per_clock, work.floating * (device.execution_width / rate))


def conversion_accesses(
    nest: Nest, device: Device, one: Instruction, operands: Operands, steps: Number, tiles: tuple[Number, Number]
) -> tuple[Access, ...]:
    """Reads of the staged tiles: of each fragment's rows a thread's neighbours, of columns an element for a tile and
    run along the sum."""
    found, conversions = [], dict(operands.conversions)
    counts = dict.fromkeys(operands.a, (tiles[0], one.m // ROWS)) | dict.fromkeys(operands.b, (tiles[1], 1))
    neighbours = neighbours_of(nest.stage.compute.factors)
    for number, (count, rows) in counts.items():
        itemsize = nest.facts.loads[number].itemsize
        width = conversions[number].bytes_of(neighbours) if number in conversions else neighbours * itemsize
        reads = steps * NEIGHBOURS / neighbours * count * rows
        found.append(_access(nest, device, number, reads, width, COLUMNS))
    for number, conversion in conversions.items():
        for load in conversion.columns:
            at = nest.facts.op.loads().index(load)
            count, rows = counts[number]
            reads = _column_reads(nest, one, at, steps) * count * rows
            found.append(_access(nest, device, at, reads, nest.facts.loads[at].itemsize, 1))
    return tuple(found)


def _column_reads(nest: Nest, one: Instruction, load: int, steps: Number) -> Number:
    """Times that a thread reads a column for one tile: once for a run, or a staged tile, of steps along the sum."""
    copy = block_copy(nest, load)
    if copy is None:
        return steps
    k = nest.facts.op.reductions[0].axes[0]
    inside = nest.extent(nest.inside(k, copy.at_loop, block=False))
    runs = ceil_div(inside, copy.every_of(k)) if k in copy.order else 1
    return steps * one.k / inside * runs


def _access(nest: Nest, device: Device, load: int, count: Number, width: int, across: int) -> Access:
    """A read of `width` bytes by each thread: `across` of them side by side in each of a tile's rows."""
    copy = block_copy(nest, load)
    assert copy is not None  # the check wants all of them staged
    itemsize, layer = nest.facts.loads[load].itemsize, device.layer(copy.to_layer)
    extent = tile_shape(nest, copy, block=True)[-1]
    if across == 1:  # of columns, whose rows lie side by side
        return Access(load, "read", copy.to_layer, count, width, _service(itemsize, width, layer, 1))
    served = lambda row: _service((row + copy.padding) * itemsize, width, layer, across)
    return Access(load, "read", copy.to_layer, count, width, per_distinct(served, [extent]))


def _service(pitch: int, width: int, layer: MemoryLayer, across: int) -> int:
    lane = np.arange(ROWS * COLUMNS)
    return wavefronts(lane // COLUMNS * pitch + lane % across * width, width, layer, merge_pairs=True)


def converting(
    nest: Nest, operands: Operands, one: Instruction, steps: Number, tiles: tuple[Number, Number], device: Device
) -> Converting:
    """Instructions of a thread that convert the fragments of one block."""
    integer: Number = 0
    floating: Number = 0
    eight, converted = neighbours_of(nest.stage.compute.factors) == EIGHT, dict(operands.conversions)
    for number in (*operands.a, *operands.b) if eight else ():
        if number not in converted:
            integer = integer + steps * _rows_of(number, operands, one, tiles) * _PERMUTED
    for number, conversion in operands.conversions:
        rows = _rows_of(number, operands, one, tiles)
        made = _OF_EIGHT[conversion.dtype] if eight else _made(conversion, device)
        integer = integer + steps * rows * made[0]
        floating = floating + steps * rows * (made[1] + _PAIRS * len(conversion.steps))
        for load in conversion.columns:
            reads = rows * _column_reads(nest, one, nest.facts.op.loads().index(load), steps)
            more = _MADE["int8", conversion.dtype] if ITEMSIZE[load.dtype] == 1 else (0, 0)
            integer, floating = integer + reads * (_COLUMN + more[0]), floating + reads * more[1]
    return Converting(integer, floating)


def _made(conversion: Conversion, device: Device) -> tuple[float, float]:
    if conversion.kind not in FLOAT8:
        return _MADE[conversion.kind, conversion.dtype]
    known = any(one.permission == "float8" for one in device.instructions)
    integer, floating = _BY_INSTRUCTION if known else _OF_FLOAT8[conversion.kind]
    more = _IN_BFLOAT16 if conversion.dtype == "bfloat16" else (0, 0)
    return integer + more[0], floating + more[1]


def conversion_registers(
    nest: Nest, operands: Operands, one: Instruction, tiles: tuple[Number, Number]
) -> Number:
    """Registers of a thread that hold narrow elements and columns of all tiles of a step, and what the next step
    multiplies of what this one has read."""
    total: Number = 0
    for number, conversion in operands.conversions:
        total = total + _rows_of(number, operands, one, tiles) * (1 + len(conversion.columns))
    if neighbours_of(nest.stage.compute.factors) == EIGHT:
        others = {*operands.a, *operands.b} - dict(operands.conversions).keys()
        for number in others:
            total = total + _rows_of(number, operands, one, tiles) * (EIGHT - NEIGHBOURS) // 2
    return total


def _rows_of(number: int, operands: Operands, one: Instruction, tiles: tuple[Number, Number]) -> Number:
    """Rows of fragments of which a thread has neighbours, of one step."""
    return tiles[0] * (one.m // ROWS) if number in operands.a else tiles[1]
