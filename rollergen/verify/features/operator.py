"""Groups A and B: what is computed, and on what."""

from __future__ import annotations

from math import prod

from rollergen.construct.roles import CONTRACTION, ELEMENTWISE, REDUCTION, ROW, contraction_roles, kind_of
from rollergen.expr.definition import Definition
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device
from rollergen.program.model.prediction import flops_of
from rollergen.tile.rules import block_layer, main_instruction
from rollergen.verify.features.view import StageView, slog

CLASSES = ("matmul", "convolution", "depthwise", "pooling", "reduction", "row", "elementwise")


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


def operator_features(view: StageView) -> dict[str, float]:
    """A: class (one-hot), operations, bytes, intensity, points."""
    definition = view.definition
    kind = class_of(definition)
    inputs = {load.buffer.name: load.buffer for load in definition.loads()}
    read = sum(b.elements * ITEMSIZE[b.dtype] for b in inputs.values())
    written = definition.output.elements * ITEMSIZE[definition.output.dtype]
    flops = flops_of(view.stage)
    return {
        **{f"is {name}": float(name == kind) for name in CLASSES},
        "flops": slog(flops),
        "input bytes": slog(read),
        "output bytes": slog(written),
        "intensity": slog(flops / max(1, read + written)),
        "spatial points": slog(prod(a.extent for a in definition.of_role("spatial"))),
        "reduced points": slog(prod(a.extent for a in definition.of_role("reduce", "row"))),
        "element bytes": float(ITEMSIZE[definition.output.dtype]),
    }


def peak_gflop_s(device: Device) -> float:
    """float32 multiply-adds of plain instructions, counted as two operations."""
    instruction = main_instruction(device, "float32")
    width = max(instruction.lanes, instruction.m * instruction.n * instruction.k)
    return 2 * width * instruction.per_clock * device.units * device.clock_mhz / 1e3


def device_features(device: Device) -> dict[str, float]:
    """B: rates and capacities."""
    inner = device.layers[1]
    gb_s = device.backing.bandwidth_gb_s or device.backing.bytes_per_clock * device.clock_mhz * device.units / 1e3
    staging = block_layer(device)
    banks = device.layer(staging).banks if staging is not None else 0
    peak = peak_gflop_s(device)
    return {
        "is cpu": float(staging is None),
        "peak": slog(peak),
        "dram bandwidth": slog(gb_s),
        "l1 bandwidth": slog(inner.bytes_per_clock * device.units * device.clock_mhz / 1e3),
        "l1 capacity": slog(inner.capacity_bytes),
        "register capacity": slog(device.layers[0].capacity_bytes),
        "units": slog(device.units),
        "schedulers": slog(device.schedulers),
        "lanes": slog(max(device.execution_width, main_instruction(device, "float32").lanes)),
        "transaction bytes": slog(device.backing.transaction_bytes),
        "banks": slog(banks),
        "ridge": slog(peak / max(gb_s, 1e-9)),
    }
