"""Groups A and B: what is computed, and on what."""

from __future__ import annotations

from math import log2, prod

from rollergen.construct.roles import CONTRACTION, ELEMENTWISE, REDUCTION, ROW, contraction_roles, kind_of
from rollergen.expr.definition import Definition
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device
from rollergen.tile.rules import block_layer, main_instruction

CLASSES = ("matmul", "convolution", "depthwise", "pooling", "reduction", "row", "elementwise")
OPERATOR = (
    *(f"is {name}" for name in CLASSES),
    "flops", "input bytes", "output bytes", "intensity", "spatial points", "reduced points", "element bytes",
)  # fmt: skip
DEVICE = (
    "is cpu", "peak", "dram bandwidth", "l1 bandwidth", "l1 capacity", "register capacity", "units", "schedulers",
    "lanes", "transaction bytes", "banks", "ridge",
)  # fmt: skip


def class_of(definition: Definition) -> str:
    """One of `CLASSES`, by structure alone."""
    kind = kind_of(definition)
    if kind != CONTRACTION:
        return {ROW: "row", REDUCTION: "reduction", ELEMENTWISE: "elementwise"}[kind]
    loads = definition.body_loads()
    windowed = any(len(index.terms) > 1 or not index.is_affine for load in loads for index in load.indices)
    if len(loads) == 1:
        return "pooling" if windowed else "reduction"
    tiled = any(roles.m is not None for roles in contraction_roles(definition))
    if not windowed:
        return "matmul"
    return "convolution" if tiled else "depthwise"


def operator_features(definition: Definition, flops: int) -> dict[str, float]:
    """A: class (one-hot), operations, bytes, intensity, points."""
    kind = class_of(definition)
    inputs = {load.buffer.name: load.buffer for load in definition.loads()}
    read = sum(b.elements * ITEMSIZE[b.dtype] for b in inputs.values())
    written = definition.output.elements * ITEMSIZE[definition.output.dtype]
    points = (prod(a.extent for a in definition.of_role(*roles)) for roles in (("spatial",), ("reduce", "row")))
    sizes = (flops, read, written, flops / max(1, read + written), *points)
    values = (
        *(float(name == kind) for name in CLASSES), *(log2(1 + size) for size in sizes),
        float(ITEMSIZE[definition.output.dtype]),
    )  # fmt: skip
    return dict(zip(OPERATOR, values, strict=True))


def peak_gflop_s(device: Device) -> float:
    """float32 multiply-adds of plain instructions, counted as two operations."""
    instruction = main_instruction(device, "float32")
    width = max(instruction.lanes, instruction.m * instruction.n * instruction.k)
    return 2 * width * instruction.per_clock * device.units * device.clock_mhz / 1e3


def backing_gb_s(device: Device) -> float:
    """Of the layer behind all others, whole device."""
    backing = device.backing
    return backing.bandwidth_gb_s or backing.bytes_per_clock * device.clock_mhz * device.units / 1e3


def device_features(device: Device) -> dict[str, float]:
    """B: rates and capacities."""
    inner = device.layers[1]
    staging = block_layer(device)
    banks = device.layer(staging).banks if staging is not None else 0
    peak, gb_s = peak_gflop_s(device), backing_gb_s(device)
    sizes = (
        peak, gb_s, inner.bytes_per_clock * device.units * device.clock_mhz / 1e3, inner.capacity_bytes,
        device.layers[0].capacity_bytes, device.units, device.schedulers,
        max(device.execution_width, main_instruction(device, "float32").lanes), device.backing.transaction_bytes,
        banks, peak / max(gb_s, 1e-9),
    )  # fmt: skip
    return dict(zip(DEVICE, (float(staging is None), *(log2(1 + size) for size in sizes)), strict=True))
