"""One stage -> one kernel: parameters, ids, the nest, and the comment that opens it and draws its tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.lower.box_ir import map_name
from rollergen.lower.context import Context
from rollergen.lower.copies import allocate_buffers, buffer_shape, in_registers
from rollergen.lower.expressions import (
    STORAGE_BYTES,
    Misalignment,
    Pointer,
)
from rollergen.lower.features import PLAIN, Features
from rollergen.lower.grid import define_begins, define_grid, define_threads
from rollergen.lower.ir import GLOBAL, Kernel, Names, identifier
from rollergen.lower.nest import Nest, make_nest
from rollergen.lower.open_axes import OpenAxes
from rollergen.lower.phases import write_nest
from rollergen.lower.products import check_products
from rollergen.lower.reductions import thread_shares
from rollergen.lower.writer import Writer
from rollergen.program.boxes import Boxes, boxes_of, stored_boxes
from rollergen.program.matrix import matrix_instruction
from rollergen.program.rprogram import GRID, GROUP, LANE, SERIAL, THREAD, UNROLL, Copy, RProgram, Stage

OpenStages = Mapping[int, OpenAxes]
"""The open axes of stages, by their number."""
"""For the stages, by their numbers, that have one: the axis whose extent is an argument of the kernel."""


def lower(program: RProgram, device: Device, features: Features = PLAIN) -> tuple[Kernel, ...]:
    """One kernel for each stage, in launch order.

    ``features``: what the language has beyond the plain one.

    >>> from tests.programs import relu                                              # doctest: +SKIP
    >>> [kernel.name for kernel in lower(relu(), device)]                            # doctest: +SKIP
    ['relu']
    """
    return lower_all([program], device, features)[0]


def lower_all(
    programs: Sequence[RProgram], device: Device, features: Features, opened: OpenStages | None = None
) -> list[tuple[Kernel, ...]]:
    """The kernels of each of the `programs`, as `lower` makes them; ``opened``: axes whose extents are arguments.

    Each step is done for all programs before the next one: a step is much code that runs once for a stage, and the
    processor's caches keep it from one stage to the next.
    """
    begun = []
    for program in programs:
        entries = Names()
        begun.append([
            _begun(
                stage, device, entries.fresh(stage.name), features, program.launch(number).resident_blocks,
                (opened or {}).get(number),
            )
            for number, stage in enumerate(program.stages)
        ])
    for stages in begun:
        for stage in stages:
            write_nest(stage.context)
    return [tuple([_kernel(stage) for stage in stages]) for stages in begun]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A kernel of which everything up to its loops is written; the fields that it takes over have its names.

    ``more``: of buffers with several maps the parameters behind the first."""

    name: str
    parameters: Mapping[str, Pointer]
    more: tuple[tuple[str, Pointer], ...]
    context: Context
    block_id: str
    thread_id: str
    resident_blocks: int


def _begun(
    stage: Stage, device: Device, entry: str, features: Features, resident_blocks: int, opened: OpenAxes | None
) -> _Begun:
    """The stage's parameters, ids and buffers."""
    names = Names()
    names.fresh(entry)
    out = Writer(names, features)
    buffers = stage_buffers(stage)
    parameters = {
        b.name: Pointer(names.fresh(b.name), b.dtype, GLOBAL, b.name == stage.op.output.name) for b in buffers
    }
    more = tuple(
        (buffer, replace(parameters[buffer], name=names.fresh(map_name(parameters[buffer].name, which))))
        for buffer, made in _mapped(stage, device) for which in range(1, len(made.maps))
    )  # fmt: skip
    nest = make_nest(stage, device, parameters, names, features.exchanges, opened)
    block, thread, step = names.fresh("block"), names.fresh("thread"), names.fresh("step")
    if opened:
        out.know(nest.argument, opened.bounds)
    out.know(block, (0, stage.launched_blocks - 1))
    out.know(thread, (0, nest.threads - 1))
    for variable, loop in zip(nest.variables, nest.loops, strict=True):
        out.ranges[variable] = (0, loop.extent - 1)
    out.unrolled = frozenset([v for v, loop in zip(nest.variables, nest.loops, strict=True) if loop.kind == UNROLL])
    if not nest.launched:
        define_grid(out, nest, block)
        define_begins(out, nest)
    define_threads(out, nest, thread)
    _define_lead(out, nest)
    staged = allocate_buffers(out, nest)
    context = Context(out, nest, staged, thread_shares(nest, Index.axis(thread)), step, block)
    return _Begun(entry, parameters, more, context, block, thread, resident_blocks)


