"""The roofline of a call as numbers (Williams, Waterman, Patterson, CACM 2009): plots and notebooks draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.roofline import layer_rate, multiply_add_rate
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True)
class Roofline:
    """What a call computes and moves, and how fast the device could.

    ``flops`` are operations, two of a multiply-add; ``moved`` the bytes that leave each memory layer whose bandwidth
    the spec tells, ``slopes`` that bandwidth of the whole device in bytes a second; ``roof`` operations a second of
    ``instruction``, that of the launch with most multiply-adds.
    """

    flops: float
    moved: Mapping[str, float]
    slopes: Mapping[str, float]
    roof: float
    instruction: str

    def intensity(self, layer: str) -> float:
        """Operations for each byte out of `layer`."""
        return self.flops / self.moved[layer]

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest intensity worth drawing: a factor of 4 around all dots and corners."""
        dots = [self.intensity(layer) for layer in self.slopes]
        return min([*dots, 1]) / 4, max([*dots, *(self.roof / rate for rate in self.slopes.values()), 1]) * 4


def roofline(launches: Sequence[Mapping[str, Any]], program: RProgram, device: Device) -> Roofline:
    """Of the facts of all `launches` of a call, at least one, and the program that they tell of."""
    moved: dict[str, float] = {}
    for one in launches:
        for layer, count in one["traffic_bytes"].items():
            moved[layer] = moved.get(layer, 0.0) + count
    slopes = {layer: layer_rate(device.layer(layer), device) for layer, count in moved.items() if count}
    slopes = {layer: rate for layer, rate in slopes.items() if rate}
    heaviest = max((one for one in program.stages if not one.once), key=lambda one: prod(a.extent for a in one.op.axes))
    return Roofline(
        flops=sum(one["flops"] for one in launches),
        moved={layer: moved[layer] for layer in slopes},
        slopes=slopes,
        roof=2 * multiply_add_rate(heaviest, device),
        instruction=heaviest.compute.instruction,
    )
