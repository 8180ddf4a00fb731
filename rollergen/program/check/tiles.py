"""Invariants of what a stage holds and moves: copies, accumulators, kept rows, stores, matrix fragments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.places import put_of
from rollergen.expr.splitting import ADDED, is_added
from rollergen.expr.tensor_op import Axis, summed_axes
from rollergen.expr.values import Load, Partial, axes_of, walk
from rollergen.expr.views import moved_at_once, side_by_side
from rollergen.hal.spec import Device, Instruction
from rollergen.program.check.accumulators import check_accumulator
from rollergen.program.check.asynchronous import check_panels, check_producer, check_stored_boxes
from rollergen.program.check.conversions import check_conversions
from rollergen.program.check.copies import check_copy
from rollergen.program.check.nest import layer_problem, power_of_two, refuse
from rollergen.program.check.scans import check_scans
from rollergen.program.layers import REGISTERS, block_capacity, managed_bytes
from rollergen.program.loops import asks_for_tile
from rollergen.program.matrix import (
    COLUMNS,
    LEAST_WIDE,
    MOST_WIDE,
    NO_OPERANDS,
    ROW_BYTES,
    ROWS,
    WAVEFRONT,
    exchanged_loops,
    exchanges,
    factor_dtype,
    factors_of,
    first_fragment_loop,
    fragment_loops,
    matrix_axes,
    matrix_instruction,
    matrix_operands,
    tiles_across_rows,
    turns_rows,
)
from rollergen.program.rprogram import GRID, GROUP, LANE, SERIAL, THREAD, UNROLL, Copy, KeptRow, Stage
from rollergen.program.stores import read_beside
from rollergen.tile.rules import contiguous_axis, multiplies


def check_tiles(
    stage: Stage, axes: Mapping[str, Axis], loads: Sequence[Load], first_inner: int, device: Device | None
) -> None:
    """Copies, accumulator, kept rows and store mean something for the stage's loops (and device)."""
    for number in range(len(stage.copies)):
        check_copy(stage, axes, loads, number, first_inner, device)
    check_accumulator(stage, axes, first_inner, device)
    check_scans(stage, axes)
    _check_kept_rows(stage, device)
    _check_store(stage, axes, device)
    _check_lines(stage, axes)
    _check_prefetch(stage, device)
    _check_adds(stage)
    if device is not None:
        check_stored_boxes(stage, device)
        _check_instruction(stage, device)
        _check_capacity(stage, device)


def _check_kept_rows(stage: Stage, device: Device | None) -> None:
    if not stage.kept_rows:
        return
    reductions = [r.name for r in stage.op.reductions]
    names = [kept_row.name for kept_row in stage.kept_rows]
    if len(set(names)) != len(names):
        raise refuse(stage, f"kept rows are named {', '.join(names)}; expected different names")
    rows = {axis.name for axis in stage.op.of_role("row", "reduce")}
    for kept_row in stage.kept_rows:
        where = f"kept row {kept_row.name}"
        if not rows & axes_of(kept_row.value):
            raise refuse(stage, f"{where}: its value varies along none of the axes reduced over, {sorted(rows)}")
        if not 0 <= kept_row.phase < len(reductions):
            raise refuse(stage, f"{where}: phase is {kept_row.phase}; expected 0 to {len(reductions) - 1}")
        problem = layer_problem(kept_row.layer, device)
        if problem:
            raise refuse(stage, f"{where}: layer is {problem}")
        if device is not None and kept_row.layer == device.backing.name:
            _check_kept_in_output(stage, where, kept_row)
        for node in walk(kept_row.value):
            if isinstance(node, Partial) and node.name not in reductions[: kept_row.phase]:
                raise refuse(
                    stage,
                    f"{where}: phase is {kept_row.phase}, but its value needs reduction {node.name}; expected a later "
                    f"phase",
                )


def _check_kept_in_output(stage: Stage, where: str, kept_row: KeptRow) -> None:
    """The output has a place of the value's dtype for every point of the row, and one thread writes both."""
    output, places = stage.op.output, {a for index in stage.op.target for a in index.axes()}
    rows = {axis.name for axis in stage.op.of_role("row")}
    alone = sum(r.layer == kept_row.layer for r in stage.kept_rows) == 1
    if kept_row.value.dtype != output.dtype or not rows <= places or stage.threads > 1 or not alone:
        raise refuse(
            stage,
            f"{where}: layer is {kept_row.layer}, the output's; expected one value of its dtype {output.dtype} for "
            f"each point of the row, kept by one thread",
        )


