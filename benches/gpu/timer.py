"""Calls of several libraries on a GPU, timed in turns by the device's own clock (`hal.runtimes.held_stream`).

The device waits while the host enqueues, so that only what the device does counts.  Each call is timed in two states of
the L2 cache: "warm" (calls in a row, each of which finds what the one before left) and "cold" (overwritten before each
call, outside the events).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from statistics import median, quantiles
from typing import Any

Call = Callable[[], object]

LEAST_ROUNDS, MOST_ROUNDS, WARM_UP = 9, 200, 3
STATES = ("warm", "cold")
IN_A_ROW_S, MOST_IN_A_ROW = 1e-3, 32
"""Of the device, so that what the events cost does not count; calls, of which a library's may launch several kernels
(CUDA takes about a thousand launches before one waits for the device)."""


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of one call: of ``rounds`` that count, and how many did not (``late``: the host was slower than the
    stream can be held)."""

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
    """Of calls that enqueue on the current stream of the runtime's GPU."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def once(self, call: Call, state: str, calls: int = 1) -> float | None:
        """Seconds of one call, of so many in a row; None where the host was slower than the device."""

        def enqueue() -> None:
            for _ in range(calls):
                call()

        before = {"before": self._runtime.flush} if state == "cold" else {}
        seconds, late = self._runtime.held.seconds(enqueue, **before)
        return None if late else float(seconds) / calls

    def in_a_row(self, call: Call, state: str) -> int:
        """Calls that are timed together: one where the cache is overwritten before each."""
        if state == "cold":
            return 1
        seconds = self.once(call, state)
        return 1 if seconds is None else max(1, min(MOST_IN_A_ROW, ceil(IN_A_ROW_S / max(seconds, 1e-9))))

    def alternate(self, calls: Mapping[str, Call], seconds: float, state: str) -> dict[str, Times | None]:
        """Times of each call, timed in turns (the order turns by one from round to round) for so many seconds of
        the wall, or `LEAST_ROUNDS`; None for a call whose rounds were all late."""
        for call in calls.values():
            for _ in range(WARM_UP):
                call()
        self._runtime.finish()
        rows = {name: self.in_a_row(call, state) for name, call in calls.items()}
        found: dict[str, list[float]] = {name: [] for name in calls}
        late = dict.fromkeys(calls, 0)
        names, started, rounds = list(calls), time.perf_counter(), 0
        while rounds < LEAST_ROUNDS or (time.perf_counter() - started < seconds and rounds < MOST_ROUNDS):
            turn = rounds % len(names)
            for name in names[turn:] + names[:turn]:
                took = self.once(calls[name], state, rows[name])
                if took is None:
                    late[name] += 1
                else:
                    found[name].append(took)
            rounds += 1
        return {name: Times.of(each, late[name]) if len(each) > 1 else None for name, each in found.items()}
