"""Whether the data fit a device that has no memory behind its own."""

from __future__ import annotations

from rollergen.errors import DoesNotFitError
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.tile.rules import ITEMSIZE


def require_fit(graph: Graph, device: Device) -> None:
    """Raise `DoesNotFitError` with the shortfall where all tensors exceed the backing store."""
    buffers = (*graph.inputs, *graph.temporaries, *graph.outputs)
    needed = sum(buffer.elements * ITEMSIZE[buffer.dtype] for buffer in buffers)
    available = device.backing.capacity_bytes - device.backing.reserved_bytes
    if needed > available:
        sizes = ", ".join(f"{b.name} {b.elements * ITEMSIZE[b.dtype]}" for b in buffers)
        raise DoesNotFitError(
            f"{device.name}: the tensors take {needed} bytes ({sizes}) and {device.backing.name} holds "
            f"{available}; {needed - available} bytes too many"
        )
