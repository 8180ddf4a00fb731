"""What a bulk-synchronous program says, decoded: which tile computes what, in which supersteps, and how copies lie.

The meaning of `rprogram.Superstep` and of the grid loops, for all readers; no count and no price follows here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod
from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, Partial
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.program.blocks import grid_positions
from rollergen.program.rprogram import GRID, Stage
from rollergen.program.supersteps import Superstep

GRANULE_BYTES = 8
"""In which tensors are dealt to tiles: the width of a tile's data path (PopLibs: 64-bit loads)."""

Interval = tuple[Any, Any]
"""(first, last), numbers or arrays."""


def superstep(stage: Stage) -> Superstep:
    assert stage.superstep is not None
    return stage.superstep


def matrix_instruction(stage: Stage, device: Device) -> Instruction | None:
    """The instruction whose blocks pad copies and partial results, if the stage uses one."""
    return device.instruction(stage.compute.instruction) if superstep(stage).weights >= 0 else None


def block_extents(stage: Stage) -> dict[str, int]:
    """Elements along each axis that one tile's block covers, over all its supersteps."""
    found = {axis.name: 1 for axis in stage.op.axes}
    for loop in stage.loops:
        if loop.kind != GRID:
            found[loop.axis] *= loop.extent
    return {axis.name: min(found[axis.name], axis.extent) for axis in stage.op.axes}


def step_count(stage: Stage) -> int:
    """Supersteps of the stage."""
    return prod(stage.loops[p].extent for p in superstep(stage).steps)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Inclusive interval of every axis for each (tile, superstep): int64 arrays that broadcast to [tiles, steps].

    ``last`` lies before ``first`` where nothing is left of the axis.
    """

    intervals: Mapping[str, Interval]
    tiles: int
    steps: int


def ranges_of(stage: Stage, *, whole: bool = False) -> Ranges:
    """What every tile's block covers in every superstep; ``whole``: over all supersteps at once."""
    numbers = np.arange(stage.blocks)
    grid = grid_positions(stage, numbers)
    positions = () if whole else superstep(stage).steps
    step_sizes = [stage.loops[p].extent for p in positions]
    steps = np.unravel_index(np.arange(prod(step_sizes)), step_sizes) if positions else ()
    blocks = block_extents(stage)
    intervals = {}
    for axis in stage.op.axes:
        first: Any = np.zeros((1, 1), dtype=np.int64)
        size = blocks[axis.name]
        for position, loop in enumerate(stage.loops):
            if loop.axis == axis.name and loop.kind == GRID:
                first = first + np.asarray(grid[position] * loop.stride).reshape(-1, 1)
            elif loop.axis == axis.name and position in positions:
                first = first + np.asarray(steps[positions.index(position)] * loop.stride).reshape(1, -1)
                size = min(size, loop.stride)
        intervals[axis.name] = (first, np.minimum(first + size, axis.extent) - 1)
    return Ranges(intervals, stage.blocks, prod(step_sizes))


def index_interval(index: Index, ranges: Mapping[str, Interval]) -> Interval:
    """Bounds of an index over axes within `ranges`, whose ends may be arrays."""
    low: Any = np.int64(index.const)
    high: Any = np.int64(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            a, b = ranges[atom]
        else:
            a, b = index_interval(atom.index, ranges)
            whole_a, whole_b = a // atom.divisor, b // atom.divisor
            if isinstance(atom, FloorDiv):
                a, b = whole_a, whole_b
            else:
                same = whole_a == whole_b
                a, b = np.where(same, a % atom.divisor, 0), np.where(same, b % atom.divisor, atom.divisor - 1)
        if coefficient < 0:
            a, b = b, a
        low, high = low + coefficient * a, high + coefficient * b
    return low, high


def spacing(index: Index) -> int:
    """The greatest g such that an index reaches only every g-th element, counted from its constant."""
    return gcd(*(coefficient for _, coefficient in index.terms)) or 1


def held_intervals(load: Load, ranges: Ranges) -> list[Interval]:
    """For each dimension of the load's tensor, what a copy holds: element ``const + spacing * position``."""
    found = []
    for index in load.indices:
        low, high = index_interval(index, ranges.intervals)
        found.append(((low - index.const) // spacing(index), (high - index.const) // spacing(index)))
    return found


def tensor_intervals(load: Load) -> list[tuple[int, int]]:
    """The positions, as `held_intervals` counts them, at which the tensor has elements."""
    return [
        (-(index.const // spacing(index)), (extent - 1 - index.const) // spacing(index))
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
    ]


def steps_of_load(stage: Stage, load: Load) -> bool:
    """Whether each superstep has its own part of the load; else it is copied in the first one."""
    return any(stage.loops[p].axis in load.axes() for p in superstep(stage).steps)


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a copy's order: along dimension ``dim``, whole blocks of ``unit`` positions (``block`` true), or
    the positions within one."""

    dim: int
    unit: int
    block: bool


def copy_digits(stage: Stage, number: int, device: Device) -> tuple[Digit, ...]:
    """The order in which the elements of a load's copy lie, outermost digit first.

    Weights of a matrix instruction: [others][outputs / n][inputs / k][n][k]; its inputs: [inputs / k][others][k]; all
    else: as the tensor.  (PopLibs' layouts of weights and activations.)
    """
    load, step, instruction = stage.op.loads()[number], superstep(stage), matrix_instruction(stage, device)
    dims = range(len(load.indices))
    if instruction is None or number >= len(stage.op.body_loads()):
        return tuple(Digit(d, 1, True) for d in dims)
    inputs = [d for d in dims if step.inputs in load.indices[d].axes()]
    outputs = [d for d in dims if step.outputs in load.indices[d].axes() and number == step.weights]
    others = [Digit(d, 1, True) for d in dims if d not in inputs and d not in outputs]
    split = [(d, instruction.n) for d in outputs] + [(d, instruction.k) for d in inputs if d not in outputs]
    outer = [Digit(d, unit, True) for d, unit in split]
    inner = [Digit(d, unit, False) for d, unit in split]
    return tuple((*others, *outer, *inner) if number == step.weights else (*outer, *others, *inner))


def padded_units(stage: Stage, number: int, device: Device) -> dict[int, int]:
    """Dimensions of a load's copy that are padded, and to multiples of what."""
    return {digit.dim: digit.unit for digit in copy_digits(stage, number, device) if digit.unit > 1}


def partial_is_result(op: TensorOp) -> bool:
    """Whether the finished reduction is stored as it is."""
    return isinstance(op.result, Partial)


def partial_shape(stage: Stage, device: Device) -> dict[str, int]:
    """Partial results of one tile along each spatial axis, padded to the instruction's blocks."""
    blocks, instruction = block_extents(stage), matrix_instruction(stage, device)
    shape = {axis.name: blocks[axis.name] for axis in stage.op.of_role("spatial")}
    if instruction is not None:
        name = superstep(stage).outputs
        shape[name] = -(-shape[name] // instruction.n) * instruction.n
    return shape


def partial_bytes(stage: Stage, device: Device) -> int:
    """Bytes of a tile's partial results beside the output; 0 where they are the output itself, or no instruction
    leaves them in memory."""
    instruction = matrix_instruction(stage, device)
    if instruction is None:
        return 0
    blocks, shape = block_extents(stage), partial_shape(stage, device)
    whole = all(shape[name] == blocks[name] for name in shape)
    if partial_is_result(stage.op) and whole:
        return 0
    return round_up(prod(shape.values()) * ITEMSIZE[stage.accumulator.dtype])








def round_up(count: Any, multiple: int = GRANULE_BYTES) -> Any:
    return -(-count // multiple) * multiple
