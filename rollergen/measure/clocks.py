"""Changes of the processor's clock while candidates were timed on it, where they can be read."""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.hal.probes.host_facts import NOT_READABLE, clock_state
from rollergen.hal.spec import Device
from rollergen.measure.bench import Bench
from rollergen.measure.noise import time_calmly
from rollergen.measure.outcome import Progress
from rollergen.measure.timing import Timed

State = Sequence[tuple[str, str]]


def timed_on(device: Device | None, passed: Sequence[Timed], bench: Bench, progress: Progress) -> str:
    """`time_calmly`; in words, how clock, temperature and throttling of the host changed meanwhile.  Empty where
    nothing is readable, or the device is not the host's processor (one whose blocks share a managed memory)."""
    if device is None or device.kind.threads:
        time_calmly(passed, bench, progress)
        return ""
    before = clock_state()
    time_calmly(passed, bench, progress)
    return changed(before, clock_state())


def changed(before: State, after: State) -> str:
    """
    >>> changed((("clock", "3000 MHz"), ("throttled", "4")), (("clock", "2100 MHz"), ("throttled", "9")))
    'clock 3000 MHz before and 2100 MHz after, throttled 5 times meanwhile'
    """
    later, found = dict(after), []
    for key, text in before:
        if NOT_READABLE in (text, later[key]):
            continue
        if key == "throttled":
            times = int(later[key]) - int(text)
            found.append(f"throttled {times} times meanwhile" if times else "not throttled")
        else:
            found.append(f"{key} {text}" + ("" if text == later[key] else f" before and {later[key]} after"))
    return ", ".join(found)
