"""The comment that opens a kernel: its tiles, threads and staged buffers, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from rollergen.expr.tensor_op import TensorOp
from rollergen.lower.copies import buffer_shape, in_registers
from rollergen.lower.expressions import STORAGE_BYTES
from rollergen.lower.names import identifier
from rollergen.lower.nest import Nest
from rollergen.program.rprogram import GRID, GROUP, LANE, SERIAL, THREAD, UNROLL, Copy

_HEAD = ["axis", "extent", "blocks", "threads", "serial", "unrolled", "lanes"]
_COLUMN_OF = {GRID: 2, GROUP: 3, THREAD: 3, SERIAL: 4, UNROLL: 5, LANE: 6}
_NONE = ["-"] * 5
"""Of the columns of loops: none."""


@dataclass(frozen=True, slots=True)
class _Common:
    """What the programs of a tensor op say alike.

    ``signature``: what is computed of what.  ``axes``: name, identifier, role and the table's first columns of each.
    ``components``: accumulators of one point.
    """

    signature: str
    axes: tuple[tuple[str, str, str, tuple[str, str]], ...]
    components: int


def layout(nest: Nest) -> tuple[str, ...]:
    """Lines: what is computed, a table of loops by axis, then every copy and where it happens."""
    common, stage = _common(nest.op), nest.stage
    tile = _thread_tile(nest) if common.components else {}
    lines = [common.signature, "", *_table(nest, common)]
    lines += ["(count x stride in elements of the axis, outermost first)", *_tile(nest, common, tile)]
    held: dict[str, int] = {}
    if common.components:
        held["registers"] = STORAGE_BYTES[stage.accumulator.dtype] * common.components * prod(tile.values())
    for copy in stage.copies:
        load, shape = nest.load(copy), buffer_shape(nest, copy)
        size = prod(shape[:-1]) * (shape[-1] + copy.padding) * copy.depth * STORAGE_BYTES[load.dtype]
        held[copy.to_layer] = held.get(copy.to_layer, 0) + size
        lines.append(_copy(nest, copy, shape, size))
    lines += [f"kept: {identifier(r.name)} in {identifier(r.layer)} from phase {r.phase} on" for r in stage.kept_rows]
    if held:
        each = [f"{size} bytes in {identifier(layer)}" for layer, size in held.items()]
        lines.append(f"held: {', '.join(each)} (registers of a thread)")
    return tuple(lines)


def _common(op: TensorOp) -> _Common:
    notes = op.notes()
    if "layout" not in notes:
        tensors = {load.buffer.name: load.buffer for load in op.loads()}
        inputs = ", ".join(_tensor(b.name, b.shape, b.dtype) for b in tensors.values())
        output = op.output
        notes["layout"] = _Common(
            f"{_tensor(output.name, output.shape, output.dtype)} from {inputs or 'nothing'}",
            tuple(
                (axis.name, name, axis.role, (f"{name} ({axis.role})", str(axis.extent)))
                for axis in op.axes
                for name in [identifier(axis.name)]
            ),
            sum(len(reduction.bodies) for reduction in op.reductions),
        )
    return notes["layout"]  # type: ignore[no-any-return]


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> str:
    return f"{identifier(name)}[{' x '.join(map(str, shape))}] {dtype}"


def _table(nest: Nest, common: _Common) -> list[str]:
    """The loops of each axis by where they run, outermost first."""
    rows = {axis: [*first, *_NONE] for axis, _, _, first in common.axes}
    for loop in nest.loops:
        row, column, digit = rows[loop.axis], _COLUMN_OF[loop.kind], f"{loop.extent} x {loop.stride}"
        row[column] = digit if row[column] == "-" else f"{row[column]}, {digit}"
    table = [_HEAD, *rows.values()]
    form = "  ".join([f"%-{max(map(len, column))}s" for column in zip(*table, strict=True)])
    return [(form % tuple(row)).rstrip() for row in table]


def _tile(nest: Nest, common: _Common, tile: Mapping[str, int]) -> list[str]:
    lines = [f"{nest.blocks} blocks of {nest.threads} {'thread' if nest.threads == 1 else 'threads'}"]
    lines.append(f"tile of a block: {_block_tile(nest, common)}")
    if common.components:
        shape = " x ".join([f"{name} {tile.get(axis, 1)}" for axis, name, role, _ in common.axes if role == "spatial"])
        lines.append(f"accumulators of a thread: {shape or '1'} ({nest.stage.accumulator.dtype})")
    if nest.stage.accumulator.carry:
        lines.append("partial sums wait in the output between visits")
    if nest.stage.guards:
        lines.append("tails: " + ", ".join([f"{identifier(axis)} {kind}" for axis, kind in nest.stage.guards]))
    return lines


def _thread_tile(nest: Nest) -> dict[str, int]:
    """Outputs of one thread along the axes of its tile."""
    tile: dict[str, int] = {}
    for loop in nest.loops[nest.tile_depth :]:
        if nest.roles[loop.axis] == "spatial":
            tile[loop.axis] = tile.get(loop.axis, 1) * loop.extent
    return tile


def _block_tile(nest: Nest, common: _Common) -> str:
    """What one block computes, and how much of each reduced axis at a time."""
    at_once = {axis: 1 for axis, *_ in common.axes}
    steps: dict[str, int] = {}
    for loop in nest.loops:
        axis, kind = loop.axis, loop.kind
        if kind == SERIAL and nest.roles[axis] != "spatial":
            steps[axis] = steps.get(axis, 1) * loop.extent
        elif kind != GRID:
            at_once[axis] *= loop.extent
    parts = [
        f"{name} {at_once[axis]} in {steps[axis]} steps" if steps.get(axis, 1) > 1 else f"{name} {at_once[axis]}"
        for axis, name, *_ in common.axes
    ]
    return " x ".join(parts) or "1"


def _copy(nest: Nest, copy: Copy, shape: tuple[int, ...], size: int) -> str:
    """Where a copy of this shape and of this size in bytes is."""
    what = f"{identifier(nest.load(copy).buffer.name)} in {identifier(copy.to_layer)}: ["
    if copy.window:
        what += " x ".join(map(str, shape))
        if in_registers(copy, nest):
            return f"{what}], the window of a thread's tile"
        padded = f" + {copy.padding}" if copy.padding else ""
        return f"{what}{padded}], the window of a block's tile, {size} bytes"
    what += " x ".join([f"{identifier(axis)} {extent}" for axis, extent in zip(copy.order, shape, strict=True)])
    what += f" + {copy.padding}]" if copy.padding else "]"
    if copy.swizzle > 1:
        what += f", swizzle {copy.swizzle}"
    if copy.vector > 1:
        what += f", {copy.vector} at a time along {identifier(copy.along)}"
    if copy.runs:
        what += f", runs of {' x '.join(map(str, copy.runs))} a thread"
    if not in_registers(copy, nest):
        what += f", {size} bytes"
        if copy.depth > 1:
            what += f" in {copy.depth} buffers" + (", filled asynchronously" if copy.asynchronous else "")
    return what
