"""Cutting an expression into the stages that the model finds fastest on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rollergen.construct.choose import construct
from rollergen.construct.residence import resident_rows
from rollergen.dropped import collected_drops, standing
from rollergen.errors import ConstructionError, DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.options import BuildOptions


def planned(
    outputs: Tensor | Sequence[Tensor],
    device: Device,
    options: BuildOptions = BuildOptions(),
    inputs: Sequence[Tensor] | None = None,
) -> Graph:
    """The stages of `outputs` for `device`, as `canonicalize` makes them: operands are computed where they are read and
    contractions share a stage only where the model says that this is faster than to store them first."""

    def seconds(graph: Graph) -> float:
        try:
            with collected_drops():  # of the cuts that are chosen, who constructs the kernel tells
                best = lambda graph: construct(graph, device, options, top_k=1)[0].seconds
                return next((seconds for _, seconds in standing([graph], best, lambda graph: "a cut")), math.inf)
        except (ConstructionError, DoesNotFitError):
            return math.inf

    return canonicalize(outputs, inputs, resident_rows(device), seconds, device.kind.supersteps)
