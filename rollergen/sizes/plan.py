"""Plans: programs of which one extent is open.

A program that was constructed at one count of rows (images of a batch, ...) is a program at every other count too: its
tiles stay, the outermost digit of the axis runs as often as the axis is long, and a guard keeps the last tile within
it.  Everything else is the same, so each size has a concrete program, for the model, the interpreter and the gate, and
all sizes have one kernel, which takes the count as an argument.

That holds where nothing but extents of axes and first dimensions of tensors depends on the count: it is then in no
offset and in no bound.  Temporaries that have rows further inside (partial sums of a split reduction) are as long as
the largest count's, so that their offsets do not depend on it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rollergen.emit import Source, emit_open
from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Value, transform
from rollergen.hal.spec import Device
from rollergen.lower.nest import OpenAxis
from rollergen.program.check import check
from rollergen.program.model.counts import Counted
from rollergen.program.model.together import with_launches
from rollergen.program.rprogram import GRID, LANE, SERIAL, UNROLL, Accumulator, Loop, RProgram, Stage

PLAIN_GUARDS = ("mask", "peel")
"""Guards that hold whatever the extent: a tile that begins earlier than its number says needs an axis that long."""


@dataclass(frozen=True)
class Plan:
    """A program constructed at ``count``, for counts up to ``most``.

    ``axes``: for each stage its open axis, or ""; ``buffers``: names of tensors whose first dimension is a multiple of
    the count; ``inner``: of temporaries of which another one is, which is then as long as for ``most``.
    """

    program: RProgram
    count: int
    axes: tuple[str, ...]
    buffers: frozenset[str]
    inner: Mapping[str, int]
    most: int

    def at(self, count: int, device: Device, given: Graph | None = None) -> RProgram:
        """The program at another count, with inputs and outputs as `given` there.  Raises ProgramError where the plan
        has none there."""
        program = self._scaled(count, forced=False, device=device)
        if given is not None:
            program = replace(program, inputs=given.inputs, outputs=given.outputs)
        made = with_launches(replace(program, launches=()), device)
        kept = [
            replace(launch, resident_blocks=self.program.launch(number).resident_blocks)
            for number, launch in enumerate(made.launches)
        ]
        program = replace(made, launches=tuple(kept))
        check(program, device)
        return program

    def unchecked(self, count: int, device: Device) -> RProgram:
        """The program at another count, whose stages may break an invariant, without how they are launched."""
        return replace(self._scaled(count, forced=False, device=device), launches=())

    def largest(self, device: Device) -> RProgram:
        """The program from which the kernels for all counts are written."""
        return replace(self._scaled(self.most, forced=True, device=device), launches=())

    def counted(self, counts: np.ndarray, device: Device) -> list[Counted | Stage]:
        """The stages of each call at these counts, side by side; those that do not depend on the count as they are."""
        found: list[Counted | Stage] = []
        for stage, axis in zip(self.largest(device).stages, self.axes, strict=True):
            if stage.once:
                continue
            if not axis:
                found.append(stage)
                continue
            outermost = stage.of_axis(axis)[0][0]
            found.append(Counted(stage, axis, outermost, self.buffers, self.most, counts))
        return found

    def source(self, low: int, device: Device) -> Source:
        """The kernels for all counts from `low` on."""
        high = self.most
        program = self._scaled(high, forced=True, device=device)
        opened = {
            number: OpenAxis(axis, program.stages[number].op.axis(axis).extent // high, (low, high), self.buffers)
            for number, axis in enumerate(self.axes)
            if axis
        }
        return emit_open(program, device, opened)

    def launched(
        self, source: Source, count: int, device: Device, given: Graph | None = None
    ) -> tuple[RProgram, Source]:
        """The program at a count, and the `source` of all counts with its launches there; ``given`` as `at` has it."""
        program = self.at(count, device, given)
        launches = []
        for number, (one, stage) in enumerate(zip(source.launches, program.stages, strict=True)):
            own = (count,) if self.axes[number] else ()
            launches.append(replace(one, blocks=stage.blocks, alone=program.launch(number).alone, sizes=own))
        return program, replace(source, launches=tuple(launches))

    def _scaled(self, count: int, *, forced: bool, device: Device) -> RProgram:
        """The program at another count; ``forced``: with guards though tiles may divide the axis."""
        scale = Scale(self.count, count, self.buffers, self.inner, self.most)
        stages = [
            _scaled_stage(stage, axis, scale, forced, device)
            for stage, axis in zip(self.program.stages, self.axes, strict=True)
        ]
        views = {b.name: b for stage in stages for b in (stage.op.output, *(load.buffer for load in stage.op.loads()))}
        whole = lambda b: views[b.name] if b.name in self.buffers and b.shape[0] % self.count else scale.buffer(b)
        program, buffers = self.program, lambda some: tuple(map(whole, some))
        return replace(
            program, inputs=buffers(program.inputs), outputs=buffers(program.outputs),
            temporaries=buffers(program.temporaries), stages=tuple(stages),
        )  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """From one count to another; the other fields as of a `Plan`."""

    before: int
    after: int
    buffers: frozenset[str]
    inner: Mapping[str, int]
    most: int

    def number(self, extent: int) -> int:
        """A multiple of the count."""
        return extent // self.before * self.after

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer.name in self.inner:
            longest = [
                extent // self.before * self.most if n == self.inner[buffer.name] else extent
                for n, extent in enumerate(buffer.shape)
            ]
            return replace(buffer, shape=tuple(longest))
        if buffer.name not in self.buffers:
            return buffer
        return replace(buffer, shape=(self.number(buffer.shape[0]), *buffer.shape[1:]))

    def value(self, value: Value) -> Value:
        change = lambda node: replace(node, buffer=self.buffer(node.buffer)) if isinstance(node, Load) else None
        return transform(value, change)

    def op(self, op: TensorOp, axis: str) -> TensorOp:
        """The tensor op with this open axis."""
        axes = [replace(one, extent=self.number(one.extent)) if one.name == axis else one for one in op.axes]
        return replace(
            op,
            output=self.buffer(op.output),
            axes=tuple(axes),
            result=self.value(op.result),
            reductions=tuple([replace(one, bodies=tuple(map(self.value, one.bodies))) for one in op.reductions]),
        )


def _scaled_stage(stage: Stage, axis: str, scale: Scale, forced: bool, device: Device) -> Stage:
    op = scale.op(stage.op, axis)
    kept = tuple(replace(row, value=scale.value(row.value)) for row in stage.kept_rows)
    if not axis:
        return replace(stage, op=op, kept_rows=kept)
    stage = with_outer_digit(stage, axis)
    outermost = stage.of_axis(axis)[0][0]
    extent = op.axis(axis).extent
    loops = [
        replace(loop, extent=-(-extent // loop.stride)) if p == outermost else loop
        for p, loop in enumerate(stage.loops)
    ]
    guards = [(name, kind) for name, kind in stage.guards if name != axis]
    if _overhangs(loops, axis, extent, forced):
        own = stage.guard(axis)
        guards.append((axis, own if own != "none" else _guard(stage, device)))
    return replace(stage, op=op, loops=tuple(loops), guards=tuple(guards), kept_rows=kept)


def _guard(stage: Stage, device: Device) -> str:
    """As assembly has it: contractions of a CPU test the whole register tile at once."""
    products = bool(stage.op.reductions) and not stage.op.of_role("row")
    return "peel" if products and not device.kind.threads else "mask"


def _overhangs(loops: Iterable[Loop], axis: str, extent: int, always: bool) -> bool:
    """Whether the axis has points beyond its extent once serial loops have stopped, or may have them (`always`)."""
    spans = [x.extent * x.stride for x in loops if x.axis == axis and x.kind not in (GRID, SERIAL)]
    return any(span > 1 and (always or extent % span) for span in spans)


def with_outer_digit(stage: Stage, axis: str) -> Stage:
    """The stage with a digit of the axis that may run any number of times: the outermost, over blocks or serial."""
    own = stage.of_axis(axis)
    if own and own[0][1].kind in (GRID, SERIAL):
        return stage
    span = prod(loop.extent for _, loop in own)
    later = lambda positions: tuple(p + 1 for p in positions)
    accumulator: Accumulator = stage.accumulator
    return replace(
        stage,
        loops=(Loop(axis, 1, span, GRID), *stage.loops),
        copies=tuple(replace(copy, at_loop=copy.at_loop + 1) for copy in stage.copies),
        accumulator=replace(
            accumulator, at_loop=accumulator.at_loop + 1, separate=later(accumulator.separate),
            gathered=later(accumulator.gathered), flush=later(accumulator.flush),
        ),
        prefetch=stage.prefetch + 1 if stage.prefetch >= 0 else -1,
    )  # fmt: skip


# What is open -----------------------------------------------------------------------------------


def open_buffers(here: Graph, there: Graph, count: int, other: int) -> frozenset[str] | None:
    """Names of the inputs and outputs whose first dimensions are together a multiple of the count, of the same
    expression at two counts; None where more than that differs."""
    found = set()
    for a, b in zip((*here.inputs, *here.outputs), (*there.inputs, *there.outputs), strict=True):
        if a == b:
            continue
        rows = 1 + max((n for n, (one, two) in enumerate(zip(a.shape, b.shape, strict=True)) if one != two), default=-1)
        some, others = prod(a.shape[:rows]), prod(b.shape[:rows])
        if replace(a, shape=b.shape) != b or some % count or some // count * other != others:
            return None
        found.add(a.name)
    return frozenset(found)


def follows(here: Graph, there: Graph, count: int, other: int) -> bool:
    """Whether the tensor ops at one count are those at the other, scaled."""
    buffers = open_buffers(here, there, count, other)
    traced = None if buffers is None else _traced(here.tensor_ops, buffers, count)
    if traced is None or len(here.tensor_ops) != len(there.tensor_ops):
        return False
    axes, every, inner = traced
    scale = Scale(count, other, every, inner, other)
    pairs = zip(here.tensor_ops, axes, there.tensor_ops, strict=True)
    return all(scale.op(op, axis) == wanted for op, axis, wanted in pairs)


_SPLIT_TO = 4
"""Times the count at which a reduction was split that its plan serves: temporaries are as long as the largest."""


def plan_of(program: RProgram, buffers: frozenset[str], count: int, most: int) -> Plan | None:
    """The plan of a program constructed at `count`; None where more is open than a plan can say.

    ``buffers``: names of the inputs and outputs that are open; ``most``: the largest count.
    """
    traced = _traced([stage.op for stage in program.stages], buffers, count)
    if traced is None:
        return None
    axes, every, inner = traced
    if any(axis and not _openable(stage, axis) for stage, axis in zip(program.stages, axes, strict=True)):
        return None
    most = min(most, max(_SPLIT_TO * count, 64)) if inner else most
    return Plan(program, count, tuple(axes), every, inner, most)


def _openable(stage: Stage, axis: str) -> bool:
    """Whether tiles of the axis may be guarded whatever its extent, and nothing but its loops depends on that."""
    if stage.guard(axis) not in ("none", *PLAIN_GUARDS) or stage.superstep is not None:
        return False
    inner = [loop for loop in stage.loops if loop.axis == axis and loop.kind not in (GRID, SERIAL)]
    if stage.store.on_lines and any(loop.kind == LANE for loop in inner):
        return False
    if inner and any(copy.window and axis in stage.load(copy).axes() for copy in stage.copies):
        return False
    return not (stage.store.vector > 1 and inner and stage.loops[-1] == inner[-1] and inner[-1].kind == UNROLL)


Traced = tuple[list[str], frozenset[str], dict[str, int]]


def _traced(ops: Iterable[TensorOp], buffers: frozenset[str], count: int) -> Traced | None:
    """The open axis of each tensor op ("": none), all tensors of which the first dimension is open, and temporaries of
    which another one is; None where the count is anywhere else."""
    every, axes, inner = set(buffers), [], dict[str, int]()
    for op in ops:
        found = {_row_axis(load.indices[0]) for load in _accesses(op) if load.buffer.name in every}
        for load in op.loads():
            if load.buffer.name not in inner:
                continue
            place = inner[load.buffer.name]
            if place >= len(load.indices):  # merged with what lies outside
                return None
            found.add(_row_axis(load.indices[place]))
        if not found:
            axes.append("")
            continue
        axis = next(iter(found))
        if len(found) > 1 or axis is None or not _stands_free(op, axis, every, count):
            return None
        axes.append(axis)
        if _row_axis(op.target[0]) == axis:
            every.add(op.output.name)
            continue
        within = [n for n, index in enumerate(op.target) if index == Index.axis(axis)]
        if op.output.kind != "temporary" or len(within) != 1 or op.output.shape[within[0]] != op.axis(axis).extent:
            return None
        inner[op.output.name] = within[0]
    return axes, frozenset(every), inner


def _accesses(op: TensorOp) -> Iterator[Load]:
    yield from op.loads()
    yield op.stored()


def _row_axis(index: Index) -> str | None:
    """The axis of which the index is the plain number, or the quotient: that which numbers rows."""
    if len(index.terms) != 1 or index.const:
        return None
    atom, coefficient = index.terms[0]
    if coefficient != 1:
        return None
    if isinstance(atom, FloorDiv):
        return _row_axis(atom.index)
    return atom if isinstance(atom, str) else None


def _stands_free(op: TensorOp, axis: str, every: set[str], count: int) -> bool:
    """The axis is as long as its tensors' rows, and no bound is of rows."""
    one = op.axis(axis)
    if one.role != "spatial" or one.extent % count:
        return False
    if any(axis in bound.index.axes() for bound in op.where):
        return False
    for load in _accesses(op):
        if load.buffer.name not in every:
            continue
        rows = one.extent if load.indices[0].is_affine else one.extent // load.indices[0].terms[0][0].divisor  # type: ignore[union-attr]
        if load.buffer.shape[0] != rows or any(bound.index == load.indices[0] for bound in load.guard):
            return False
    return True
