"""Which readers a program has: those of launches, or those of a machine with other programs."""

from __future__ import annotations

from rollergen.errors import ProgramError
from rollergen.hal.languages import Machine
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram


def machine_of(program: RProgram, device: Device) -> Machine | None:
    """What predicts and interprets the program on `device`; None: the model and the interpreter of launches.

    Raises ProgramError for a program with tile mappings on a device that only launches.
    """
    if not program.tile_mappings:
        return None
    if device.kind.machine is None:
        raise ProgramError(f"the program has tile mappings; expected one of launches for {device.name}")
    return device.kind.machine
