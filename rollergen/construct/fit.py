"""Whether the data fit a device that has no memory behind its own."""

from __future__ import annotations

from collections.abc import Iterable

from rollergen.errors import DoesNotFitError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.stages import Graph
from rollergen.expr.values import Buffer
from rollergen.hal.spec import Device


def require_fit(graph: Graph, device: Device) -> None:
    """Raise `DoesNotFitError` with the shortfall where all tensors exceed the backing store."""
    buffers = (*graph.inputs, *graph.temporaries, *graph.outputs)
    needed, available = size_bytes(buffers), _available(device)
    if needed > available:
        sizes = ", ".join(f"{b.name} {b.elements * ITEMSIZE[b.dtype]}" for b in buffers)
        raise DoesNotFitError(
            f"{device.name}: the tensors take {needed} bytes ({sizes}) and {device.backing.name} holds "
            f"{available}; {needed - available} bytes too many"
        )


def room_bytes(graph: Graph, device: Device) -> int:
    """What is left of the backing store for each tensor op's own temporaries (packed operands, parts of sums)."""
    used = size_bytes((*graph.inputs, *graph.temporaries, *graph.outputs))
    return (_available(device) - used) // max(1, len(graph.tensor_ops))


def size_bytes(buffers: Iterable[Buffer]) -> int:
    return sum(buffer.elements * ITEMSIZE[buffer.dtype] for buffer in buffers)


def _available(device: Device) -> int:
    return device.backing.capacity_bytes - device.backing.reserved_bytes
