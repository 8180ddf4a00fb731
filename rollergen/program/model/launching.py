"""Two ways of launching on a CPU: the threads of all units, which have to be woken, or the calling thread alone.

Waking threads that sleep and being woken by them takes tens of microseconds (``wake_us`` of the spec), in which the
caller has done small work itself.  Which way a launch goes follows from its prediction, so that the model, the emitted
`Launch` and the explanation say the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.limiters.bandwidth import Moved
from rollergen.program.model.limiters.limit import Limit
from rollergen.program.model.nest import Waves
from rollergen.program.model.numeric import Number, choose

MOST_WAKES = 16
"""Wakes that the calling thread's own time may last: beyond it waking costs less than a sixteenth, and the caller's
other threads should not wait (pyopencl keeps Python's lock while PoCL's driver without threads works)."""


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A launch in one of the two ways: its ``seconds`` with what launching takes (``launch_us``), how its blocks run,
    the limiters (name, clocks, how they combine) and what leaves each layer."""

    seconds: Number
    launch_us: Number
    waves: Waves
    limiters: tuple[Limit, ...]
    layers: tuple[Moved, ...]


@lru_cache(maxsize=64)
def calling_thread(device: Device) -> Device:
    """The device as the calling thread alone sees it: one unit. `device` itself where that is all it has."""
    return device if device.units == 1 else replace(device, units=1, wake_us=0.0)


def launch_us(device: Device) -> float:
    """Microseconds that launching takes on `device`'s units; the calling thread's own unit need not be woken."""
    return device.launch_us + (device.wake_us if device.units > 1 else 0.0)


def merged(alone: Number, one: Way, all_: Way) -> Way:
    """The launch ``one`` where `alone` holds, else ``all_``."""
    pick = lambda a, b: choose(alone, a, b)
    clocks = ({name: c for name, c, _ in way.limiters} for way in (one, all_))
    first, second = clocks
    how = {name: how for way in (one, all_) for name, _, how in way.limiters}
    waves = Waves(
        pick(one.waves.resident, all_.waves.resident),
        pick(one.waves.per_unit, all_.waves.per_unit),
        pick(one.waves.starts, all_.waves.starts),
        {p: pick(one.waves.together[p], all_.waves.together[p]) for p in one.waves.together},
        {p: pick(one.waves.rounds[p], all_.waves.rounds[p]) for p in one.waves.rounds},
        pick(one.waves.waves, all_.waves.waves),
    )
    return Way(
        pick(one.seconds, all_.seconds),
        pick(one.launch_us, all_.launch_us),
        waves,
        tuple((name, pick(first.get(name, 0.0), second.get(name, 0.0)), how[name]) for name in how),
        tuple(
            (name, pick(read, other[1]), pick(written, other[2]))
            for (name, read, written), other in zip(one.layers, all_.layers, strict=True)
        ),
    )
