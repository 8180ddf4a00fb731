"""Grid and steps -> Stage for bulk-synchronous machines: block b of the grid is tile b's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.rprogram import GRID, SERIAL, Accumulator, Compute, Loop, RProgram, Stage
from rollergen.program.supersteps import FINISHED, PLANNED, Superstep, TileMapping
from rollergen.tile.rules import main_instruction


@dataclass(frozen=True)
class BulkPlan:
    """``blocks``: (axis, elements of one tile's block) in the order of the grid, the last one's tiles adjacent;
    axes that are not named stay whole.  ``weights``, ``outputs``, ``inputs``, ``copied``, ``shares``: see
    `Superstep`.  ``chunk``: elements of the axis ``inputs`` in one superstep; 0: all."""

    blocks: tuple[tuple[str, int], ...] = ()
    copied: tuple[int, ...] = ()
    instruction: Instruction | None = field(default=None)
    weights: int = -1
    outputs: str = ""
    inputs: str = ""
    chunk: int = 0
    shares: str = ""


def bulk_stage(op: TensorOp, plan: BulkPlan, device: Device, name: str) -> Stage:
    """The stage of a plan: grid loops, then one tile's own loops, reductions innermost."""
    blocks: Mapping[str, int] = dict(plan.blocks)
    extents = {axis.name: axis.extent for axis in op.axes}
    grid = [Loop(axis, ceil_div(extents[axis], block), block, GRID) for axis, block in plan.blocks]
    own = [
        Loop(axis.name, min(blocks.get(axis.name, axis.extent), axis.extent), 1, SERIAL)
        for axis in op.of_role("spatial")
    ]
    reduced, steps = _reduced(op, plan)
    loops = [loop for loop in [*grid, *own] if loop.extent > 1]
    at, dtype = len(loops), accumulator_dtype(op)
    instruction = plan.instruction or main_instruction(device, dtype)
    positions = tuple(at + p for p in steps)
    return Stage(
        name=name,
        op=op,
        loops=(*loops, *reduced),
        compute=Compute(instruction.name),
        accumulator=Accumulator(at, dtype),
        superstep=Superstep(plan.copied, plan.weights, plan.outputs, plan.inputs, positions, plan.shares),
    )


def _reduced(op: TensorOp, plan: BulkPlan) -> tuple[list[Loop], tuple[int, ...]]:
    """Loops of reduce and row axes, and which of them are supersteps."""
    loops: list[Loop] = []
    steps: tuple[int, ...] = ()
    for axis in op.of_role("reduce", "row"):
        if axis.name == plan.inputs and 0 < plan.chunk < axis.extent:
            steps = (len(loops),)
            loops.append(Loop(axis.name, ceil_div(axis.extent, plan.chunk), plan.chunk, SERIAL))
            loops.append(Loop(axis.name, plan.chunk, 1, SERIAL))
        else:
            loops.append(Loop(axis.name, axis.extent, 1, SERIAL))
    return loops, steps


def with_tile_mappings(program: RProgram) -> RProgram:
    """`program` with every buffer mapped: inputs as planned for their first reader, all else where it is stored."""
    inputs = {buffer.name for buffer in program.inputs}
    mappings: dict[str, TileMapping] = {}
    for stage in program.stages:
        for number, load in enumerate(stage.op.loads()):
            if load.buffer.name in inputs:
                mappings.setdefault(load.buffer.name, TileMapping(load.buffer.name, PLANNED, stage.name, number))
        output = stage.op.output.name
        mappings.setdefault(output, TileMapping(output, FINISHED, stage.name))
    return replace(program, tile_mappings=tuple(mappings.values()))
