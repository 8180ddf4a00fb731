"""Multiply-adds: clocks of the pipes, and those that the issue slots count as well."""

from __future__ import annotations

from rollergen.hal.spec import Device, Instruction
from rollergen.program.model.conversions import converting_clocks
from rollergen.program.model.costs import Costs
from rollergen.program.model.fragments import product_clocks
from rollergen.program.model.limiters.issue import issue_rate
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number
from rollergen.program.model.work import Work
from rollergen.tile.rules import main_instruction


def slot_clocks(nest: Nest, device: Device, costs: Costs) -> float:
    """Clocks of one multiply-add instruction of one warp (of one vector) on one unit; beside a matrix instruction
    those of a plain one.  A vector narrower than the instruction fills one pipe at least."""
    instruction = device.instruction(nest.stage.compute.instruction)
    if instruction.is_matrix:
        instruction = main_instruction(device, instruction.accumulator_dtype)
    plain = instruction.is_dot_product or (instruction.m == 1 and instruction.k == 1)
    width = max(nest.lanes, pipe_lanes(instruction, costs)) if plain else nest.lanes
    return nest.lockstep * width / (instruction.at_once * instruction.per_clock)


def pipe_lanes(instruction: Instruction, costs: Costs) -> float:
    """Lanes of a vector that one pipe takes in a clock."""
    share = instruction.per_clock / costs.vector_pipes if costs.vector_pipes else 1.0
    return instruction.lanes * min(1.0, share)


def arithmetic_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Clocks of the multiply-add pipes for one block; spilled vector registers stall them."""
    clocks = nest.warps * work.slots * slot_clocks(nest, device, costs)
    instruction = device.instruction(nest.stage.compute.instruction)
    if instruction.is_matrix:
        clocks = clocks + nest.warps * work.products * product_clocks(nest, device)
        integers = costs.integer_per_clock or issue_rate(device, costs)
        clocks = clocks + nest.warps * converting_clocks(work.converting, device, integers)
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
    return nest.warps * work.slots * min(slot_clocks(nest, device, costs), 1 / issue_rate(device, costs))
