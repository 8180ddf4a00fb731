"""What the kernels of several sizes share that have one source: its machine code, and the constants packed for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from rollergen.emit import Launch, Source
from rollergen.gate.memory import Array, Memory
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram
from rollergen.runtime.packed import NEVER, Packed

if TYPE_CHECKING:
    from rollergen.runtime.executor import Compiled


@dataclass(slots=True)
class Constants:
    """``packed`` says of which constants a thread's temporaries were made, of which ``arrays`` are those made once."""

    packed: Packed = NEVER
    arrays: dict[str, Array] = field(default_factory=dict)

    def temporaries(self, program: RProgram, memory: Memory) -> dict[str, Array]:
        """Arrays for a program's temporaries: new ones, but for those made once, which all sizes share."""
        once = {stage.op.output.name for stage in program.stages if stage.once}
        made = {b.name: self.arrays.get(b.name) for b in program.temporaries}
        found = {b.name: memory.empty(b) if made[b.name] is None else made[b.name] for b in program.temporaries}
        self.arrays.update({name: array for name, array in found.items() if name in once})
        return found


class Code(threading.local):
    """``constants``: this thread's own.  Compiled at the first use, which only one thread does."""

    def __init__(self, shared: _Shared) -> None:
        self.constants = Constants()
        self._shared = shared

    def launching(self, launches: Sequence[Launch]) -> tuple[Compiled, Memory]:
        """The machine code with these launches, and whose arrays it takes.  Raises as `Executor.prepare` does."""
        return self._shared.launching(launches)


class _Shared:
    def __init__(self, device: Device, source: Source) -> None:
        self._device, self._source, self._lock = device, source, threading.Lock()
        self._compiled: tuple[Compiled, Memory] | None = None

    def launching(self, launches: Sequence[Launch]) -> tuple[Compiled, Memory]:
        with self._lock:
            if self._compiled is None:
                from rollergen.runtime.executor import executor_for  # finding a kernel needs no runtime

                executor = executor_for(self._device)
                self._compiled = executor.prepare(self._source), executor.memory
        compiled, memory = self._compiled
        return compiled.launching(launches), memory


def code_of(device: Device, source: Source) -> Code:
    """The code of a source, of all sizes or of its own."""
    return Code(_Shared(device, source))
