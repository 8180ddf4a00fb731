"""Invariants of asynchronous copies: where they may stand, and what the device can move beside the program."""

from __future__ import annotations

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.values import Load
from rollergen.hal.spec import Device, Instruction
from rollergen.program.boxes import box_problem, columns_at_once, producer_threads, store_problem
from rollergen.program.check.nest import refuse
from rollergen.program.layers import is_shared
from rollergen.program.matrix import (
    COLUMNS,
    PANEL_BYTES,
    ROW_BYTES,
    SWIZZLE,
    factor_dtype,
    matrix_axes,
    matrix_instruction,
)
from rollergen.program.rows_apart import rows_apart, sum_apart
from rollergen.program.rprogram import GROUP, SERIAL, Copy, Stage

LEAST_BYTES = 4
"""Of one asynchronous copy."""


def copied_bytes(copy: Copy, load: Load) -> int:
    """Bytes of one copy."""
    return ITEMSIZE[load.dtype] * copy.vector


def check_asynchronous(
    stage: Stage, where: str, copy: Copy, load: Load, first_inner: int, device: Device | None
) -> None:
    """An asynchronous copy runs in a serial loop, from memory into a block's layer, with zeros as its fill."""
    around = copy.at_loop - 1
    if copy.depth < 2 or around < first_inner or stage.loops[around].kind != SERIAL or stage.threads == 1:
        raise refuse(
            stage,
            f"{where}: asynchronous with depth {copy.depth} at depth {copy.at_loop} of the nest; expected at least 2, "
            f"directly inside a serial loop of a block of several threads",
        )
    if copy.vector > 1 and copy.along != copy.order[-1]:
        raise refuse(
            stage, f"{where}: asynchronous with vector {copy.vector}; expected 1, as it is stored across {copy.along}"
        )
    if load.fill != 0:
        raise refuse(stage, f"{where}: asynchronous with fill {load.fill}; expected 0")
    others = {c.depth for c in stage.copies if c.asynchronous and c.at_loop == copy.at_loop}
    if len(others) > 1:
        raise refuse(stage, f"{where}: asynchronous copies of depths {sorted(others)} in one loop; expected one depth")
    if len({c.boxes for c in stage.copies}) > 1:
        raise refuse(stage, f"{where}: boxes is {copy.boxes}, but not of every copy; expected the same of all")
    if not is_shared(copy.to_layer, device):
        raise refuse(stage, f"{where}: asynchronous into {copy.to_layer}; expected a layer that a block shares")
    if device is not None:
        _check_device(stage, where, copy, load, device)


def check_producer(stage: Stage, device: Device) -> None:
    """What only starts copies of boxes has such copies to start, and room in the block."""
    if not stage.compute.producer:
        return
    cluster, largest = stage.block_order.cluster, max(layer.cluster_blocks for layer in device.layers)
    if cluster > largest:
        raise refuse(stage, f"block_order.cluster is {cluster}; expected at most {largest} on {device.name}")
    threads, most = stage.threads + producer_threads(stage, device.execution_width), device.limits.threads_per_block
    if not stage.copies or not all(copy.boxes for copy in stage.copies) or threads > most:
        raise refuse(
            stage, f"compute.producer is True with {threads} threads a block; expected copies in boxes, and at most "
            f"{most} threads on {device.name}"
        )  # fmt: skip


def check_boxes(stage: Stage, where: str, copy: Copy, device: Device) -> None:
    """The device has a copy engine that can bring the tiles, for products that run beside the program, whose one serial
    loop counts how often each buffer was filled."""
    one, engine = matrix_instruction(stage, device), device.kind.box_copies
    longest = device.layer(copy.to_layer).box_extent if engine else 0
    beside = one is not None and one.is_asynchronous
    problem = box_problem(stage, copy, longest) if engine and beside else f"{stage.compute.instruction} multiplies them"
    if problem:
        raise refuse(
            stage, f"{where}: boxes is True, but {problem if engine else f'{device.name} has no copy engine'}; "
            "expected False"
        )  # fmt: skip


