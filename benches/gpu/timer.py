"""Times of calls on a GPU, by its own events: only what the device does counts, not how fast the host asks.

Before each call the device is held busy by a kernel that waits, while the host enqueues the call between two events;
a round whose first event had passed before all was enqueued measured the host too, is not counted, and the next ones
hold longer.  Each call is timed in two states of the L2 cache: "warm" (its operands as its previous call left them;
the others' calls lie between) and "cold" (overwritten before each call, outside the events).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

Call = Callable[[], object]

LEAST_ROUNDS, MOST_ROUNDS, WARM_UP = 9, 200, 3
MOST_HOLD_S = 0.1
STATES = ("warm", "cold")

_HOLD = """
extern "C" __global__ void hold(const long long *__restrict__ clocks)
{
#ifdef __CUDACC__
    const long long start = clock64();
    while (clock64() - start < clocks[0]) { }
#endif
}
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of one call: of ``rounds`` that count, and how many did not (``late``)."""

    median_us: float
    least_us: float
    lower_us: float
    upper_us: float
    rounds: int
    late: int

    @staticmethod
    def of(seconds: list[float], late: int) -> Times:
        lower, _, upper = quantiles(seconds, n=4)
        micro = [1e6 * one for one in (median(seconds), min(seconds), lower, upper)]
        return Times(*(round(one, 3) for one in micro), len(seconds), late)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Timer:
    """Of calls that enqueue on the current stream of the runtime's GPU.  ``clock_mhz``: at most its clock."""

    def __init__(self, runtime: Any, clock_mhz: float, hold_s: float = 5e-4) -> None:
        self._runtime, self._clock_mhz = runtime, clock_mhz
        self._kernel = runtime.compile(_HOLD).kernel("hold")
        self._set_hold(hold_s)

    def _set_hold(self, seconds: float) -> None:
        self.hold_s = seconds
        self._clocks = self._runtime.wrap(np.array([int(seconds * self._clock_mhz * 1e6)], np.int64))
        self._runtime.set_arguments(self._kernel, [self._clocks])

    def once(self, call: Call, state: str) -> float | None:
        """Seconds of one call; None where the device did not wait long enough."""
        if state == "cold":
            self._runtime.flush()
        self._runtime.launch(self._kernel, 1, 1)
        start, end = self._runtime.cupy.cuda.Event(), self._runtime.cupy.cuda.Event()
        start.record()
        call()
        end.record()
        late = bool(start.done)
        self._runtime.finish()
        if late and self.hold_s < MOST_HOLD_S:
            self._set_hold(2 * self.hold_s)
        return None if late else float(self._runtime.cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def alternate(self, calls: Mapping[str, Call], seconds: float, state: str) -> dict[str, Times | None]:
        """Times of each call, timed in turns (the order turns by one from round to round) for so many seconds of
        the wall, or `LEAST_ROUNDS`; None for a call whose rounds were all late."""
        for call in calls.values():
            for _ in range(WARM_UP):
                call()
        self._runtime.finish()
        found: dict[str, list[float]] = {name: [] for name in calls}
        late = dict.fromkeys(calls, 0)
        names, started, rounds = list(calls), time.perf_counter(), 0
        while rounds < LEAST_ROUNDS or (time.perf_counter() - started < seconds and rounds < MOST_ROUNDS):
            turn = rounds % len(names)
            for name in names[turn:] + names[:turn]:
                took = self.once(calls[name], state)
                if took is None:
                    late[name] += 1
                else:
                    found[name].append(took)
            rounds += 1
        return {name: Times.of(each, late[name]) if len(each) > 1 else None for name, each in found.items()}
