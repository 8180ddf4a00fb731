"""Invariants of a stage that computes with a matrix instruction."""

from __future__ import annotations

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device, Instruction
from rollergen.program.check.nest import refuse
from rollergen.program.layers import REGISTERS
from rollergen.program.matrix import (
    ROW_BYTES,
    factor_dtype,
    factors_of,
    first_fragment_loop,
    fragment_loops,
    matrix_axes,
    matrix_operands,
)
from rollergen.program.rprogram import GRID, GROUP, THREAD, UNROLL, Copy, Stage


def check_matrix(stage: Stage, device: Device) -> None:
    """Axes, tile, threads and operands are what a matrix instruction takes."""
    instruction = device.instruction(stage.compute.instruction)
    if stage.compute.factors != factors_of(instruction):
        raise refuse(
            stage,
            f"compute.factors is {stage.compute.factors!r} of {instruction.name}; expected {factors_of(instruction)!r}",
        )
    if not instruction.is_matrix:
        return
    axes = matrix_axes(stage)
    operands = matrix_operands(stage.op, axes, instruction)
    if operands is None:
        raise refuse(
            stage,
            f"compute.instruction is {instruction.name} along {axes}, the axes of its threads and sum; expected a sum "
            f"over one axis of products of two {instruction.dtype} loads, along the first and along the second, in "
            f"{instruction.accumulator_dtype}",
        )
    _check_tile(stage, instruction)
    _check_nest(stage, device)
    for axis, load in zip(axes, (operands.a, operands.b), strict=False):
        _check_operand(stage, device, instruction, axis, load)


def _check_tile(stage: Stage, instruction: Instruction) -> None:
    shape = (instruction.m, instruction.n, instruction.k)
    for axis, extent, expected in zip(matrix_axes(stage), shape, fragment_loops(instruction), strict=True):
        own = tuple((loop.kind, loop.extent) for _, loop in stage.of_axis(axis) if loop.stride < extent)
        if own != expected:
            raise refuse(stage, f"loops of {axis} with strides below {extent} are {own}; expected {expected}")


def _check_nest(stage: Stage, device: Device) -> None:
    """Execution widths are whole, reduce whole tiles and keep all of their results."""
    m, n, _ = matrix_axes(stage)
    threads = [loop.axis for _, loop in stage.of_kind(THREAD)]
    if threads != [m, n] or any(loop.axis not in (m, n) for _, loop in stage.of_kind(GROUP)):
        raise refuse(stage, f"its thread loops are of {threads}; expected one of {m}, then one of {n}, as the groups")
    depth = first_fragment_loop(stage, device)
    outside = [p for p, loop in stage.of_kind(UNROLL) if loop.axis in (m, n) and p < depth]
    serial = [p for p, loop in enumerate(stage.loops) if loop.kind not in (GRID, GROUP, THREAD, UNROLL) and p >= depth]
    reduced = stage.op.reductions[0].axes
    loose = [x.axis for x in stage.loops if x.kind not in (GRID, GROUP, THREAD) and x.axis not in (m, n, *reduced)]
    if outside or serial or loose:
        raise refuse(stage, "a loop of results lies outside the fragments; expected all of them inside the sum's loops")
    accumulator = stage.accumulator
    if accumulator.carry or accumulator.separate or accumulator.flush or accumulator.combine != "none":
        raise refuse(stage, f"accumulator is {accumulator}; expected one a result, kept until the sum is through")


def _check_operand(stage: Stage, device: Device, instruction: Instruction, axis: str, load: int) -> None:
    """Staged for the block, rows along the axis or k, each row at a multiple of what is read at once."""
    copies = [copy for copy in stage.copies if copy.load == load]
    where = f"the copy of load {load}"
    if len(copies) != 1 or copies[0].to_layer == REGISTERS:
        raise refuse(stage, f"{len(copies)} copies of load {load}; expected one, into the layer that a block shares")
    copy = copies[0]
    k = matrix_axes(stage)[2]
    if set(copy.order) != {axis, k} or copy.at_loop > first_fragment_loop(stage, device) or copy.swizzle:
        raise refuse(stage, f"{where}: order is {copy.order}, swizzle {copy.swizzle}; expected {axis} and {k}, none")
    if ITEMSIZE[factor_dtype(instruction)] != 2 and instruction.layout == "quads" and copy.order[-1] != k:
        raise refuse(stage, f"{where}: order is {copy.order}; expected {k} last, as only 16-bit fragments are turned")
    _check_rows(stage, where, copy, instruction)


def _check_rows(stage: Stage, where: str, copy: Copy, instruction: Instruction) -> None:
    pitch = (stage.buffer_shape(copy, block=True)[-1] + copy.padding) * ITEMSIZE[factor_dtype(instruction)]
    if pitch % ROW_BYTES:
        raise refuse(stage, f"{where}: rows are {pitch} bytes apart; expected a multiple of {ROW_BYTES}")
