"""The model's constants as they are now, for a device that was written down when they were others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rollergen.hal.load import device_names, load_device
from rollergen.hal.spec import Device


def with_present_costs(measured: Device, as_measured: Collection[str] = ()) -> Device:
    """`measured`, whose machine's figures (clock, bandwidths, caches) stay, with the constants that the built-in device
    of its name has now; a device of another name, whose constants are its own, as it is.

    ``as_measured``: constants that stay what they were then, or absent.
    """
    if measured.name not in device_names():
        return measured
    then, now = dict(measured.costs), dict(load_device(measured.name).costs)
    costs = {name: value for name, value in now.items() if name not in as_measured}
    costs |= {name: value for name, value in then.items() if name in as_measured}
    return replace(measured, costs=tuple(costs.items()))
