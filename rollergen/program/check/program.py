"""The invariants that every rProgram meets; each is stated in `rprogram.py`.

Runs on every constructed program, so it looks at records only and never enumerates points.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.bsp.check import check_bulk
from rollergen.errors import ProgramError
from rollergen.expr.values import Buffer
from rollergen.hal.spec import Device
from rollergen.program.check.nest import check_nest, refuse
from rollergen.program.check.tensor_op import check_op
from rollergen.program.check.tiles import check_tiles
from rollergen.program.rprogram import GRID, PARALLEL, RProgram, Stage


def check(program: RProgram, device: Device | None = None) -> None:
    """Raises ProgramError, naming stage, thing, value and what is accepted, for the first broken invariant.

    With `device`, its layers, instructions and limits count too.
    """
    check_each((program,), device)


def check_each(programs: Sequence[RProgram], device: Device | None = None) -> None:
    """`check` of every program; a tensor op that several of them have is looked at once."""
    sound: set[int] = set()
    for program in programs:
        _check(program, device, sound)


def _check(program: RProgram, device: Device | None, sound: set[int]) -> None:
    """``sound``: the identities of tensor ops that are known to be sound, to which the program's are added."""
    buffers = _buffers(program)
    _check_stage_names(program)
    inputs = {buffer.name for buffer in program.inputs}
    built = {buffer.name for buffer in program.inputs if buffer.constant}
    written: set[str] = set()
    for stage in program.stages:
        loads = stage.op.loads()
        for load in loads:
            _check_known(stage, load.buffer, buffers)
            if load.buffer.name not in inputs and load.buffer.name not in written:
                raise refuse(stage, f"reads {load.buffer.name}; expected an input, or what an earlier stage writes")
        if stage.once:
            _check_once(stage, {load.buffer.name for load in loads}, built)
        _check_output(stage, inputs, buffers)
        if stage.store.adds and stage.op.output.name not in written:
            raise refuse(stage, f"adds to {stage.op.output.name}; expected an earlier stage to write it")
        written.add(stage.op.output.name)
        if id(stage.op) not in sound:
            check_op(stage)
            sound.add(id(stage.op))
        axes = {axis.name: axis for axis in stage.op.axes}
        check_nest(stage, axes, device)
        first_inner = len([loop for loop in stage.loops if loop.kind == GRID or loop.kind in PARALLEL])
        check_tiles(stage, axes, loads, first_inner, device)
    _check_complete(program, written)
    _check_launches(program, device)
    if program.homes or any(stage.superstep for stage in program.stages):
        check_bulk(program, device)


def _check_complete(program: RProgram, written: set[str]) -> None:
    names = ", ".join(stage.name for stage in program.stages) or "there is none"
    for buffer in (*program.temporaries, *program.outputs):
        if buffer.name not in written:
            raise ProgramError(f"{buffer.name} is never written; expected one of the stages to do so: {names}")


def _check_launches(program: RProgram, device: Device | None) -> None:
    """One for each stage; a block whose threads run beside each other is not for the calling thread alone."""
    if program.launches and len(program.launches) != len(program.stages):
        raise ProgramError(
            f"launches are {len(program.launches)}; expected {len(program.stages)}, one for each stage, or none"
        )
    for stage, launch in zip(program.stages, program.launches, strict=False):
        if launch.alone and stage.threads > 1:
            raise refuse(stage, f"is launched alone with {stage.threads} threads a block; expected 1")
        if device is None:
            continue
        limits = device.limits
        most = max(1, min(limits.blocks_per_unit, limits.threads_per_unit // stage.threads))
        if launch.resident_blocks > most:
            raise refuse(stage, f"has {launch.resident_blocks} resident blocks; expected at most {most} on a unit")


def _check_stage_names(program: RProgram) -> None:
    names = [stage.name for stage in program.stages]
    if len(set(names)) != len(names):
        raise ProgramError(f"the stages are named {', '.join(names)}; expected different names")


def _buffers(program: RProgram) -> dict[str, Buffer]:
    found: dict[str, Buffer] = {}
    for buffer in program.buffers():
        if buffer.name in found:
            raise ProgramError(f"two buffers are named {buffer.name}; expected different names")
        found[buffer.name] = buffer
    return found


def _check_known(stage: Stage, buffer: Buffer, buffers: dict[str, Buffer]) -> None:
    """The buffer is the program's, perhaps under another shape of as many elements."""
    known = buffers.get(buffer.name)
    if known is None:
        raise refuse(stage, f"uses {buffer.name}; expected one of the program's buffers: {', '.join(buffers)}")
    if known.dtype != buffer.dtype or known.elements != buffer.elements:
        raise refuse(
            stage,
            f"uses {buffer.name} as {buffer.dtype} {buffer.shape}; expected {known.elements} elements of {known.dtype}",
        )


def _check_output(stage: Stage, inputs: set[str], buffers: dict[str, Buffer]) -> None:
    output = stage.op.output
    _check_known(stage, output, buffers)
    if output.name in inputs:
        raise refuse(stage, f"writes {output.name}, an input; expected an output or a temporary")


def _check_once(stage: Stage, reads: set[str], built: set[str]) -> None:
    """A stage that runs at build reads what is known then; what it writes is known too."""
    if not reads <= built:
        raise refuse(stage, f"runs once but reads {', '.join(sorted(reads - built))}; expected constant tensors only")
    built.add(stage.op.output.name)
