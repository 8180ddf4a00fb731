"""Bytes of memory that checking and calling a program take, told before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rollergen.errors import DeviceError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.values import Buffer
from rollergen.gate.arrays import zone_bytes
from rollergen.gate.memory import Memory
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram

INPUT_SETS, PRISTINE_SETS = 3, 2
"""Sets of inputs between guard zones (`trials.kinds_of`), and copies of them for the oracle, which are in host memory;
those of equal inputs take none."""

OUTPUT_SETS, KEPT_SETS = 2, 2
"""Sets of outputs between guard zones, one of each alignment; copies that later candidates are compared with, of one
candidate at a time."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes by what they hold."""

    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def __str__(self) -> str:
        several = ", ".join(f"{name} {bytes_text(count)}" for name, count in self.parts.items() if count)
        return f"{bytes_text(self.total)} ({several})"


def calling(program: RProgram) -> Footprint:
    """The arrays of one call; temporaries are ours and stay between calls, one set for each thread and stream."""
    return Footprint(
        {
            "inputs": nbytes(program.inputs),
            "outputs": nbytes(program.outputs),
            "temporaries": nbytes(program.temporaries),
        }
    )


def checking(program: RProgram, host: bool) -> Footprint:
    """The most that a `gate.Gate` allocates for candidates of the program, apart from their temporaries; ``host``: in
    host memory, where the oracle's inputs lie as well."""
    inputs, outputs = nbytes(program.inputs), nbytes(program.outputs)
    zones = INPUT_SETS * _zones(program.inputs) + OUTPUT_SETS * _zones(program.outputs)
    return Footprint(
        {
            f"{INPUT_SETS} sets of inputs": INPUT_SETS * inputs,
            f"{PRISTINE_SETS} copies of them": PRISTINE_SETS * inputs if host else 0,
            f"{OUTPUT_SETS} sets of outputs": OUTPUT_SETS * outputs,
            f"{KEPT_SETS} copies of them for later candidates": KEPT_SETS * outputs,
            "guard zones": zones,
        }
    )


def with_temporaries(program: RProgram) -> Footprint:
    """The footprint of one candidate while it is checked: its temporaries and their guard zones."""
    own = program.temporaries
    return Footprint({"temporaries": nbytes(own), "guard zones": _zones(own)})


def timing(program: RProgram) -> int:
    """Bytes of the outputs and temporaries that a candidate is timed on."""
    return nbytes(program.outputs) + nbytes(program.temporaries)


def building(programs: Sequence[RProgram], host: bool) -> Footprint:
    """The most that a build allocates where these candidates are checked and timed."""
    parts = dict(checking(programs[0], host).parts)
    parts["temporaries of a candidate"] = max(with_temporaries(program).total for program in programs)
    parts["what all are timed on"] = sum(map(timing, programs))
    return Footprint(parts)


def require(needed: Footprint, memory: Memory, what: str) -> None:
    """Raises DeviceError where `memory` has less free than is needed; the message gives both."""
    free = memory.free_bytes()
    if free is not None and needed.total > free:
        raise DeviceError(
            f"{what} takes {needed} of {memory.name}, which has {bytes_text(free)} free; "
            "free some of it, or build with profile=False"
        )


def nbytes(buffers: Iterable[Buffer]) -> int:
    """Bytes of arrays without guard zones."""
    return sum(one.elements * ITEMSIZE[one.dtype] for one in buffers)


def _zones(buffers: Iterable[Buffer]) -> int:
    return sum(2 * zone_bytes(nbytes([one])) for one in buffers)


def bytes_text(count: float) -> str:
    """A size with the unit that suits: ``12.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
