"""Invariants of matrix instructions whose factors threads convert in registers."""

from __future__ import annotations

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device, Instruction
from rollergen.program.check.nest import refuse
from rollergen.program.conversions import neighbours_of
from rollergen.program.layers import REGISTERS
from rollergen.program.matrix import Operands, first_fragment_loop, matrix_axes
from rollergen.program.rprogram import Stage


def check_conversions(stage: Stage, device: Device, instruction: Instruction, operands: Operands) -> None:
    """Whole tiles along k, all operands staged: factors with k inside, a thread's neighbours aligned and in one row."""
    m, n, k = matrix_axes(stage)
    depth, conversions = first_fragment_loop(stage, device), dict(operands.conversions)
    factors = [(number, m) for number in operands.a] + [(number, n) for number in operands.b]
    inside = [loop.extent * loop.stride for _, loop in stage.of_axis(k)]
    extent = stage.op.axis(k).extent
    if max(inside, default=1) != extent:
        raise refuse(stage, f"its tiles along {k} do not divide {extent}; expected whole tiles of converted factors")
    for load, axis in (*factors, *operands.columns):
        copies = [copy for copy in stage.copies if copy.load == load]
        where = f"the copy of load {load}"
        if len(copies) != 1 or copies[0].to_layer == REGISTERS or copies[0].at_loop > depth:
            raise refuse(stage, f"{len(copies)} copies of load {load}; expected one, into a block's layer")
        copy, of_factor = copies[0], (load, axis) in factors
        wanted = (axis, k) if of_factor else tuple(a for a in (k, axis) if a in stage.load(copy).axes())
        if copy.order != wanted or copy.swizzle or copy.window:
            raise refuse(stage, f"{where}: order is {copy.order}, swizzle {copy.swizzle}; expected {wanted}, none")
        every = conversions[load].every if load in conversions else 1
        if of_factor and copy.every_of(k) != every:
            raise refuse(stage, f"{where}: every is {copy.every}; expected {every} along {k}")
        itemsize = ITEMSIZE[stage.load(copy).dtype]
        width = neighbours_of(stage.compute.factors) // every * itemsize
        pitch = (stage.buffer_shape(copy, block=True)[-1] + copy.padding) * itemsize
        if of_factor and pitch % width:
            raise refuse(stage, f"{where}: rows are {pitch} bytes apart; expected a multiple of {width}")
