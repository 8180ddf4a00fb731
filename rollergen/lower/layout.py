"""The comment that opens a kernel: its tiles, threads and staged buffers, drawn."""

from __future__ import annotations

from math import prod

from rollergen.expr.definition import Definition
from rollergen.lower.copies import buffer_shape, in_registers
from rollergen.lower.expressions import STORAGE_BYTES
from rollergen.lower.names import identifier
from rollergen.lower.nest import Nest
from rollergen.program.rprogram import GRID, GROUP, LANE, SERIAL, THREAD, UNROLL, Copy

_HEAD = ["axis", "extent", "blocks", "threads", "serial", "unrolled", "lanes"]
_COLUMN_OF = {GRID: 2, GROUP: 3, THREAD: 3, SERIAL: 4, UNROLL: 5, LANE: 6}
_NONE = ["-"] * 5
"""Of the columns of loops: none."""


def layout(nest: Nest) -> tuple[str, ...]:
    """Lines: what is computed, a table of loops by axis, then every copy and where it happens."""
    lines = [_signature(nest.definition), "", *_table(nest)]
    lines += ["(count x stride in elements of the axis, outermost first)", *_tile(nest)]
    lines += [_copy(nest, copy) for copy in nest.stage.copies]
    lines += [
        f"kept: {identifier(r.name)} in {identifier(r.layer)} from phase {r.phase} on" for r in nest.stage.residents
    ]
    return (*lines, *_held(nest))


def _signature(definition: Definition) -> str:
    """What is computed of what; noted, as all programs of a definition begin with it."""
    notes = definition.notes()
    if "signature" not in notes:
        tensors = {load.buffer.name: load.buffer for load in definition.loads()}
        inputs = ", ".join(_tensor(b.name, b.shape, b.dtype) for b in tensors.values())
        output = definition.output
        notes["signature"] = f"{_tensor(output.name, output.shape, output.dtype)} from {inputs or 'nothing'}"
    return notes["signature"]  # type: ignore[no-any-return]


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> str:
    return f"{identifier(name)}[{' x '.join(map(str, shape))}] {dtype}"


def _table(nest: Nest) -> list[str]:
    """The loops of each axis by where they run, outermost first."""
    rows = {axis.name: [f"{identifier(axis.name)} ({axis.role})", str(axis.extent)] for axis in nest.definition.axes}
    for row in rows.values():
        row += _NONE
    for loop in nest.loops:
        row, column = rows[loop.axis], _COLUMN_OF[loop.kind]
        digit = f"{loop.extent} x {loop.stride}"
        row[column] = digit if row[column] == "-" else f"{row[column]}, {digit}"
    table = [_HEAD, *rows.values()]
    form = "  ".join([f"%-{max(map(len, column))}s" for column in zip(*table, strict=True)])
    return [(form % tuple(row)).rstrip() for row in table]


def _tile(nest: Nest) -> list[str]:
    lines = [f"{nest.blocks} blocks of {nest.threads} {'thread' if nest.threads == 1 else 'threads'}"]
    lines.append(f"tile of a block: {_block_tile(nest)}")
    if nest.definition.reductions:
        tile = _thread_tile(nest)
        shape = [f"{identifier(axis.name)} {tile.get(axis.name, 1)}" for axis in nest.definition.of_role("spatial")]
        lines.append(f"accumulators of a thread: {' x '.join(shape) or '1'} ({nest.stage.accumulator.dtype})")
    if nest.stage.accumulator.carry:
        lines.append("partial sums wait in the output between visits")
    if nest.stage.guards:
        lines.append("tails: " + ", ".join(f"{identifier(axis)} {kind}" for axis, kind in nest.stage.guards))
    return lines


def _thread_tile(nest: Nest) -> dict[str, int]:
    """Outputs of one thread along the axes of its tile."""
    tile: dict[str, int] = {}
    for loop in nest.loops[nest.tile_depth :]:
        if nest.roles[loop.axis] == "spatial":
            tile[loop.axis] = tile.get(loop.axis, 1) * loop.extent
    return tile


def _block_tile(nest: Nest) -> str:
    """What one block computes, and how much of each reduced axis at a time."""
    parts = []
    for axis in nest.definition.axes:
        at_once = steps = 1
        for p, _ in nest.digits_of.get(axis.name, ()):
            loop = nest.loops[p]
            if loop.kind == SERIAL and axis.role != "spatial":
                steps *= loop.extent
            elif loop.kind != GRID:
                at_once *= loop.extent
        parts.append(f"{identifier(axis.name)} {at_once}" + (f" in {steps} steps" if steps > 1 else ""))
    return " x ".join(parts) or "1"


def _held(nest: Nest) -> list[str]:
    """Bytes that copies and accumulators take in each layer: in registers of a thread, elsewhere of a block."""
    bytes_: dict[str, int] = {}
    if nest.definition.reductions:
        each = STORAGE_BYTES[nest.stage.accumulator.dtype] * sum(len(r.bodies) for r in nest.definition.reductions)
        bytes_["registers"] = each * prod(_thread_tile(nest).values())
    for copy in nest.stage.copies:
        size = _elements(nest, copy) * STORAGE_BYTES[nest.load(copy).dtype]
        bytes_[copy.to_layer] = bytes_.get(copy.to_layer, 0) + size
    held = [f"{size} bytes in {identifier(layer)}" for layer, size in bytes_.items()]
    return [f"held: {', '.join(held)} (registers of a thread)"] if held else []


def _elements(nest: Nest, copy: Copy) -> int:
    *rows, row = buffer_shape(nest, copy)
    return prod(rows) * (row + copy.padding) * copy.depth


def _copy(nest: Nest, copy: Copy) -> str:
    load = nest.load(copy)
    if copy.window:
        window = " x ".join(map(str, buffer_shape(nest, copy)))
        where = f"{identifier(load.buffer.name)} in {identifier(copy.to_layer)}"
        if in_registers(copy, nest):
            return f"{where}: [{window}], the window of a thread's tile"
        padded = f" + {copy.padding}" if copy.padding else ""
        size = _elements(nest, copy) * STORAGE_BYTES[load.dtype]
        return f"{where}: [{window}{padded}], the window of a block's tile, {size} bytes"
    shape = buffer_shape(nest, copy)
    extents = [f"{identifier(axis)} {extent}" for axis, extent in zip(copy.order, shape, strict=True)]
    what = f"{identifier(load.buffer.name)} in {identifier(copy.to_layer)}: [{' x '.join(extents)}"
    what += f" + {copy.padding}]" if copy.padding else "]"
    if copy.swizzle > 1:
        what += f", swizzle {copy.swizzle}"
    if copy.vector > 1:
        what += f", {copy.vector} at a time along {identifier(copy.along)}"
    if copy.runs:
        what += f", runs of {' x '.join(map(str, copy.runs))} a thread"
    if not in_registers(copy, nest):
        what += f", {_elements(nest, copy) * STORAGE_BYTES[load.dtype]} bytes"
        if copy.depth > 1:
            what += f" in {copy.depth} buffers" + (", filled asynchronously" if copy.asynchronous else "")
    return what
