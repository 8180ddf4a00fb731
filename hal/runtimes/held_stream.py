"""Times of the device alone: a kernel holds the stream until the host has enqueued all that is timed.

Events around a launch on an idle stream measure how fast the host asks for it; behind a kernel that waits they
measure what the device does, and launches in a row follow each other as closely as the device can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rollergen.hal.runtimes.cuda_runtime import CudaRuntime

LEAST_HOLD_S, MOST_HOLD_S = 5e-4, 0.1
"""Where the host is slower than the stream is held, it is held twice as long from then on."""

TEXT = """
extern "C" __global__ void hold(const long long *__restrict__ nanoseconds)
{
#ifdef __CUDACC__
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds[0]);
#endif
}
"""
"""``%globaltimer`` counts nanoseconds whatever the clock is (PTX ISA, "Special Registers")."""


class HeldStream:
    """Of the GPU of a runtime; for one thread at a time."""

    def __init__(self, runtime: CudaRuntime, hold_s: float = LEAST_HOLD_S) -> None:
        self._runtime = runtime
        self._kernel = runtime.compile(TEXT).kernel("hold")
        self._hold(hold_s)

    def _hold(self, seconds: float) -> None:
        self.hold_s = seconds
        self._runtime.set_arguments(self._kernel, [self._runtime.wrap(np.array([int(seconds * 1e9)], np.int64))])

    def once(self, enqueue: Callable[[], object]) -> tuple[float, bool]:
        """The device's seconds of what `enqueue` puts on the current stream, after all that is there already.

        True where the stream was no longer held when the host was done: then they are the host's as well.
        """
        cuda = self._runtime.cupy.cuda
        self._runtime.launch(self._kernel, 1, 1)
        start, end = cuda.Event(), cuda.Event()
        start.record()
        enqueue()
        end.record()
        late = bool(start.done)
        self._runtime.finish()
        if late and self.hold_s < MOST_HOLD_S:
            self._hold(2 * self.hold_s)
        return float(cuda.get_elapsed_time(start, end)) * 1e-3, late  # it counts milliseconds

    def seconds(self, enqueue: Callable[[], object], before: Callable[[], object] = lambda: None) -> tuple[float, bool]:
        """As `once`, again until the stream was held long enough, or cannot be held longer.

        ``before``: enqueued first each time, and not timed.
        """
        while True:
            before()
            longest = self.hold_s >= MOST_HOLD_S
            took, late = self.once(enqueue)
            if not late or longest:
                return took, late
