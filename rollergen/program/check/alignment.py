"""What several invariants ask: powers of 2, layers that exist, neighbours that are one aligned vector."""

from __future__ import annotations

from rollergen.expr.index import Index, Within
from rollergen.hal.spec import Device


def power_of_two(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0


def layer_problem(name: str, device: Device | None) -> str:
    """Why a layer cannot be named; empty if it can."""
    if device is None or any(layer.name == name for layer in device.layers):
        return ""
    return f"{name!r}; expected a layer of {device.name}: {', '.join(layer.name for layer in device.layers)}"


def adjacent(offset: Index, axis: str, extent: int, vector: int) -> bool:
    """Whether every aligned group of `vector` along `axis` is adjacent, aligned, and wholly in range or out of it."""
    if offset.const % vector or extent % vector:
        return False
    found = False
    for atom, coefficient in offset.terms:
        if atom == axis:
            found = coefficient == 1
        elif coefficient % vector or (not isinstance(atom, str) and axis in atom.index.axes()):
            return False
    return found


def of_one_guard(bound: Within, axis: str, vector: int) -> bool:
    """Whether every aligned group of `vector` along `axis` keeps the bound as a whole or not at all."""
    if axis not in bound.index.axes():
        return True
    return bound.low % vector == bound.high % vector == 0 and adjacent(bound.index, axis, vector, vector)
