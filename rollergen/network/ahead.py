"""Compiling ahead: while kernels of a model are constructed, the compiler makes machine code of those before.

A thread on a core beside the caller's does it where compiling takes long, which is PoCL alone: it releases Python's
lock.  ResNet-50's 31 kernels take PoCL 12 s of one core, as long as their construction.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from rollergen.gate.arrays import aligned_empty
from rollergen.hal.probes.host_facts import cores
from rollergen.hal.spec import Device
from rollergen.kernel import Kernel


class CompilingAhead:
    """A context in which kernels that are begun become ready for their first call, one after the other.

    Nothing more is begun when it ends: the first call compiles what is left, and meets the errors that there were.
    """

    def __init__(self, device: Device) -> None:
        host = not device.kind.threads and device.kind.machine is None
        self._pool = ThreadPoolExecutor(1, "compile ahead") if host and cores() > 1 else None
        self._begun: set[Kernel] = set()

    def begin(self, kernel: Kernel) -> None:
        if self._pool is not None and kernel not in self._begun:
            self._begun.add(kernel)
            self._pool.submit(_made_ready, kernel)

    def __enter__(self) -> CompilingAhead:
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _made_ready(kernel: Kernel) -> None:
    """Compiles the kernel and runs it once, on zeros: PoCL writes machine code at the first launch."""
    session, program = kernel.new_session(), kernel.program
    buffers = (*program.inputs, *program.temporaries, *program.outputs)
    arrays = {buffer.name: aligned_empty(buffer.shape, buffer.dtype) for buffer in buffers}
    for array in arrays.values():
        array[...] = 0
    session.set(arrays)
    session.once()
    session.run()