def _check_store(stage: Stage, axes: Mapping[str, Axis], device: Device | None) -> None:
    vector = stage.store.vector
    if not power_of_two(vector):
        raise refuse(stage, f"store.vector is {vector}; expected a power of 2")
    _check_across_rows(stage, device)
    _check_vector_loads(stage, axes)
    if vector == 1:
        return
    offset, put = stage.op.stored().offset(), put_of(stage.op)
    exchanged = _exchanged_axis(stage, device)
    for loop in stage.loops:
        if put is not None and put.side_by_side(loop.axis) % vector:
            continue
        neighbours = loop.extent * (COLUMNS if loop.axis == exchanged else 1)
        if loop.kind == UNROLL and loop.stride == 1 and neighbours % vector == 0:
            tested = any(loop.axis in bound.index.axes() for bound in stage.op.where)
            if stage.store.boxes and not stage.store.vector_loads and offset.coefficient(loop.axis) == 1:
                return  # neighbours in the block's layer
            if not tested and side_by_side(offset, loop.axis, axes[loop.axis].extent, vector):
                return
    raise refuse(
        stage,
        f"store.vector is {vector}; expected 1, as no unroll loop's neighbours are adjacent and aligned in "
        f"{stage.op.output.name} at offset {offset}",
    )


def _check_across_rows(stage: Stage, device: Device | None) -> None:
    """Threads that exchange results of their rows have as many tiles along n each, and store no more than their own."""
    if not stage.store.across_rows or device is None:
        return
    one = matrix_instruction(stage, device)
    tiles, together = -1, ROWS
    if one is not None and one.layout != WAVEFRONT:
        tiles, together = exchanged_loops(stage, one)[0], tiles_across_rows(one, stage.store.vector)
    if one is None or tiles < 0 or stage.loops[tiles].extent < together or exchanges(stage, one):
        raise refuse(
            stage, f"store.across_rows with instruction {stage.compute.instruction} and vectors of "
            f"{stage.store.vector}; expected a matrix instruction of which a thread has neighbours, vectors "
            f"of these, and at least {together} tiles of a thread along n"
        )  # fmt: skip


