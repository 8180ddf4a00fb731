"""The least time that the movement of a program's operands can take: what is measured below it is not believed.

Every element that the definition needs crosses from the layer in which the working set resides at least once.  That
layer is the first from the inside whose capacity, of all units together, holds every buffer of the program; a small
working set therefore lives in a cache, whose bandwidth bounds it, and not in the backing store.  A bandwidth that the
maker prints is a bound.  One that a benchmark reached, on a machine that others may have used, is none: there the cache
further in bounds, through which every element passes too.
"""

from __future__ import annotations

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.values import Buffer
from rollergen.gate.blocks import blocks_of
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.rprogram import RProgram


def residence(program: RProgram, device: Device) -> MemoryLayer:
    """The layer in which the working set stays between two runs."""
    size = sum(_bytes(buffer) for buffer in blocks_of(program).buffers())
    layers = [layer for layer in device.layers[1:-1] if not layer.managed and bandwidth_gb_s(layer, device)]
    return next((layer for layer in layers if size <= _capacity(layer, device)), device.layers[-1])


def bounding(program: RProgram, device: Device) -> MemoryLayer:
    """The layer whose bandwidth no run beats: `residence`, or where no bandwidth of it is printed, the cache within."""
    layer = residence(program, device)
    within = [one for one in device.layers[1 : device.layers.index(layer)] if not one.managed]
    known = [one for one in within if bandwidth_gb_s(one, device)]
    return layer if layer.bandwidth_nominal_gb_s or not known else known[-1]


def least_seconds(program: RProgram, device: Device) -> float:
    """Seconds that writing every output once takes at the bandwidth of `bounding`; 0 where the spec has none.

    Inputs do not count: a definition may need only some of their elements.  Of what a call updates the block does.
    """
    bandwidth = bandwidth_gb_s(bounding(program, device), device)
    return sum(_bytes(buffer) for buffer in blocks_of(program).outputs) / bandwidth * 1e-9 if bandwidth else 0.0


def bandwidth_gb_s(layer: MemoryLayer, device: Device) -> float:
    """The most that the layer can deliver to all units together: the largest of its figures."""
    clocked = layer.bytes_per_clock * device.clock_mhz * 1e-3 * device.units
    return max(layer.bandwidth_nominal_gb_s, layer.bandwidth_gb_s, clocked)


def doubt(program: RProgram, device: Device, seconds: float) -> str:
    """Why a run cannot have taken only so long; "" if it can."""
    least, layer, home = least_seconds(program, device), bounding(program, device), residence(program, device)
    if seconds >= least:
        return ""
    how = "where the operands reside" if layer is home else f"nearer than {home.name}, where the operands reside"
    where = f"the {bandwidth_gb_s(layer, device):.4g} GB/s of {device.name}'s {layer.name}, {how}"
    took = f"measured {seconds:.3g} s, but writing the outputs takes {least:.3g} s at {where}"
    return f"{took}: a figure of the spec or the measurement is wrong"


def _capacity(layer: MemoryLayer, device: Device) -> int:
    return layer.capacity_bytes * (device.units if layer.scope == "unit" else 1)


def _bytes(buffer: Buffer) -> int:
    return buffer.elements * ITEMSIZE[buffer.dtype]
