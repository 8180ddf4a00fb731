"""Invariants of bulk-synchronous programs: supersteps, tile mappings, one block a tile."""

from __future__ import annotations

from rollergen.errors import ProgramError
from rollergen.hal.spec import Device
from rollergen.program.check.nest import refuse
from rollergen.program.rprogram import SERIAL, RProgram, Stage
from rollergen.program.supersteps import FINISHED, PLANNED, Superstep


def check_bulk(program: RProgram, device: Device | None) -> None:
    """Every stage a superstep and every buffer a tile mapping, or none at all."""
    with_steps = [stage for stage in program.stages if stage.superstep is not None]
    if not program.tile_mappings and not with_steps:
        return
    for stage in program.stages:
        if stage.superstep is None:
            raise refuse(stage, "has no superstep; expected one, as the program has tile mappings or other supersteps")
        _check_superstep(program, stage, stage.superstep, device)
    _check_tile_mappings(program)


def _check_superstep(program: RProgram, stage: Stage, step: Superstep, device: Device | None) -> None:
    loads = stage.op.loads()
    for number in step.copied:
        if not 0 <= number < len(loads):
            raise refuse(stage, f"superstep.copied names load {number}; expected 0 to {len(loads) - 1}")
    for position in step.steps:
        loop = stage.loops[position] if 0 <= position < len(stage.loops) else None
        role = stage.op.axis(loop.axis).role if loop is not None else ""
        if loop is None or loop.kind != SERIAL or role != "reduce":
            raise refuse(stage, f"superstep.steps names loop {position}; expected a serial loop of a reduce axis")
    if step.weights >= 0:
        _check_weights(stage, step)
    if step.shares:
        _check_shares(program, stage, step)
    elif device is not None and stage.blocks > device.units:
        raise refuse(stage, f"has {stage.blocks} blocks; expected at most {device.units}, the tiles of {device.name}")


def _check_weights(stage: Stage, step: Superstep) -> None:
    loads, axes = stage.op.body_loads(), {axis.name: axis.role for axis in stage.op.axes}
    if len(loads) != 2 or step.weights > 1:
        raise refuse(stage, f"superstep.weights is {step.weights} of {len(loads)} factors; expected one of two")
    if axes.get(step.outputs) != "spatial" or step.outputs in loads[1 - step.weights].axes():
        raise refuse(stage, f"superstep.outputs is {step.outputs!r}; expected a spatial axis of the weights alone")
    if axes.get(step.inputs) != "reduce" or not all(step.inputs in load.axes() for load in loads):
        raise refuse(stage, f"superstep.inputs is {step.inputs!r}; expected a reduce axis of both factors")


def _check_shares(program: RProgram, stage: Stage, step: Superstep) -> None:
    before = program.stages[: program.stages.index(stage)]
    writer = next((s for s in before if s.op.output.name == step.shares), None)
    loads = stage.op.loads()
    if writer is None or [load.buffer.name for load in loads] != [step.shares]:
        raise refuse(stage, f"superstep.shares is {step.shares!r}; expected the temporary that it alone reads")
    part = writer.op.axes[0].name
    if any(loop.axis == part and loop.stride > 1 for loop in writer.loops):
        raise refuse(stage, f"combines {step.shares}, blocks of which have several parts; expected one a tile")


def _check_tile_mappings(program: RProgram) -> None:
    stages = {stage.name: stage for stage in program.stages}
    inputs = {buffer.name for buffer in program.inputs}
    named = [mapping.buffer for mapping in program.tile_mappings]
    for stage in program.stages:
        for name in (stage.op.output.name, *(load.buffer.name for load in stage.op.loads())):
            if named.count(name) != 1:
                count = named.count(name) or "no"
                plural = "s" if named.count(name) > 1 else ""
                raise ProgramError(f"{name} has {count} tile mapping{plural}; expected one")
    for mapping in program.tile_mappings:
        what = f"the tile mapping of {mapping.buffer}"
        rule = PLANNED if mapping.buffer in inputs else FINISHED
        found = stages.get(mapping.stage)
        if mapping.rule != rule or found is None:
            raise ProgramError(f"{what} is {mapping.rule} in {mapping.stage}; expected {rule} in a stage")
        loads = found.op.loads()
        own = 0 <= mapping.load < len(loads) and loads[mapping.load].buffer.name == mapping.buffer
        if rule == PLANNED and not own:
            raise ProgramError(f"{what} is planned for load {mapping.load}; expected a load of it")
        if rule == FINISHED and found.op.output.name != mapping.buffer:
            raise ProgramError(f"{what} is where {mapping.stage} ends; expected its writer")
