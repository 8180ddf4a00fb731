"""What several invariants ask: powers of 2, layers that exist."""

from __future__ import annotations

from rollergen.hal.spec import Device


def power_of_two(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0


def layer_problem(name: str, device: Device | None) -> str:
    """Why a layer cannot be named; empty if it can."""
    if device is None or name in [layer.name for layer in device.layers]:
        return ""
    return f"{name!r}; expected a layer of {device.name}: {', '.join(layer.name for layer in device.layers)}"
