"""Groups A and B: what is computed, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log2, prod

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer
from rollergen.features.structure import CLASSES, operator_of
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram
from rollergen.tile.rules import main_instruction

KINDS = tuple(f"is {name}" for name in CLASSES)
DTYPES = tuple(f"reads {name}" for name in ITEMSIZE)
SIZES = (
    "flops", "input bytes", "output bytes", "intensity", "spatial points", "reduced points", "element bytes",
)  # fmt: skip
OPERATOR = (*KINDS, *DTYPES, *SIZES)
DEVICE = (
    "is cpu", "peak", "dram bandwidth", "l1 bandwidth", "l1 capacity", "register capacity", "units", "schedulers",
    "lanes", "transaction bytes", "banks", "ridge",
)  # fmt: skip


def operator_features(programs: Sequence[RProgram], sizes: np.ndarray, out: np.ndarray) -> None:
    """A, sets ``out``, (`OPERATOR`, programs): class and dtypes of the inputs of the operator that each program
    computes, and `size_features` of its heaviest stage."""
    numbers: dict[tuple[object, int], int] = {}
    found: list[tuple[float, ...]] = []
    which = []
    for program in programs:
        key: tuple[object, int] = (None, id(program.inputs))
        for stage in program.stages:
            key = (key, id(stage.op))
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(found)
            found.append(_what(tuple([stage.op for stage in program.stages]), program.inputs))
        which.append(number)
    out[: -len(SIZES)] = np.array(found).T.take(which, axis=1)
    out[-len(SIZES) :] = sizes


@lru_cache(maxsize=256)
def _what(tensor_ops: tuple[TensorOp, ...], inputs: tuple[Buffer, ...]) -> tuple[float, ...]:
    kind = operator_of(tensor_ops).kind
    read = {buffer.dtype for buffer in inputs}
    return (*(float(name == kind) for name in CLASSES), *(float(name in read) for name in ITEMSIZE))


def size_features(op: TensorOp, flops: int) -> tuple[float, ...]:
    """`SIZES` of one stage."""
    inputs = {load.buffer.name: load.buffer for load in op.loads()}
    read = sum(b.elements * ITEMSIZE[b.dtype] for b in inputs.values())
    written = op.output.elements * ITEMSIZE[op.output.dtype]
    points = (prod(a.extent for a in op.of_role(*roles)) for roles in (("spatial",), ("reduce", "row")))
    sizes = (flops, read, written, flops / max(1, read + written), *points)
    return (*(log2(1 + size) for size in sizes), float(ITEMSIZE[op.output.dtype]))


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
    staging = device.kind.block_layer
    banks = device.layer(staging).banks if staging is not None else 0
    peak, gb_s = peak_gflop_s(device), backing_gb_s(device)
    sizes = (
        peak, gb_s, inner.bytes_per_clock * device.units * device.clock_mhz / 1e3, inner.capacity_bytes,
        device.layers[0].capacity_bytes, device.units, device.schedulers,
        max(device.execution_width, main_instruction(device, "float32").lanes), device.backing.transaction_bytes,
        banks, peak / max(gb_s, 1e-9),
    )  # fmt: skip
    return dict(zip(DEVICE, (float(staging is None), *(log2(1 + size) for size in sizes)), strict=True))