def _kernel(stage: _Begun) -> Kernel:
    """The kernel whose loops are written; every integer's range goes with it."""
    out, nest = stage.context.out, stage.context.nest
    kernel = Kernel(
        name=stage.name,
        parameters=(*stage.parameters.values(), *(pointer for _, pointer in stage.more)),
        arguments=(*stage.parameters, *(name for name, _ in stage.more)),
        body=out.body(),
        blocks=nest.stage.launched_blocks,
        threads=nest.launched_threads,
        block_id=stage.block_id,
        thread_id=stage.thread_id,
        ranges=out.ranges,
        functions=tuple(out.functions.values()),
        layout=layout(nest),
        once=nest.stage.once,
        resident_blocks=stage.resident_blocks,
        allocated=out.arrays(),
        sizes=(nest.argument,) if nest.open else (),
        maps=tuple(
            (map_name(stage.parameters[buffer].name, which), one)
            for buffer, made in _mapped(nest.stage, nest.device) for which, one in enumerate(made.maps)
        ),
        cluster=nest.stage.block_order.cluster,
    )
    if nest.products:
        check_products(kernel)
    return kernel


def _mapped(stage: Stage, device: Device) -> Iterator[tuple[str, Boxes]]:
    """The buffers that come or leave in boxes, and these."""
    for copy in stage.copies:
        if copy.boxes:
            yield stage.load(copy).buffer.name, boxes_of(stage, copy, device.layer(copy.to_layer).box_extent)
    one = matrix_instruction(stage, device)
    if stage.store.boxes and one is not None:
        yield stage.op.output.name, stored_boxes(stage, one)[0]


def stage_buffers(stage: Stage) -> tuple[Buffer, ...]:
    """What the stage reads, in order of first use, then what it writes."""
    read = stage.op.buffers_read()
    read.pop(stage.op.output.name, None)
    return (*read.values(), stage.op.output)


def _define_lead(out: Writer, nest: Nest) -> None:
    """How far before 0 the loops of the lanes' axis start, so that stores begin on lines."""
    if nest.lead is None or nest.lane is None:
        return
    output = nest.parameters[nest.op.output.name]
    bytes_ = nest.lane.width * STORAGE_BYTES[output.dtype]
    out.define(nest.lead, Misalignment(output, bytes_), (0, nest.lane.width - 1))


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


@lru_cache(maxsize=64)
def _common(op: TensorOp) -> _Common:
    tensors = op.buffers_read()
    inputs = ", ".join(_tensor(b.name, b.shape, b.dtype) for b in tensors.values())
    output = op.output
    return _Common(
        f"{_tensor(output.name, output.shape, output.dtype)} from {inputs or 'nothing'}",
        tuple(
            (axis.name, name, axis.role, (f"{name} ({axis.role})", str(axis.extent)))
            for axis in op.axes
            for name in [identifier(axis.name)]
        ),
        op.components,
    )


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
    beside = f" and {nest.launched_threads - nest.threads} that start copies" if nest.stage.compute.producer else ""
    lines = [f"{nest.blocks} blocks of {nest.threads} {'thread' if nest.threads == 1 else 'threads'}{beside}"]
    if nest.launched:
        lines[-1] += f"; {nest.launched} are launched, for one after the other"
    if nest.stage.block_order.cluster:
        lines[-1] += f"; {nest.stage.block_order.cluster} below each other are a cluster"
    lines.append(f"tile of a block: {_block_tile(nest, common)}")
    if common.components:
        shape = " x ".join([f"{name} {tile.get(axis, 1)}" for axis, name, role, _ in common.axes if role == "spatial"])
        lines.append(f"accumulators of a thread: {shape or '1'} ({nest.stage.accumulator.dtype})")
    if nest.stage.accumulator.carry:
        lines.append("partial sums wait in the output between passes")
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


_HOW = ("", ", filled asynchronously", ", filled in boxes")


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
    if copy.panel:
        what += f", panels of {copy.panel} columns"
    if copy.swizzle > 1:
        what += f", swizzle {copy.swizzle}"
    if copy.vector > 1:
        what += f", {copy.vector} at a time along {identifier(copy.along)}"
    if copy.runs:
        what += f", runs of {' x '.join(map(str, copy.runs))} a thread"
    if not in_registers(copy, nest):
        what += f", {size} bytes"
        if copy.depth > 1:
            what += f" in {copy.depth} buffers" + _HOW[copy.asynchronous + copy.boxes]
    return what
