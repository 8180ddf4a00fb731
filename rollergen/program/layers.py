"""The memory layer in which a buffer of a stage lies, who shares it, and how many bytes it takes."""

from __future__ import annotations

from math import prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device
from rollergen.program.boxes import barrier_bytes, results_bytes
from rollergen.program.matrix import matrix_instruction, scratch_bytes
from rollergen.program.rprogram import LANE, THREAD, UNROLL, Copy, KeptRow, Stage
from rollergen.program.windows import window_shape

REGISTERS = "registers"


def is_shared(layer: str, device: Device | None) -> bool:
    """Whether the threads of a block share the layer; without a device, all but the registers are shared."""
    return layer != REGISTERS if device is None else device.layer(layer).scope != "thread"


def tile_elements(stage: Stage, copy: Copy, *, block: bool) -> int:
    """Elements of one buffer of the copy, padding included."""
    if copy.window:
        window = window_shape(stage, copy)
        return prod(window[:-1]) * (window[-1] + copy.padding)
    shape = stage.buffer_shape(copy, block=block)
    return prod(shape[:-1]) * (shape[-1] + copy.padding)


def copy_bytes(stage: Stage, copy: Copy, *, block: bool) -> int:
    """Bytes of all buffers of the copy: ``depth`` of them."""
    return tile_elements(stage, copy, block=block) * ITEMSIZE[stage.load(copy).dtype] * copy.depth


def kept_row_bytes(stage: Stage, kept_row: KeptRow) -> int:
    """Bytes of a kept row that all threads of a block keep together."""
    rows = {axis.name for axis in stage.op.of_role("row", "reduce")}
    points = prod(loop.extent for loop in stage.loops if loop.axis in rows)
    return points * ITEMSIZE[kept_row.value.dtype]


def managed_bytes(stage: Stage, device: Device) -> dict[str, int]:
    """Bytes of one block in every managed layer that its threads share, by the layer's name."""
    used: dict[str, int] = {}
    for copy in stage.copies:
        layer = device.layer(copy.to_layer)
        if layer.managed and layer.scope != "thread":
            used[layer.name] = used.get(layer.name, 0) + copy_bytes(stage, copy, block=True)
    for kept_row in stage.kept_rows:
        layer = device.layer(kept_row.layer)
        if layer.managed and layer.scope != "thread":
            used[layer.name] = used.get(layer.name, 0) + kept_row_bytes(stage, kept_row)
    for layer_name, bytes_ in combining_bytes(stage, device).items():
        used[layer_name] = used.get(layer_name, 0) + bytes_
    matrix = matrix_instruction(stage, device)
    more = barrier_bytes(stage)
    if matrix is not None:
        more += scratch_bytes(stage, matrix) + results_bytes(stage, matrix)
    if more:
        name = device.kind.block_layer or ""
        used[name] = used.get(name, 0) + more
    return used


def combining_bytes(stage: Stage, device: Device) -> dict[str, int]:
    """Bytes of the block's layer, by its name, through which threads put their accumulators together (of the way
    that the program says, in a language that has it)."""
    how = stage.accumulator.combine
    layer = device.kind.block_layer
    if how in ("none", "shuffle") or layer is None:
        return {}
    reduced = {axis.name for axis in stage.op.of_role("row", "reduce")}
    cells = stage.threads
    if how == "groups":
        cells //= prod(x.extent for x in stage.loops if x.kind == THREAD and x.axis in reduced)
    lanes = prod(x.extent for x in stage.loops if x.kind == LANE and x.axis not in reduced)
    if how == "at_once":
        inside = stage.loops[stage.accumulator.at_loop :]
        lanes = prod(x.extent for x in inside if x.kind == UNROLL and x.axis not in reduced)
    bytes_ = sum(ITEMSIZE[body.dtype] for r in stage.op.reductions for body in r.bodies)
    return {layer: cells * lanes * bytes_}


def block_capacity(layer: str, device: Device) -> int:
    """Bytes of a managed layer that one block may have."""
    found = device.layer(layer)
    capacity = found.capacity_bytes - found.reserved_bytes
    limit = device.limits.block_memory_bytes
    return min(capacity, limit) if limit else capacity
