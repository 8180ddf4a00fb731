"""The comment that opens a kernel: its tiles, threads and staged buffers, drawn."""

from __future__ import annotations

from math import prod

from rollergen.lower.copies import buffer_shape, in_registers
from rollergen.lower.ir import STORAGE_BYTES
from rollergen.lower.names import identifier
from rollergen.lower.nest import Nest
from rollergen.program.rprogram import GRID, GROUP, LANE, SERIAL, THREAD, UNROLL, Copy

_COLUMN_OF = {
    GRID: "blocks", GROUP: "threads", THREAD: "threads", SERIAL: "serial", UNROLL: "unrolled", LANE: "lanes",
}  # fmt: skip
_COLUMNS = tuple(dict.fromkeys(_COLUMN_OF.values()))


def layout(nest: Nest) -> tuple[str, ...]:
    """Lines: what is computed, a table of loops by axis, then every copy and where it happens."""
    definition = nest.definition
    lines = [_signature(nest), ""]
    rows = [["axis", "extent", *_COLUMNS]]
    digits = _digits(nest)
    for axis in definition.axes:
        cells = [f"{identifier(axis.name)} ({axis.role})", str(axis.extent)]
        rows.append(cells + [", ".join(digits.get((axis.name, column), "-")) for column in _COLUMNS])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += ["(count x stride in elements of the axis, outermost first)"]
    lines += _tile(nest)
    lines += [_copy(nest, copy) for copy in nest.stage.copies]
    lines += [
        f"kept: {identifier(r.name)} in {identifier(r.layer)} from phase {r.phase} on" for r in nest.stage.residents
    ]
    return (*lines, *_held(nest))


def _signature(nest: Nest) -> str:
    definition = nest.definition
    tensors = {load.buffer.name: load.buffer for load in definition.loads()}
    inputs = ", ".join(_tensor(b.name, b.shape, b.dtype) for b in tensors.values())
    output = definition.output
    return f"{_tensor(output.name, output.shape, output.dtype)} from {inputs or 'nothing'}"


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> str:
    return f"{identifier(name)}[{' x '.join(map(str, shape))}] {dtype}"


def _digits(nest: Nest) -> dict[tuple[str, str], list[str]]:
    """(axis, column) -> its loops there, outermost first."""
    found: dict[tuple[str, str], list[str]] = {}
    for loop in nest.loops:
        found.setdefault((loop.axis, _COLUMN_OF[loop.kind]), []).append(f"{loop.extent} x {loop.stride}")
    return found


def _tile(nest: Nest) -> list[str]:
    lines = [f"{nest.blocks} blocks of {nest.threads} {'thread' if nest.threads == 1 else 'threads'}"]
    inside = [loop for loop in nest.loops[nest.tile_depth :] if nest.roles[loop.axis] == "spatial"]
    shape = [
        f"{identifier(axis.name)} {prod([loop.extent for loop in inside if loop.axis == axis.name])}"
        for axis in nest.definition.of_role("spatial")
    ]
    lines.append(f"tile of a block: {_block_tile(nest)}")
    if nest.definition.reductions:
        lines.append(f"accumulators of a thread: {' x '.join(shape) or '1'} ({nest.stage.accumulator.dtype})")
    if nest.stage.accumulator.carry:
        lines.append("partial sums wait in the output between visits")
    if nest.stage.guards:
        lines.append("tails: " + ", ".join(f"{identifier(axis)} {kind}" for axis, kind in nest.stage.guards))
    return lines


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
        inner = [loop for loop in nest.loops[nest.tile_depth :] if nest.roles[loop.axis] == "spatial"]
        each = STORAGE_BYTES[nest.stage.accumulator.dtype] * sum(len(r.bodies) for r in nest.definition.reductions)
        bytes_["registers"] = each * prod(loop.extent for loop in inner)
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