def check_stored_boxes(stage: Stage, device: Device) -> None:
    """The copy engine that brings all factors can store the results, too."""
    if not stage.store.boxes:
        return
    one, store = matrix_instruction(stage, device), stage.store
    problem = "its factors do not come in boxes"
    if one is not None and stage.copies and all(copy.boxes for copy in stage.copies):
        longest = device.layer(stage.copies[0].to_layer).box_extent
        apart = rows_apart(stage, one) > 0
        problem = store_problem(stage.op, matrix_axes(stage), one, longest, apart) or _panels_problem(stage, one)
    if problem or store.adds or store.across_rows or stage.accumulator.carry:
        problem = problem or "results are exchanged across rows, or added to others"
        raise refuse(stage, f"store.boxes is {store.boxes}, but {problem}; expected 0")


def check_panels(stage: Stage, where: str, copy: Copy, instruction: Instruction, axis: str) -> None:
    """Whole panels of 128-byte rows, swizzled as descriptors say; what an execution width reads begins with one, and
    with 8 rows (PTX ISA, "shared memory matrix layout")."""
    k, itemsize = matrix_axes(stage)[2], ITEMSIZE[factor_dtype(instruction)]
    panel, shape = PANEL_BYTES // itemsize, stage.buffer_shape(copy, block=True)
    if set(copy.order) != {axis, k} or len(shape) != 2 or (copy.panel, copy.swizzle) != (panel, SWIZZLE):
        raise refuse(
            stage, f"{where}: order is {copy.order}, panels of {copy.panel}, swizzle {copy.swizzle}; expected {axis} "
            f"and {k}, panels of {panel}, swizzle {SWIZZLE}",
        )
    if copy.order[-1] != k and itemsize != 2:
        raise refuse(stage, f"{where}: order is {copy.order}; expected {k} last, only 16-bit factors may lie across it")
    by_rows, first = sum_apart(stage), axis == matrix_axes(stage)[0]
    rows = rows_apart(stage, instruction) if first or by_rows else 0
    if copy.apart != rows or (rows and not copy.boxes):
        raise refuse(stage, f"{where}: apart is {copy.apart}, boxes {copy.boxes}; expected {rows}, in boxes if not 0")
    if (by_rows and (copy.order[0] == k) == first) or (by_rows and shape[1 if first else 0] != SWIZZLE**2):
        expected = f"rows along k of the k x n factors alone to be apart, {SWIZZLE**2} of them"
        raise refuse(stage, f"{where}: order is {copy.order}, tiles of {shape}; expected {expected}")
    corner = [loop for _, loop in stage.of_axis(axis) if loop.kind == GROUP and loop.stride >= instruction.m]
    apart = [loop.stride for loop in corner] if copy.order[-1] != k else []
    if any(stride % panel for stride in apart) or shape[0] % SWIZZLE:
        raise refuse(stage, f"{where}: groups of {apart} columns, {shape[0]} rows; expected whole panels of {panel}")


def _panels_problem(stage: Stage, one: Instruction) -> str:
    """Why the results of one instruction are not as many whole panels as are written together."""
    itemsize, columns = ITEMSIZE[stage.op.output.dtype], columns_at_once(stage, one)
    if stage.store.vector < one.n // COLUMNS:
        return f"results are written {stage.store.vector} at once, and threads have {one.n // COLUMNS} neighbours"
    if columns * itemsize % (stage.store.boxes * PANEL_BYTES) == 0 and stage.store.vector * itemsize <= ROW_BYTES:
        return ""
    return f"its {columns} columns, written {stage.store.vector} at once, are no such number of panels, again and again"


def _check_device(stage: Stage, where: str, copy: Copy, load: Load, device: Device) -> None:
    widest, bytes_ = device.layer(copy.to_layer).asynchronous_copy_bytes, copied_bytes(copy, load)
    if copy.from_layer != device.backing.name or not widest:
        raise refuse(
            stage,
            f"{where}: asynchronous from {copy.from_layer} into {copy.to_layer}; {device.name} has "
            + (f"such copies from {device.backing.name}" if widest else "none"),
        )
    if not copy.boxes and not LEAST_BYTES <= bytes_ <= widest:
        raise refuse(
            stage,
            f"{where}: asynchronous copies of {bytes_} bytes; expected {LEAST_BYTES} to {widest} on {device.name}",
        )