def _check_vector_loads(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """There is something to read, and each vector of it is aligned and wholly inside or outside of its bounds."""
    store, beside = stage.store, read_beside(stage.op)
    if not store.vector_loads:
        return
    along = contiguous_axis(stage.op.stored()) or ""
    copied = {copy.load for copy in stage.copies}
    fit = [moved_at_once(load, along, axes[along].extent, store.vector) for load in beside]
    if store.vector == 1 or not beside or not all(fit) or copied & {stage.op.loads().index(one) for one in beside}:
        raise refuse(
            stage, f"store.vector_loads with vectors of {store.vector} of {stage.op.output.name}; expected a result "
            f"that reads neighbours of tensors beside it, which no copy brings, each in whole vectors of so many"
        )  # fmt: skip


def _exchanged_axis(stage: Stage, device: Device | None) -> str:
    """The axis along which threads exchange results before they store them; "" where they do not."""
    one = matrix_instruction(stage, device) if device is not None else None
    if one is None or one.layout == "opaque" or not exchanges(stage, one):
        return ""
    tiles = exchanged_loops(stage, one)[0]
    if tiles < 0 or stage.loops[tiles].extent % COLUMNS or stage.store.vector != one.n:
        raise refuse(
            stage, f"store.vector is {stage.store.vector}; expected {one.n // COLUMNS} at most, or {one.n} where the "
            f"tiles of a thread along n are a multiple of {COLUMNS}, whose results the threads of a row exchange"
        )  # fmt: skip
    return stage.loops[tiles].axis


def _check_lines(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Vectors that begin on lines do so in every row of the output at once, and nothing is reduced along them."""
    if not stage.store.on_lines:
        return
    lane = stage.loops[-1] if stage.loops else None
    offset = stage.op.stored().offset()
    apart = {coefficient for atom, coefficient in offset.terms if lane is None or atom != lane.axis}
    if (
        lane is None
        or lane.kind != LANE
        or axes[lane.axis].role != "spatial"
        or offset.coefficient(lane.axis) != 1
        or any(distance % lane.extent for distance in apart)
        or put_of(stage.op) is not None
    ):
        raise refuse(
            stage,
            f"store.on_lines with the output at offset {offset}; expected a lane loop along a spatial axis of "
            "coefficient 1, and multiples of its extent as all others",
        )


def _check_prefetch(stage: Stage, device: Device | None) -> None:
    """What is prefetched is written by one thread at its next steps, behind its last reduction of a row, or behind
    the last block of a register tile's sums."""
    if not stage.store.prefetch_distance:
        return
    one = device is None or not device.kind.threads
    reduces = stage.store.prefetch_distance == 1 and (asks_for_tile(stage) or prefetches_rows(stage))
    if (stage.op.reductions and not reduces) or stage.store.streaming or not _has_serial(stage) or not one:
        raise refuse(
            stage,
            f"store.prefetch_distance is {stage.store.prefetch_distance}; expected 0, but on a device whose blocks are "
            "one thread, of a stage with a serial loop that stores through the caches and reduces nothing, or 1 of "
            "register tiles whose sums have blocks, or of rows with several reductions, none of which writes to the "
            "output",
        )


def prefetches_rows(stage: Stage) -> bool:
    """Whether there is a reduction that can ask for the row of the output before anything is written there."""
    op = stage.op
    several, rows = len(op.reductions) >= 2, {axis.name for axis in op.of_role("row")}
    places = {axis for index in op.target for axis in index.axes()}
    outside = any(one.layer != REGISTERS for one in stage.kept_rows)
    return several and bool(rows) and rows <= places and stage.threads == 1 and _has_serial(stage) and not outside


def _has_serial(stage: Stage) -> bool:
    return any(loop.kind == SERIAL for loop in stage.loops)


def _check_adds(stage: Stage) -> None:
    """Results that are added are bare sums, each complete in one pass, and share places only between blocks."""
    store, summed = stage.store, {axis.name for axis in summed_axes(stage.op)}
    if not store.adds:
        if summed:
            raise refuse(stage, f"points along {sorted(summed)} share a place of the output; expected store.adds")
        return
    if not is_added(stage.op):
        raise refuse(stage, f"store.adds with another result than one bare sum of {' or '.join(ADDED)}")
    if store.vector > 1 or store.streaming or store.on_lines or stage.accumulator.carry:
        raise refuse(stage, "store.adds with vectors, streaming or partial results in the output; expected none")
    for loop in stage.loops:
        spatial = stage.op.axis(loop.axis).role == "spatial"
        if spatial and (loop.kind == LANE or (loop.axis in summed and loop.kind != GRID)):
            raise refuse(stage, f"store.adds with a {loop.kind} loop of {loop.axis}; expected the grid's")


def _check_instruction(stage: Stage, device: Device) -> None:
    if stage.compute.instruction not in [instruction.name for instruction in device.instructions]:
        names = ", ".join(instruction.name for instruction in device.instructions)
        raise refuse(
            stage, f"compute.instruction is {stage.compute.instruction!r}; expected one of {device.name}'s: {names}"
        )
    multiplied = multiplies(device.instruction(stage.compute.instruction))
    if stage.op.multiplied not in (multiplied or {None}):
        raise refuse(
            stage, f"compute.instruction is {stage.compute.instruction}; expected one for dot products for a sum of "
            "these, and for nothing else",
        )
    check_matrix(stage, device)
    check_producer(stage, device)


def _check_capacity(stage: Stage, device: Device) -> None:
    for layer, used in managed_bytes(stage, device).items():
        if used > block_capacity(layer, device):
            raise refuse(
                stage,
                f"its buffers take {used} bytes of {layer}; expected at most {block_capacity(layer, device)} for a "
                f"block on {device.name}",
            )


def check_matrix(stage: Stage, device: Device) -> None:
    """Axes, tile, threads and operands are what a matrix instruction takes."""
    instruction = device.instruction(stage.compute.instruction)
    axes = matrix_axes(stage)
    operands = matrix_operands(stage.op, axes, instruction) if instruction.is_matrix else None
    factors = factors_of(stage.op, stage.loops, axes[-1] if axes else "", instruction, operands or NO_OPERANDS)
    if stage.compute.factors not in factors:
        expected = " or ".join(map(repr, factors))
        raise refuse(stage, f"compute.factors is {stage.compute.factors!r} of {instruction.name}; expected {expected}")
    if not instruction.is_matrix:
        return
    if instruction.is_for_chains:
        raise refuse(stage, f"compute.instruction is {instruction.name}; expected it in chains of two products alone")
    if operands is None:
        raise refuse(
            stage,
            f"compute.instruction is {instruction.name} along {axes}, the axes of its threads and sum; expected a sum "
            f"over one axis of products of two {instruction.dtype} loads, along the first and along the second, in "
            f"{instruction.accumulator_dtype}",
        )
    _check_tile(stage, instruction)
    _check_nest(stage, device)
    if instruction.is_asynchronous:
        _check_wide(stage, instruction)
    if operands.conversions:
        check_conversions(stage, device, instruction, operands)
        return
    for axis, own in zip(axes, (operands.a, operands.b), strict=False):
        for load in own:
            _check_operand(stage, device, instruction, axis, load)


def _check_tile(stage: Stage, instruction: Instruction) -> None:
    shape = (instruction.m, instruction.n, instruction.k)
    for axis, extent, expected in zip(matrix_axes(stage), shape, fragment_loops(instruction), strict=True):
        loops = [loop for _, loop in stage.of_axis(axis) if loop.stride < extent]
        own = tuple((loop.kind, loop.extent) for loop in loops)
        apart = instruction.is_asynchronous and axis == matrix_axes(stage)[0] and (*own[1:], own[0]) == expected
        if own != expected and not apart:
            raise refuse(stage, f"loops of {axis} with strides below {extent} are {own}; expected {expected}")


def _check_nest(stage: Stage, device: Device) -> None:
    """Execution widths are whole, reduce whole tiles and keep all of their results."""
    m, n, k = matrix_axes(stage)
    layout = device.instruction(stage.compute.instruction).layout
    threads = [loop.axis for _, loop in stage.of_kind(THREAD)]
    grouped = (m, n, k) if layout == "quads" else (m, n)
    if threads != [m, n] or any(loop.axis not in grouped for _, loop in stage.of_kind(GROUP)):
        raise refuse(
            stage, f"its thread loops are of {threads}; expected one of {m}, then one of {n}, and groups of these (of "
            f"layout quads also of {k})"
        )  # fmt: skip
    depth = first_fragment_loop(stage, device)
    outside = [p for p, loop in stage.of_kind(UNROLL) if loop.axis in (m, n) and p < depth]
    serial = [p for p, loop in enumerate(stage.loops) if loop.kind not in (GRID, GROUP, THREAD, UNROLL) and p >= depth]
    reduced = stage.op.reductions[0].axes
    loose = [x.axis for x in stage.loops if x.kind not in (GRID, GROUP, THREAD) and x.axis not in (m, n, *reduced)]
    if outside or serial or loose:
        raise refuse(stage, "a loop of results lies outside the fragments; expected all of them inside the sum's loops")
    accumulator = stage.accumulator
    apart = any(p >= depth for p in accumulator.separate) or (accumulator.separate and layout != "quads")
    if accumulator.carry or apart or accumulator.flush or accumulator.combine not in ("none", "at_once"):
        raise refuse(
            stage, f"accumulator is {accumulator}; expected one a result, kept until the sum is through, or of layout "
            "quads one for each of some steps, and at_once where groups share sums"
        )  # fmt: skip


def _check_wide(stage: Stage, instruction: Instruction) -> None:
    """All of a thread's tiles along n are one instruction's, and its whole sum is over one serial loop."""
    n = matrix_axes(stage)[1]
    widths = [loop.extent for _, loop in stage.of_axis(n) if loop.kind == UNROLL and loop.stride >= instruction.n]
    serial = [loop for _, loop in stage.of_kind(SERIAL)]
    if len(widths) != 1 or not LEAST_WIDE <= widths[0] <= MOST_WIDE or widths[0] % LEAST_WIDE or len(serial) > 1:
        raise refuse(
            stage, f"{instruction.name} with {widths} tiles of {n} a thread and {len(serial)} serial loops; expected "
            f"multiples of {LEAST_WIDE} to {MOST_WIDE} in one loop, and at most one",
        )


def _check_operand(stage: Stage, device: Device, instruction: Instruction, axis: str, load: int) -> None:
    """Staged for the block, rows along the axis or k, each row at a multiple of what is read at once."""
    copies = [copy for copy in stage.copies if copy.load == load]
    where = f"the copy of load {load}"
    if len(copies) != 1 or copies[0].to_layer == REGISTERS:
        raise refuse(stage, f"{len(copies)} copies of load {load}; expected one, into the layer that a block shares")
    copy = copies[0]
    k = matrix_axes(stage)[2]
    if instruction.is_asynchronous:
        check_panels(stage, where, copy, instruction, axis)
        return
    if set(copy.order) != {axis, k} or copy.at_loop > first_fragment_loop(stage, device) or copy.swizzle:
        raise refuse(stage, f"{where}: order is {copy.order}, swizzle {copy.swizzle}; expected {axis} and {k}, none")
    if not turns_rows(instruction) and copy.order[-1] != k:
        raise refuse(
            stage,
            f"{where}: order is {copy.order}; expected {k} last, only 16- and 64-bit fragments in quads are transposed",
        )
    _check_rows(stage, where, copy, instruction)


def _check_rows(stage: Stage, where: str, copy: Copy, instruction: Instruction) -> None:
    pitch = (stage.buffer_shape(copy, block=True)[-1] + copy.padding) * ITEMSIZE[factor_dtype(instruction)]
    if pitch % ROW_BYTES:
        raise refuse(stage, f"{where}: rows are {pitch} bytes apart; expected a multiple of {ROW_BYTES}")
