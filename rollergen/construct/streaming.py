"""Whether an output's stores may bypass the caches, and which blocks of it do so without many breaks."""

from __future__ import annotations

from rollergen.expr.definition import Definition
from rollergen.expr.index import linear
from rollergen.hal.spec import Device
from rollergen.tile.rules import ITEMSIZE, as_slow_as_memory, contiguous_axis


def worth_streaming(definition: Definition, device: Device, n: str, lanes: int) -> bool:
    """Whether stores may bypass the caches: who reads the output next loses nothing by it (`lost_by_streaming`), and
    it is written in whole vectors.  (Arrays of a host begin at multiples of 16 bytes only: short runs that do not
    begin on lines lose their first and last ones, which costs more than it saves.)"""
    contiguous = contiguous_axis(definition.stored()) == n
    whole = definition.axis(n).extent % lanes == 0 and contiguous
    return whole and not lost_by_streaming(definition, device)


def streams_on(
    definition: Definition, device: Device, m: str | None, n: str, rows: int, width: int
) -> bool:
    """Whether a block of ``rows`` x ``width`` elements streams long enough without a break, where the output would
    have found a place in the caches: the first and last line of each run go to memory in parts (65,536 runs of 256
    bytes by an AVX-512 core: 9.8 ms; by plain stores 3.0)."""
    if _beyond_caches(definition, device):
        return True
    extent = definition.axis(n).extent
    offset = linear(definition.target, definition.output.shape)
    joined = m is not None and width >= extent and offset.coefficient(m) == extent
    run = min(width, extent) * (rows if joined else 1)
    return run * ITEMSIZE[definition.output.dtype] >= _LONG_RUN_BYTES


_LONG_RUN_BYTES = 2048


def _beyond_caches(definition: Definition, device: Device) -> bool:
    """Whether the output is large beside all caches."""
    size_bytes = definition.output.elements * ITEMSIZE[definition.output.dtype]
    return size_bytes > max((layer.capacity_bytes for layer in device.layers[1:-1]), default=0) // 8


def lost_by_streaming(definition: Definition, device: Device) -> bool:
    """Whether the output had better stay in the caches: another stage reads it, or it is small beside them.

    What the caches of a unit cannot hold beside what is read lies in those behind them, which streaming gives up for
    nothing where they are read no faster than the memory."""
    size = lambda buffer: buffer.elements * ITEMSIZE[buffer.dtype]
    if definition.output.kind != "output":
        return True
    if _beyond_caches(definition, device):
        return False
    caches = device.layers[1:-1]
    own = max((layer.capacity_bytes for layer in caches if layer.scope == "unit"), default=0)
    touched = {load.buffer.name: size(load.buffer) for load in definition.loads()}
    beyond = size(definition.output) + sum(touched.values()) > own
    return not (beyond and caches and as_slow_as_memory(caches[-1], device))
