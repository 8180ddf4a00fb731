"""What sessions of devices with memory of their own have in common: where each array is an argument, and readings of
calls in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from rollergen.emit import Launch
from rollergen.runtime.session import Reading

IN_A_ROW_S = 1e-3
"""Of the device for one reading, so that what events cost (some microseconds) does not count."""
MOST_LAUNCHES = 256
"""Enqueued before any is waited for: CUDA takes about a thousand before a launch waits for the device."""


class DeviceSession:
    """The launches of a program with their kernels.  A subclass says how calls are timed (`_read`)."""

    def __init__(self, kernels: Sequence[tuple[Launch, Any]]) -> None:
        self._once = [pair for pair in kernels if pair[0].once]
        self._each = [pair for pair in kernels if not pair[0].once]
        self._slots: dict[str, list[tuple[Any, int]]] = {}
        for launch, kernel in kernels:
            for position, name in enumerate(launch.arguments):
                self._slots.setdefault(name, []).append((kernel, position))
            for position, size in enumerate(launch.sizes, start=len(launch.arguments)):
                kernel.set_arg(position, self.integer(size))
        self._in_a_row: int | None = None

    def integer(self, size: int) -> Any:
        """A size as an argument."""
        return size

    def prepare(self) -> None:
        """None: host arrays are copied at every call."""

    def event_seconds(self) -> float | None:
        return self.reading(None).event_s

    def reading(self, sweep: Callable[[], None] | None) -> Reading:
        return self._read(1 if sweep is not None else self._calls_in_a_row(), sweep)

    def repeat(self, calls: int, sweep: Callable[[], None] | None) -> float:
        most = 1 if sweep is not None else min(calls, self._most_calls())
        readings = [self._read(most, sweep) for _ in range(-(-calls // most))]
        return sum(one.wall_s for one in readings) / len(readings)

    def _calls_in_a_row(self) -> int:
        """So many that they take the device `IN_A_ROW_S`, told from one of them."""
        if self._in_a_row is None:
            seconds = max(self._read(1, None).wall_s, 1e-9)
            self._in_a_row = max(1, min(self._most_calls(), ceil(IN_A_ROW_S / seconds)))
        return self._in_a_row

    def _most_calls(self) -> int:
        return max(1, MOST_LAUNCHES // max(1, len(self._each)))

    def _read(self, calls: int, sweep: Callable[[], None] | None) -> Reading:
        """The mean of so many calls in a row."""
        raise NotImplementedError
