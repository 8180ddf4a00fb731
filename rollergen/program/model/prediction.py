"""Reader 1 of the rProgram: its predicted time with the reasons, as explanations and reports show it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.errors import ArgumentError, ProgramError, shown
from rollergen.expr.takes import Bounded
from rollergen.hal.languages import Machine
from rollergen.hal.spec import Device
from rollergen.program.matrix_chains import is_matrix_chain
from rollergen.program.model.ahead import read_ahead
from rollergen.program.model.chains import predict_chain
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import flops_of
from rollergen.program.model.limiters.bandwidth import NOT_SAID
from rollergen.program.model.limiters.issue import instructions_of
from rollergen.program.model.limiters.limit import ADDS
from rollergen.program.model.matrix_chains import predict_matrix_chain
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, choose, least, most
from rollergen.program.model.occupancy import granted_registers
from rollergen.program.model.price import Limiter, Prediction, StagePrediction, launched, of_each, programs, worked
from rollergen.program.model.work import Work
from rollergen.program.rprogram import RProgram, Stage


def predict(program: RProgram, device: Device, starts_in: Mapping[str, str] = NOT_SAID) -> Prediction:
    """Predicted time of `program` on `device`; stages that run once at build are reported, not counted.

    ``starts_in``: by tensor the layer in which its data lie when its kernel starts: memory (cold), or a cache that all
    units share or the one unit has, in which the producer has left them.  Of others the spec says it (`warm_cache`):
    where it says nothing, in memory.

    What doesn't fit a cache lies in the next one.  Lines of a tensor that is stored are there, too, unless its stores
    pass the caches, and reach memory later, which this launch isn't charged with.

    Raises ArgumentError for what is no mapping, for tensors that the program does not have, for other layers, and where
    the program has chains of products or supersteps, whose model takes no such state.
    """
    if starts_in != NOT_SAID:
        _require_starts(program, device, starts_in)
    if (machine := machine_of(program, device)) is not None:
        return machine.predict(program, device)  # type: ignore[no-any-return]
    ways: list[bool | None] = [launch.alone for launch in program.launches] or [None] * len(program.stages)
    pairs = zip(program.stages, ways, strict=True)
    stages = tuple([predict_stage(stage, device, alone, starts_in) for stage, alone in pairs])
    return Prediction(sum(stage.seconds for stage in stages if not stage.once), stages)


def _require_starts(program: RProgram, device: Device, starts_in: Mapping[str, str]) -> None:
    if not isinstance(starts_in, Mapping):
        raise ArgumentError(f"starts_in is {shown(starts_in)}; expected layers by the names of tensors: {{'X': 'l2'}}")
    if program.tile_mappings or any(stage.inner is not None for stage in program.stages):
        raise ArgumentError("starts_in is given; expected none for programs of supersteps and for chains of products")
    tensors = [one for one in program.inputs if not isinstance(one, Bounded)]  # scalars come with the launch
    names = [*(one.name for one in tensors), *(stage.op.output.name for stage in program.stages)]
    shared = [one.name for one in device.caches if one.scope == "device" or device.units == 1]
    for tensor, layer in starts_in.items():
        if tensor not in names:
            raise ArgumentError(f"starts_in names {tensor!r}; expected tensors of the program: {', '.join(names)}")
        if layer not in (layers := [*shared, device.backing.name]):
            raise ArgumentError(f"starts_in[{tensor!r}] is {layer!r}; expected one of {', '.join(layers)}")


def machine_of(program: RProgram, device: Device) -> Machine | None:
    """What predicts and interprets the program on `device`; None: the model and the interpreter of launches.

    Raises ProgramError for a program with tile mappings on a device that only launches.
    """
    if not program.tile_mappings:
        return None
    if device.kind.machine is None:
        raise ProgramError(f"the program has tile mappings; expected one of launches for {device.name}")
    return device.kind.machine


def predict_stage(
    stage: Stage, device: Device, alone: bool | None = None, starts_in: Mapping[str, str] = NOT_SAID
) -> StagePrediction:
    """Predicted time of one launch and its breakdown.

    Loops, copies and stores may have int64 arrays of one length (a batch of programs with one loop structure and one
    tensor op; no chain) for their sizes; every number of the answer is then an array. ``alone``: whether the blocks run
    on the calling thread; None: where that takes less.  ``starts_in``: as of `predict`; of no chain.
    """
    if stage.inner is not None:
        return predict_matrix_chain(stage, device) if is_matrix_chain(stage) else predict_chain(stage, device, alone)
    nest, work, way, on_caller = found = launched(stage, device, alone=alone, starts_in=starts_in)
    count = programs(stage)
    said = lambda figure: of_each(figure, count) if count > 1 else np.asarray(figure).item()
    limiters = (*way.limiters, ("launch", way.launch_us * device.clock_mhz, ADDS))
    named = [Limiter(n, said(c / (device.clock_mhz * 1e6)), said(c), how) for n, c, how in limiters if np.any(c > 0)]
    waves, costs = way.waves, costs_of(device)
    occupancy = least(waves.resident * nest.threads / device.limits.threads_per_unit, 1.0)
    registers = _registers(nest, device, costs, work, waves.resident)
    return StagePrediction(
        stage.name, said(way.seconds), tuple(named), said(nest.blocks), said(waves.waves), said(waves.resident),
        said(occupancy), said(nest.threads), said(registers), said(found.spilled), said(work.shared_bytes),
        tuple([(name, said((read + written) * nest.blocks)) for name, read, written in way.layers]),
        flops_of(stage), stage.once, said(on_caller),
    )  # fmt: skip


def multiply_add_share(stage: Stage, device: Device) -> Number:
    """Share of the multiply-add slots among all instructions that one thread issues, by the issue limiter's count."""
    nest, work = worked(stage, device)
    costs = costs_of(device)
    return work.slots / instructions_of(nest, device, costs, work)


def _registers(nest: Nest, device: Device, costs: Costs, work: Work, resident: Number) -> Number:
    """Registers that a thread is given: those wanted and, as far as that costs no resident block, loads started early.

    A compiler that is told how many blocks share a unit takes what they leave. It reads fragments ahead where they
    leave all that a thread may have.
    """
    granted = granted_registers(nest, device, resident)
    spare = most(granted - work.registers, 0)
    free = (resident == 1) | (granted >= device.limits.registers_per_thread)
    ahead = choose(free, read_ahead(nest, device, costs), 0) if nest.lockstep > 1 else 0
    return work.registers + least(work.in_flight + ahead, spare)
