"""The model's constants as they are now, for a device that was written down when they were others."""

from __future__ import annotations

from dataclasses import replace

from rollergen.hal.load import device_names, load_device
from rollergen.hal.spec import Device


def with_present_costs(measured: Device) -> Device:
    """`measured`, whose machine's figures (clock, bandwidths, caches) stay, with the constants that the built-in device
    of its name has now; a device of another name, whose constants are its own, as it is."""
    if measured.name not in device_names():
        return measured
    return replace(measured, costs=load_device(measured.name).costs)
