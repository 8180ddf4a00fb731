"""The model's constants, which a device's ``costs`` hold.

A cost that a spec does not name is 0: the mechanism does not exist there (a GPU has no reorder window, a
CPU no load/store lanes).  None of them has a value in code, except the two neutral ones below.
"""

from __future__ import annotations

from functools import lru_cache

from rollergen.hal.spec import Device
from rollergen.hal.spec_schema import complete_schema

_NEUTRAL = {"norm_exponent": 2.0, "keep_above": 1.0, "keep_below": 1.0}


@lru_cache(maxsize=1)
def meanings() -> dict[str, str]:
    """Unit and meaning of each constant, as hal/schema.json states them."""
    costs = complete_schema()["properties"]["costs"]["properties"]
    return {name: entry["description"] for name, entry in costs.items()}


class Costs:
    """The constants of one device as attributes; see `meanings`."""

    def __init__(self, values: dict[str, float]) -> None:
        self.__dict__.update(dict.fromkeys(meanings(), 0.0) | _NEUTRAL | values)
        self._named = values

    def __getattr__(self, name: str) -> float:
        raise AttributeError(f"{name} is no cost of the model; expected one of {sorted(meanings())}")

    def operation(self, name: str) -> float:
        """Multiply-add slots of one operation; 1 where the spec names no other."""
        if name == "exp_below" and not self._named.get("op_exp_below"):
            name = "exp"
        return self._named.get("op_" + name, 1.0)


@lru_cache(maxsize=64)
def costs_of(device: Device) -> Costs:
    """Found by the device, which knows its hash: that of all constants takes longer than most terms."""
    return Costs(dict(device.costs))
