"""Facts about one stage that hold everywhere in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from math import prod

from rollergen.expr.index import Bounds, Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.lower.expressions import Inside, Pointer
from rollergen.lower.ir import Names
from rollergen.lower.open_axes import OpenAxes, outsides
from rollergen.program.boxes import producer_threads
from rollergen.program.loops import OVERLAP, scan_step, tile_of
from rollergen.program.matrix import matrix_instruction, trails
from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL, Copy, Loop, Stage


@dataclass(frozen=True, slots=True)
class Lane:
    """A symbol for the position within a vector, and the vector's width."""

    variable: str
    width: int


@dataclass(frozen=True)
class Nest:
    """Facts about one stage that hold everywhere in it.

    ``lead``: the variable that says how many elements before 0 the loops of the lanes' axis start (see
    `Store.on_lines`), if they do.  ``exchanges``: the language lets threads of one execution width exchange
    registers.  ``open``: the axes whose extents follow from an argument of the kernel, named ``argument``; the extents
    of the stage are then those of the largest argument.  ``begins``: integers of the kernel by what they are times the
    argument (`OpenAxes.outside`).
    """

    stage: Stage
    device: Device
    variables: tuple[str, ...]
    parameters: Mapping[str, Pointer]
    lead: str | None = None
    exchanges: bool = False
    open: OpenAxes | None = None
    argument: str = ""
    begins: Mapping[Index, str] = field(default_factory=dict)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        return self.stage.loops

    @cached_property
    def op(self) -> TensorOp:
        return self.stage.op

    @cached_property
    def registers(self) -> str:
        """Name of the layer that copies into registers go to."""
        return self.device.layers[0].name

    @cached_property
    def _loads(self) -> tuple[Load, ...]:
        return self.op.loads()

    @cached_property
    def loads(self) -> dict[int, Load]:
        return dict(enumerate(self._loads))

    @cached_property
    def _numbers(self) -> dict[Load, int]:
        return {load: number for number, load in enumerate(self._loads)}

    @cached_property
    def digits_of(self) -> dict[str, list[tuple[int, int]]]:
        """For each axis that has loops, their (position, stride)."""
        found: dict[str, list[tuple[int, int]]] = {}
        for p, loop in enumerate(self.loops):
            found.setdefault(loop.axis, []).append((p, loop.stride))
        return found

    @cached_property
    def rising(self) -> dict[str, list[tuple[int, Loop]]]:
        """For each axis that has loops, their (position, loop) by rising stride."""
        found = {axis: [(p, self.loops[p]) for p, _ in own] for axis, own in self.digits_of.items()}
        for own in found.values():
            if len(own) > 1:
                own.sort(key=lambda item: -item[1].stride)
                own.reverse()
        return found

    @cached_property
    def deepest(self) -> dict[int, int]:
        """The innermost depth at which each load (its number) that has copies is copied."""
        found: dict[int, int] = {}
        for copy in self.stage.copies:
            found[copy.load] = max(copy.at_loop, found.get(copy.load, 0))
        return found

    @cached_property
    def barriers_within(self) -> int:
        """The depth below which there are no barriers: of copies that threads share, and of reductions that they do."""
        depths = [copy.at_loop for copy in self.stage.copies if copy.to_layer != self.registers]
        if self.stage.accumulator.combine != "none":
            depths.append(max(self.tile_depth, scan_step(self.stage)) if self.op.scans else self.tile_depth)
        return max(depths, default=0)

    @cached_property
    def copies(self) -> dict[int, list[Copy]]:
        """The copies made at each depth; none lies outside the thread loops."""
        found: dict[int, list[Copy]] = {}
        for copy in self.stage.copies:
            found.setdefault(max(copy.at_loop, self.first_inner), []).append(copy)
        return found

    def load(self, copy: Copy) -> Load:
        """The load that the copy serves."""
        return self._loads[copy.load]

    @cached_property
    def grid(self) -> tuple[tuple[int, Loop], ...]:
        """The loops over blocks, as (position, loop)."""
        return self.stage.of_kind(GRID)

    @cached_property
    def parallel(self) -> tuple[tuple[int, Loop], ...]:
        """The loops over a block's threads, as (position, loop)."""
        return self.stage.of_kind(*PARALLEL)

    @cached_property
    def blocks(self) -> int:
        return prod([loop.extent for _, loop in self.grid])

    @property
    def launched(self) -> int:
        """Blocks of a persistent grid (see `BlockOrder`); 0: it is none."""
        return self.stage.block_order.launched

    @cached_property
    def threads(self) -> int:
        return prod([loop.extent for _, loop in self.parallel])

    @property
    def launched_threads(self) -> int:
        """Threads of a block, those that only start copies among them."""
        return self.threads + producer_threads(self.stage, self.device.execution_width)

    @cached_property
    def instruction(self) -> Instruction | None:
        """The stage's matrix instruction, if it has one."""
        return matrix_instruction(self.stage, self.device)

    @property
    def products(self) -> bool:
        """Whether asynchronous products read what threads write to local memory."""
        return self.instruction is not None and self.instruction.is_asynchronous

    @cached_property
    def boxes(self) -> tuple[Copy, ...]:
        """The copies that a copy engine makes."""
        return tuple([copy for copy in self.stage.copies if copy.boxes])

    @cached_property
    def trails(self) -> bool:
        """Whether the products of one iteration may run in the next (see `matrix.trails`)."""
        return trails(self.stage, self.device)

    def number(self, load: Load) -> int:
        """The load's place among the tensor op's; equal loads have the same."""
        return self._numbers[load]

    def numbered(self, loads: Iterable[Load]) -> dict[int, Load]:
        """Distinct loads, by number."""
        return {self.number(load): load for load in loads}

    @cached_property
    def extents(self) -> dict[str, int]:
        return {axis.name: axis.extent for axis in self.op.axes}

    def is_open(self, axis: str) -> bool:
        """Whether the extent of the axis is known at the call only."""
        return self.open is not None and axis in self.open.factors

    def overhangs(self, axis: str, size: int) -> bool:
        """Whether tiles of that size may reach beyond the end of the axis."""
        return self.is_open(axis) or self.extents[axis] % size > 0

    def below(self, index: Index, axis: str) -> Inside:
        """That the index is below the extent of the axis."""
        if not self.is_open(axis):
            return Inside(index, None, self.extents[axis])
        return Inside(index - self.size(axis), None, 0)

    def offset(self, load: Load) -> Index:
        """Row-major number of the element in its buffer, as it is at the call."""
        outside = self.open.outside(load) if self.open and self.begins else None
        if outside is None or self.open is None:
            return load.offset()
        return self.open.offset(load, self.begins[outside])

    def size(self, axis: str) -> Index:
        """The extent of the axis, as a number or of the argument."""
        if self.open is None or axis not in self.open.factors:
            return Index((), self.extents[axis])
        return Index.axis(self.argument) * self.open.factors[axis]

    def missing(self, buffer: Buffer) -> Index:
        """How many elements fewer the buffer has at the call than in the program."""
        if self.open is None or buffer.name not in self.open.buffers:
            return Index()
        most = self.open.bounds[1]
        return (Index.axis(self.argument) * -1 + most) * (buffer.elements // most)

    @cached_property
    def exact(self) -> dict[str, Bounds]:
        """Bounds of every axis, without any overhang, and of the argument that is an extent."""
        own = {axis: (0, extent - 1) for axis, extent in self.extents.items()}
        return own if self.open is None else {**own, self.argument: self.open.bounds}

    @cached_property
    def roles(self) -> dict[str, str]:
        return {axis.name: axis.role for axis in self.op.axes}

    @cached_property
    def spans(self) -> dict[str, int]:
        """Points that the loops of each axis visit, tail included."""
        spans = dict.fromkeys(self.extents, 1)
        for loop in self.loops:
            spans[loop.axis] *= loop.extent
        for axis in self.open.factors if self.open else ():  # whatever the extent, its last tile may overhang
            strides = [loop.stride for loop in self.loops if loop.axis == axis]
            spans[axis] = self.extents[axis] + max(strides, default=1) - 1
        return {axis: max(span, self.extents[axis]) for axis, span in spans.items()}

    @cached_property
    def guards(self) -> dict[str, str]:
        return dict(self.stage.guards)

    @cached_property
    def overlapping(self) -> dict[str, tuple[int, int]]:
        """Axes whose last tile begins earlier: (depth inside all loops that say where a tile begins, points of the
        tile)."""
        own = [axis for axis, kind in self.stage.guards if kind == OVERLAP]
        found = {axis: tile_of(self.stage, axis) for axis in own}
        return {axis: (max(depth, self.first_inner), side) for axis, (depth, side) in found.items()}

    @cached_property
    def asks_at(self) -> int:
        """The depth, inside all serial loops, at which lines that are written later are prefetched; -1: none are, or
        rows (`phases`)."""
        if not self.stage.store.prefetch_distance or self.op.reductions:
            return -1
        return max(p for p, x in enumerate(self.loops) if x.kind == SERIAL) + 1

    @cached_property
    def first_inner(self) -> int:
        """Position of the first loop that is neither of the grid nor of threads."""
        return len(self.grid) + len(self.parallel)

    @cached_property
    def tile_depth(self) -> int:
        """Depth at which accumulators are made (never outside the thread loops, nor inside the lanes)."""
        return min(max(self.stage.accumulator.at_loop, self.first_inner), self.innermost)

    @cached_property
    def first_block(self) -> int:
        """Position of the outermost serial loop whose terms are added up in blocks along the lanes' axis; -1: none."""
        if not self.stage.accumulator.flush:
            return -1
        own = [p for p, x in enumerate(self.loops) if x.kind == SERIAL and x.axis == self.lane_axis]
        return next((p for p in own if p >= self.tile_depth), -1)

    @cached_property
    def innermost(self) -> int:
        """Depth inside all loops but the lane loop."""
        return len(self.loops) - (1 if self.loops and self.loops[-1].kind == LANE else 0)

    @cached_property
    def lane_position(self) -> int | None:
        lanes = [p for p, loop in enumerate(self.loops) if loop.kind == LANE]
        return lanes[0] if lanes else None

    @cached_property
    def lane(self) -> Lane | None:
        """The lane loop as a vector's lanes, if there is one."""
        p = self.lane_position
        return None if p is None else Lane(self.variables[p], self.loops[p].extent)

    @cached_property
    def lane_axis(self) -> str | None:
        return None if self.lane_position is None else self.loops[self.lane_position].axis

    def start(self, axis: str) -> Index:
        """The index at which the loops of the axis start."""
        return Index.axis(self.lead) * -1 if self.lead is not None and axis == self.lane_axis else Index()

    def positions(self, *roles: str, after: int = 0) -> tuple[int, ...]:
        """Loops of axes of these roles from position `after` on, lane loops not counted."""
        return tuple([p for p, role in self._tile_loops if p >= after and role in roles])

    @cached_property
    def _tile_loops(self) -> list[tuple[int, str]]:
        """(position, its axis' role) of the serial and unrolled loops."""
        own = self.roles
        return [(p, own[loop.axis]) for p, loop in enumerate(self.loops) if loop.kind in (SERIAL, UNROLL)]


def make_nest(
    stage: Stage,
    device: Device,
    parameters: Mapping[str, Pointer],
    names: Names,
    exchanges: bool = False,
    opened: OpenAxes | None = None,
) -> Nest:
    """The nest of `stage`, with a variable for every loop: the axis' name and the loop's rank on it."""
    seen: dict[str, int] = {}
    variables = []
    for loop in stage.loops:
        rank = seen.get(loop.axis, 0)
        seen[loop.axis] = rank + 1
        variables.append(names.fresh("lane" if loop.kind == LANE else f"{loop.axis}{rank}"))
    lead = names.fresh("lead") if stage.store.on_lines else None
    argument, begins = "", dict[Index, str]()
    if opened:
        argument = _argument(stage, opened, names)
        begins = {index: names.fresh("begin") for index in outsides(opened, (*stage.op.loads(), stage.op.stored()))}
    return Nest(stage, device, tuple(variables), parameters, lead, exchanges, opened, argument, begins)


def _argument(stage: Stage, opened: OpenAxes, names: Names) -> str:
    """A name for the argument that is none of an axis: bounds are of axes and of the argument."""
    taken = {axis.name for axis in stage.op.axes}
    axis, factor = next(iter(opened.factors.items()))
    while (name := names.fresh(f"{axis}_{'extent' if factor == 1 else 'parts'}")) in taken:
        pass
    return name
