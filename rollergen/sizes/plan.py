"""Plans: programs of which an extent is open.

A program that was constructed at one count of rows (images of a batch, ...) is a program at every other count too: its
tiles stay, the outermost digit of the axis runs as often as the axis is long, and a guard keeps the last tile within
it.  Everything else is the same, so each size has a concrete program, for the model, the interpreter and the gate, and
all sizes have one kernel, which takes the count as an argument.

That holds where nothing but extents of axes and first dimensions of tensors depends on the count: it is then in no
offset and in no bound.  Temporaries that have rows further inside (partial sums of a split reduction) are as long as
the largest count's, so that their offsets do not depend on it either.

Of a chain of two contractions (attention) keys are open too, beside rows or alone: its blocks of keys run as often as
there are any.  Its tensors may have what is open further inside (heads outside), as each of its blocks has one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from rollergen.emit import Source, emit_open
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Value, transform
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.lower.open_axes import OpenAxes, open_dimension
from rollergen.program.check import check
from rollergen.program.model.counts import Counted
from rollergen.program.model.together import with_launches
from rollergen.program.rprogram import GRID, SERIAL, Accumulator, Loop, RProgram, Stage


@dataclass(frozen=True)
class Plan:
    """A program constructed at ``count``, for counts up to ``most``.

    ``axes``: for each stage its open axes, that of its results first; ``buffers``: tensors of which a dimension is a
    multiple of the count, by name, with the elements of the dimensions outside of it (see `open_dimension`); ``inner``:
    of temporaries of which another one is, which is then as long as for ``most``.
    """

    program: RProgram
    count: int
    axes: tuple[tuple[str, ...], ...]
    buffers: Mapping[str, int]
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

    @property
    def is_of_rows(self) -> bool:
        """Whether many counts have one price: of no chain, whose open axes may be several, or lie within tensors."""
        return all(stage.inner is None for stage in self.program.stages)

    def counted(self, counts: np.ndarray, device: Device) -> list[Counted | Stage]:
        """The stages of each call at these counts, side by side; those that do not depend on the count as they are.
        Of plans that are `is_of_rows`."""
        found: list[Counted | Stage] = []
        for stage, axes in zip(self.largest(device).stages, self.axes, strict=True):
            if stage.once:
                continue
            if not axes:
                found.append(stage)
                continue
            outermost = stage.of_axis(axes[0])[0][0]
            found.append(Counted(stage, axes[0], outermost, frozenset(self.buffers), self.most, counts))
        return found

    def source(self, low: int, device: Device) -> Source:
        """The kernels for all counts from `low` on."""
        high = self.most
        program = self._scaled(high, forced=True, device=device)
        extent = lambda number, axis: program.stages[number].op.axis(axis).extent
        opened = {
            number: OpenAxes({axis: extent(number, axis) // high for axis in axes}, (low, high), self.buffers)
            for number, axes in enumerate(self.axes)
            if axes
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
            _scaled_stage(stage, axes, scale, forced, device)
            for stage, axes in zip(self.program.stages, self.axes, strict=True)
        ]
        views = {b.name: b for stage in stages for b in (stage.op.output, *(load.buffer for load in stage.op.loads()))}
        whole = lambda b: views[b.name] if self._is_merged(b) else scale.buffer(b)
        program, buffers = self.program, lambda some: tuple(map(whole, some))
        return replace(
            program, inputs=buffers(program.inputs), outputs=buffers(program.outputs),
            temporaries=buffers(program.temporaries), stages=tuple(stages),
        )  # fmt: skip

    def _is_merged(self, buffer: Buffer) -> bool:
        """Whether the tensor's open dimension is one of the stages' views of it, but not of the tensor."""
        if buffer.name in self.inner:
            return True
        if buffer.name not in self.buffers:
            return False
        return buffer.shape[open_dimension(buffer.shape, self.buffers[buffer.name])] % self.count > 0


@dataclass(frozen=True)
class Scale:
    """From one count to another; the other fields as of a `Plan`."""

    before: int
    after: int
    buffers: Mapping[str, int]
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
        p = open_dimension(buffer.shape, self.buffers[buffer.name])
        return replace(buffer, shape=(*buffer.shape[:p], self.number(buffer.shape[p]), *buffer.shape[p + 1 :]))

    def value(self, value: Value) -> Value:
        change = lambda node: replace(node, buffer=self.buffer(node.buffer)) if isinstance(node, Load) else None
        return transform(value, change)

    def op(self, op: TensorOp, opened: Collection[str]) -> TensorOp:
        """The tensor op with these open axes."""
        axes = [replace(one, extent=self.number(one.extent)) if one.name in opened else one for one in op.axes]
        return replace(
            op,
            output=self.buffer(op.output),
            axes=tuple(axes),
            result=self.value(op.result),
            reductions=tuple([replace(one, bodies=tuple(map(self.value, one.bodies))) for one in op.reductions]),
        )


def _scaled_stage(stage: Stage, axes: tuple[str, ...], scale: Scale, forced: bool, device: Device) -> Stage:
    op = scale.op(stage.op, axes)
    kept = tuple(replace(row, value=scale.value(row.value)) for row in stage.kept_rows)
    for axis in axes:
        stage = _of_extent(with_outer_digit(stage, axis), axis, op.axis(axis).extent, forced, device)
    return replace(stage, op=op, kept_rows=kept)


def _of_extent(stage: Stage, axis: str, extent: int, forced: bool, device: Device) -> Stage:
    """The stage whose outermost loop of the axis runs as often as there are tiles; blocks of a chain's keys count
    them themselves, without a guard."""
    outermost = stage.of_axis(axis)[0][0]
    loops = [
        replace(loop, extent=-(-extent // loop.stride)) if p == outermost else loop
        for p, loop in enumerate(stage.loops)
    ]
    guards = [(name, kind) for name, kind in stage.guards if name != axis]
    if stage.op.axis(axis).role == "spatial" and _overhangs(loops, axis, extent, forced):
        own = stage.guard(axis)
        guards.append((axis, own if own != "none" else _guard(stage, device)))
    return replace(stage, loops=tuple(loops), guards=tuple(guards))


def _guard(stage: Stage, device: Device) -> str:
    """As assembly has it: contractions of a CPU test the whole register tile at once."""
    products = bool(stage.op.reductions) and not stage.op.of_role("row") and stage.inner is None
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


def accesses(op: TensorOp) -> Iterator[Load]:
    """What the tensor op reads, and what it writes."""
    yield from op.loads()
    yield op.stored()
