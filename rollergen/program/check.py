"""The invariants that every rProgram meets (stated in `rprogram.py`), each a named refusal.

A message names the stage, the thing, its value and what would be accepted.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollergen.errors import ProgramError
from rollergen.expr.values import Buffer
from rollergen.hal.spec import Device
from rollergen.program.check_copies import check_copies
from rollergen.program.check_definition import check_definition
from rollergen.program.check_loops import check_loops
from rollergen.program.check_reductions import check_accumulator, check_residents
from rollergen.program.check_store import check_store
from rollergen.program.layers import block_capacity, managed_bytes
from rollergen.program.rprogram import RProgram, Stage


def check(program: RProgram, device: Device | None = None) -> None:
    """Raises ProgramError for the first invariant that `program` breaks; with `device`, its limits too.

    >>> from rollergen.program.rprogram import RProgram
    >>> check(RProgram("v100", (), (), ()))
    Traceback (most recent call last):
    rollergen.errors.ProgramError: program has no stages; expected at least one
    """
    _check_buffers(program)
    for stage in program.stages:
        check_stage(stage, device)


def check_stage(stage: Stage, device: Device | None = None) -> None:
    """`check` for one stage, without what concerns other stages."""
    check_definition(stage)
    check_loops(stage, device)
    check_accumulator(stage, device)
    check_residents(stage, device)
    check_copies(stage, device)
    check_store(stage)
    if device is not None:
        _check_limits(stage, device)


def _check_buffers(program: RProgram) -> None:
    """Names are distinct, and every buffer is declared, written by a stage and written before it is read."""
    if not program.stages:
        raise ProgramError("program has no stages; expected at least one")
    _require_distinct("buffer", (buffer.name for buffer in program.buffers()))
    _require_distinct("stage", (stage.name for stage in program.stages))
    declared = {buffer.name: buffer for buffer in program.buffers()}
    made = {buffer.name: buffer for buffer in (*program.temporaries, *program.outputs)}
    there = {buffer.name for buffer in program.inputs}
    once = {buffer.name for buffer in program.inputs if buffer.constant}
    for stage in program.stages:
        for load in stage.definition.loads():
            _require_declared(stage, "load of", load.buffer, declared)
            if load.buffer.name not in there:
                raise ProgramError(
                    f"stage {stage.name}: {load.buffer.name} is read before any stage has written it; "
                    f"expected one of {sorted(there)}"
                )
        _require_declared(stage, "output", stage.definition.output, made)
        _check_once(stage, once)
        there.add(stage.definition.output.name)
    unwritten = sorted(set(made) - there)
    if unwritten:
        raise ProgramError(f"buffers {unwritten} are written by no stage; expected one for each")


def _check_once(stage: Stage, once: set[str]) -> None:
    """A stage that runs once reads only what never changes; what it writes is then such a buffer."""
    if not stage.once:
        return
    for load in stage.definition.loads():
        if load.buffer.name not in once:
            raise ProgramError(
                f"stage {stage.name} runs once and reads {load.buffer.name}; expected constant inputs "
                f"and what other such stages wrote: {sorted(once)}"
            )
    once.add(stage.definition.output.name)


def _require_distinct(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ProgramError(f"{kind} name {name!r} occurs twice; expected distinct names")
        seen.add(name)


def _require_declared(stage: Stage, role: str, buffer: Buffer, declared: dict[str, Buffer]) -> None:
    known = declared.get(buffer.name)
    if known is None:
        raise ProgramError(
            f"stage {stage.name}: {role} {buffer.name!r}, which the program does not declare there; "
            f"expected one of {sorted(declared)}"
        )
    # A stage may view a buffer with another shape of as many elements (fused axes are one dimension).
    if (known.elements, known.dtype) != (buffer.elements, buffer.dtype):
        raise ProgramError(
            f"stage {stage.name}: {role} {buffer.name} as {buffer.dtype} {buffer.shape}; "
            f"the program declares {known.dtype} {known.shape}"
        )


def _check_limits(stage: Stage, device: Device) -> None:
    """What one block may hold.  Registers are not limited here: a compiler spills what exceeds them, and
    the model prices that."""
    limit = device.limits.threads_per_block
    if stage.threads > limit:
        raise ProgramError(
            f"stage {stage.name}: a block has {stage.threads} threads; {device.name} allows 1 to {limit}"
        )
    for layer, used in managed_bytes(stage, device).items():
        if used > block_capacity(layer, device):
            raise ProgramError(
                f"stage {stage.name}: a block takes {used} bytes of {layer}; "
                f"{device.name} allows at most {block_capacity(layer, device)}"
            )
