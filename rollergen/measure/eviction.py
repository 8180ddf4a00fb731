"""Cold caches: a launch between two runs that reads and writes more memory than all caches hold together.

It is a kernel of the device's own, so that the caches of every core are swept, not only those of the caller's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rollergen.emit import Launch, Source
from rollergen.errors import DeviceError
from rollergen.hal.languages import language
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.hal.spec import Device
from rollergen.runtime.executor import Executor

TIMES = 2
"""So many times what the caches hold: replacement is not strictly by age."""

BLOCK_BYTES = 1 << 14
"""Of one block of the sweep: enough of them for every core to take its share."""


class Sweep:
    """Call it to find the caches of a device full of something else.  For one thread at a time.

    Raises DeviceError for a device in whose language there is no such kernel, or that has no cache.
    """

    def __init__(self, executor: Executor, device: Device) -> None:
        written = language(device.kind.language)
        if not written.sweep:
            raise DeviceError(
                f'{device.name}: {written.name} has no kernel that sweeps caches: caches="cold" is for CPUs; expected '
                'caches="warm"'
            )
        blocks = -(-TIMES * cached_bytes(device) // BLOCK_BYTES)
        if not blocks:
            raise DeviceError(f'{device.name} has no caches that could be cold; expected caches="warm"')
        line = min(layer.transaction_bytes for layer in device.layers[1:-1] if not layer.managed)
        text = written.sweep.replace("BLOCK", str(BLOCK_BYTES // 4)).replace("LINE", str(line // 4))
        source = Source(text, (Launch("sweep", blocks, 1, ("memory",)),), written.name)
        self.memory = np.zeros(blocks * BLOCK_BYTES // 4, np.int32)
        self._session = executor.prepare(source).session()
        self._session.set({"memory": self.memory})

    def __call__(self) -> None:
        self._session.run()


def sweep_of(executor: Executor, device: Device) -> Callable[[], None]:
    """The function that fills the caches of the device with something else. Raises DeviceError where there is none."""
    runtime = getattr(executor, "runtime", None)
    return runtime.flush if isinstance(runtime, CudaRuntime) else Sweep(executor, device)


def cached_bytes(device: Device) -> int:
    """Bytes of all caches together, those of every unit counted."""
    caches = [layer for layer in device.layers[1:-1] if not layer.managed]
    return sum(layer.capacity_bytes * (device.units if layer.scope == "unit" else 1) for layer in caches)
