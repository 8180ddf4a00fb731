"""The model's constants, which a device's ``costs`` hold.

Their meanings, and what one is worth that a spec does not name, stand in `hal.costs`.
"""

from __future__ import annotations

from functools import lru_cache

from rollergen.hal.costs import COSTS
from rollergen.hal.spec import Device

_NEUTRAL = {name: cost.neutral for name, cost in COSTS.items()}


class Costs:
    """The constants of one device as attributes; see `COSTS`."""

    def __init__(self, values: dict[str, float]) -> None:
        self.__dict__.update(_NEUTRAL | values)
        self._named = values

    def __getattr__(self, name: str) -> float:
        raise AttributeError(f"{name} is no cost of the model; expected one of {sorted(COSTS)}")

    def operation(self, name: str) -> float:
        """Multiply-add slots of one operation; 1 where the spec names no other."""
        if name == "exp_below" and not self._named.get("op_exp_below"):
            name = "exp"
        return self._named.get("op_" + name, 1.0)


@lru_cache(maxsize=64)
def costs_of(device: Device) -> Costs:
    """Found by the device, which knows its hash: that of all constants takes longer than most terms."""
    return Costs(dict(device.costs))
