"""One stage -> one kernel: parameters, ids, the nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollergen.expr.index import Index
from rollergen.expr.values import Buffer
from rollergen.hal.spec import Device
from rollergen.lower.context import Context
from rollergen.lower.copies import allocate_buffers
from rollergen.lower.expressions import (
    STORAGE_BYTES,
    Expr,
    Misalignment,
    Number,
    Operation,
    Pointer,
    Position,
    position,
)
from rollergen.lower.features import PLAIN, Features
from rollergen.lower.ir import GLOBAL, Kernel
from rollergen.lower.layout import layout
from rollergen.lower.names import Names
from rollergen.lower.nest import Nest, make_nest
from rollergen.lower.phases import write_nest
from rollergen.lower.reductions import thread_shares
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import UNROLL, RProgram, Stage


def lower(program: RProgram, device: Device, features: Features = PLAIN) -> tuple[Kernel, ...]:
    """One kernel for each stage, in launch order.

    ``features``: what the language has beyond the plain one.

    >>> from tests.programs import relu                                              # doctest: +SKIP
    >>> [kernel.name for kernel in lower(relu(), device)]                            # doctest: +SKIP
    ['relu']
    """
    return lower_all([program], device, features)[0]


def lower_all(programs: Sequence[RProgram], device: Device, features: Features) -> list[tuple[Kernel, ...]]:
    """Each of the `programs` as `lower` does it, step by step for all of them: a step is much code that runs once for
    a stage, and the processor's caches keep it from one stage to the next."""
    begun = []
    for program in programs:
        entries = Names()
        begun.append([
            _begun(stage, device, entries.fresh(stage.name), features, program.launch(number).resident_blocks)
            for number, stage in enumerate(program.stages)
        ])
    for stages in begun:
        for stage in stages:
            write_nest(stage.context)
    return [tuple([_kernel(stage) for stage in stages]) for stages in begun]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A kernel of which everything up to its loops is written; the fields that it takes over have its names."""

    name: str
    parameters: Mapping[str, Pointer]
    context: Context
    block_id: str
    thread_id: str
    resident_blocks: int


def _begun(stage: Stage, device: Device, entry: str, features: Features, resident_blocks: int) -> _Begun:
    """The stage's parameters, ids and buffers."""
    names = Names()
    names.fresh(entry)
    out = Writer(names, features)
    buffers = _buffers(stage)
    parameters = {
        b.name: Pointer(names.fresh(b.name), b.dtype, GLOBAL, b.name == stage.op.output.name) for b in buffers
    }
    nest = make_nest(stage, device, parameters, names, features.exchanges)
    block, thread, step = names.fresh("block"), names.fresh("thread"), names.fresh("step")
    out.know(block, (0, nest.blocks - 1))
    out.know(thread, (0, nest.threads - 1))
    for variable, loop in zip(nest.variables, nest.loops, strict=True):
        out.ranges[variable] = (0, loop.extent - 1)
    out.unrolled = frozenset([v for v, loop in zip(nest.variables, nest.loops, strict=True) if loop.kind == UNROLL])
    _define_grid(out, nest, block)
    _define_threads(out, nest, thread)
    _define_lead(out, nest)
    staged = allocate_buffers(out, nest)
    context = Context(out, nest, staged, thread_shares(nest, Index.axis(thread)), step)
    return _Begun(entry, parameters, context, block, thread, resident_blocks)


def _kernel(stage: _Begun) -> Kernel:
    """The kernel whose loops are written; every integer's range goes with it."""
    out, nest = stage.context.out, stage.context.nest
    return Kernel(
        name=stage.name,
        parameters=tuple(stage.parameters.values()),
        arguments=tuple(stage.parameters),
        body=out.body(),
        blocks=nest.blocks,
        threads=nest.threads,
        block_id=stage.block_id,
        thread_id=stage.thread_id,
        ranges=out.ranges,
        functions=tuple(out.functions.values()),
        layout=layout(nest),
        once=nest.stage.once,
        resident_blocks=stage.resident_blocks,
        allocated=out.arrays(),
    )


def _buffers(stage: Stage) -> tuple[Buffer, ...]:
    """What the stage reads, in order of first use, then what it writes."""
    read = {load.buffer.name: load.buffer for load in stage.op.loads()}
    read.pop(stage.op.output.name, None)
    return (*read.values(), stage.op.output)


def _define_lead(out: Writer, nest: Nest) -> None:
    """How far before 0 the loops of the lanes' axis start, so that stores begin on lines."""
    if nest.lead is None or nest.lane is None:
        return
    output = nest.parameters[nest.op.output.name]
    bytes_ = nest.lane.width * STORAGE_BYTES[output.dtype]
    out.define(nest.lead, Misalignment(output, bytes_), (0, nest.lane.width - 1))


def _define_grid(out: Writer, nest: Nest, block: str) -> None:
    grid = nest.grid
    width = nest.stage.block_order.group_rows
    swizzled = width > 0 and len(grid) >= 2
    _define_digits(out, nest, [p for p, _ in (grid[:-2] if swizzled else grid)], block, nest.blocks)
    if swizzled:
        _define_swizzle(out, nest, grid[-2][0], grid[-1][0], block, width)


def _define_digits(out: Writer, nest: Nest, positions: list[int], number: str, count: int) -> None:
    """Loop variables as mixed-radix digits of a linear number below `count`, the last one fastest."""
    below = count
    for p in positions:
        extent = nest.loops[p].extent
        left, below = below, below // extent
        digit = Index.axis(number) // below
        if left < count or extent == 1:  # else no number has a higher digit
            digit = digit % extent
        out.define(nest.variables[p], position(digit, out.ranges), (0, extent - 1))


def _define_swizzle(out: Writer, nest: Nest, p: int, q: int, block: str, width: int) -> None:
    """The last two grid loops in groups of `width` rows (see `BlockOrder`)."""
    rows_all, columns = nest.loops[p].extent, nest.loops[q].extent
    number = Index.axis(block) % (rows_all * columns)
    number = number.simplify(out.ranges)
    group = (number // (width * columns)).simplify(out.ranges)
    rest = (number % (width * columns)).simplify(out.ranges)
    if rows_all % width == 0:
        row, column = group * width + rest % width, rest // width
        out.define(nest.variables[p], Position(row.simplify(out.ranges)), (0, rows_all - 1))
        out.define(nest.variables[q], Position(column.simplify(out.ranges)), (0, columns - 1))
        return
    left = Position(group * -width + rows_all)
    limit = Number(width, "int32")
    few = Operation("lt", (left, limit), "bool")
    rows = out.let("rows", Operation("select", (few, left, limit), "int32"))
    first = Operation("add", (Position(group * width), _int("mod", Position(rest), rows)), "int32")
    out.define(nest.variables[p], first, (0, rows_all - 1))
    out.define(nest.variables[q], _int("div", Position(rest), rows), (0, columns - 1))


def _int(op: str, a: Expr, b: Expr) -> Expr:
    return Operation(op, (a, b), "int32")


def _define_threads(out: Writer, nest: Nest, thread: str) -> None:
    positions = [p for p, _ in nest.parallel]
    _define_digits(out, nest, positions, thread, nest.threads)
