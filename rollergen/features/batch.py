"""Programs as their features see them: of each the heaviest stage, its loops and its operands along these, as arrays.

The last dimension of arrays are the programs: numpy takes long rows of neighbours in a fraction of the time that many
short ones take.  Loops of more than one iteration are counted from the outermost; a program that has fewer than others
has loops of one iteration, over no axis, in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rollergen.features.arrays import floats, integers
from rollergen.features.table import ROLES, Operands, Table, roles_of, stacked, table_of
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model import Prediction
from rollergen.program.model.price import StagePrediction
from rollergen.program.rprogram import GRID, GROUP, LANE, PARALLEL, SERIAL, THREAD, UNROLL, Loop, RProgram, Stage

KINDS = {kind: number for number, kind in enumerate((GRID, GROUP, THREAD, SERIAL, UNROLL, LANE))}
"""Those behind the grid are of a block, those from unroll on of what a thread holds at once."""
NO_LOOP = len(KINDS)
REDUCE = ROLES.index("reduce")

_NUMBERS = {**KINDS, "": NO_LOOP}
_NO_LOOP = Loop("", 1, 0, "")
_EACH_KIND = np.arange(len(KINDS), dtype=np.uint8)[:, None, None]
_EACH_ROLE = np.arange(len(ROLES))[:, None, None]


@dataclass(frozen=True)
class Batch:
    """``stages``: of each program the one that the model finds slowest, of those that run at every call, with its
    prediction in ``predicted`` and the loads that are its operands in ``tables``.

    ``extent``, ``stride``, ``kind`` (`KINDS`), ``axis``: of the loops, (loops, programs).  ``own``: of each
    program, (..., programs).
    """

    device: Device
    programs: Sequence[RProgram]
    predictions: Sequence[Prediction]
    stages: Sequence[Stage]
    predicted: Sequence[StagePrediction]
    tables: Sequence[Table]
    extent: np.ndarray
    stride: np.ndarray
    kind: np.ndarray
    axis: np.ndarray
    own: Operands

    def __len__(self) -> int:
        return len(self.stages)

    @cached_property
    def columns(self) -> np.ndarray:
        """Numbers of the programs."""
        return np.arange(len(self))

    @cached_property
    def _places(self) -> np.ndarray:
        """Where each loop's axis lies in what each axis of each program has, laid flat, (loops, programs)."""
        return self.axis * len(self) + self.columns

    @cached_property
    def role(self) -> np.ndarray:
        """Of each loop, as its position in `ROLES`; -1: no loop."""
        return self.own.roles.reshape(-1).take(self._places)

    @cached_property
    def has_role(self) -> np.ndarray:
        """Mask of the axes of each role, (`ROLES`, axes, programs)."""
        return self.own.roles == _EACH_ROLE

    @cached_property
    def of_kind(self) -> np.ndarray:
        """Mask of the loops of each kind, (`KINDS`, loops, programs)."""
        return self.kind == _EACH_KIND

    @cached_property
    def has_loops(self) -> np.ndarray:
        """Of each program."""
        return self.kind[-1] != NO_LOOP

    @cached_property
    def there(self) -> np.ndarray:
        """Whether the operand is, (operands, programs)."""
        return self.own.itemsize > 0

    @cached_property
    def all_there(self) -> bool:
        """Every program has loops and all operands."""
        return bool(self.has_loops.all() and self.there.all())

    @cached_property
    def extents(self) -> np.ndarray:
        """Of the loops over each axis, of the others 1, (axes, loops, programs)."""
        return np.where(self.axis == np.arange(len(self.own.extents))[:, None, None], self.extent, 1.0)

    @cached_property
    def by_axis_and_kind(self) -> np.ndarray:
        """Product of the extents of the loops over each axis of each kind, (axes, `KINDS`, programs)."""
        return np.multiply.reduce(np.where(self.of_kind, self.extents[:, None], 1.0), axis=2)

    @cached_property
    def by_role_and_kind(self) -> np.ndarray:
        """As `by_axis_and_kind` over the axes of each role, (`ROLES`, `KINDS`, programs)."""
        return np.multiply.reduce(np.where(self.has_role[:, :, None], self.by_axis_and_kind, 1.0), axis=1)

    @cached_property
    def by_kind(self) -> np.ndarray:
        """Product of the extents of the loops of each kind, (`KINDS`, programs)."""
        return np.multiply.reduce(self.by_axis_and_kind, axis=0)

    @property
    def blocks(self) -> np.ndarray:
        return self.by_kind[KINDS[GRID]]

    @cached_property
    def threads(self) -> np.ndarray:
        """Of a block."""
        return self.by_kind[KINDS[GROUP]] * self.by_kind[KINDS[THREAD]]

    @cached_property
    def seconds(self) -> np.ndarray:
        """That the model predicts."""
        return floats([one.seconds for one in self.predictions])

    @cached_property
    def _step(self) -> np.ndarray:
        """Position of the outermost serial loop of a reduced axis, which steps from one block tile to the next; where
        there is none, 0."""
        return (self.of_kind[KINDS[SERIAL]] & (self.role == REDUCE)).argmax(axis=0)

    @cached_property
    def steps(self) -> np.ndarray:
        """Iterations of that loop; 1: there is none."""
        there = (self.kind[self._step, self.columns] == KINDS[SERIAL]) & (self.role[self._step, self.columns] == REDUCE)
        return np.where(there, self.extent[self._step, self.columns], 1.0)

    @cached_property
    def moves(self) -> np.ndarray:
        """Whether a loop decides which element of an operand is meant, (operands, loops, programs)."""
        return self.along(self.own.touches)

    def along(self, of_axes: np.ndarray) -> np.ndarray:
        """What operands have by axis, (operands, axes, programs), by loop, (operands, loops, programs)."""
        return of_axes.reshape(len(of_axes), -1).take(self._places, axis=1)

    @cached_property
    def _spans(self) -> np.ndarray:
        """Elements along each axis, behind these along each compound, and last 1, (.., levels, programs): covered by
        the loops at or inside each loop, held by a thread at once, and covered by a block between two steps of its
        outermost serial reduce loop."""
        axes, loops = len(self.own.extents), len(self.extent)
        found = np.empty((axes + len(self.own.compound) + 1, loops + 2, len(self)))
        own = found[:axes]
        np.multiply.accumulate(self.extents[:, ::-1], axis=1, out=own[:, :loops][:, ::-1])
        np.multiply.reduce(self.by_axis_and_kind[:, KINDS[UNROLL] :], axis=1, out=own[:, -2])
        np.multiply.reduce(self.by_axis_and_kind[:, KINDS[GROUP] :], axis=1, out=own[:, -1])
        own[self.axis[self._step, self.columns], -1, self.columns] /= self.steps
        if len(self.own.compound):
            within = self.own.compound[:, :, None]
            np.multiply.reduce(np.where(within, own, 1.0), axis=1, out=found[axes:-1])
        found[-1] = 1.0
        return found

    @cached_property
    def _boxes(self) -> np.ndarray:
        """Points of a tile over the axes of each operand, (operands, levels, programs)."""
        own = self._spans[: len(self.own.extents)]
        return np.multiply.reduce(np.where(self.own.touches[:, :, None], own, 1.0), axis=1)

    @cached_property
    def _regions(self) -> np.ndarray:
        """Elements of each operand that a tile touches, (operands, levels, programs); divisions and remainders count
        whole, and no dimension has more than the tensor's."""
        spans = self._spans
        within = np.arange(spans[0].size).reshape(spans[0].shape)
        reach = spans.reshape(-1).take(self.own.atom[:, :, :, None] * within.size + within)
        if reach.shape[2] == 1:  # of weight 1
            whole = reach[:, :, 0]
        else:
            steps = reach - 1
            whole = 1 + (np.minimum(self.own.weight[:, :, :, None], reach) * steps).sum(axis=2)
        return np.minimum(np.multiply.reduce(np.minimum(whole, self.own.limit[:, :, None]), axis=1), self._boxes)

    @property
    def count(self) -> np.ndarray:
        """At each loop the product of the extents of those at or inside it that move through the operand,
        (operands, loops, programs)."""
        return self._boxes[:, :-2]

    @cached_property
    def reuse(self) -> np.ndarray:
        """As `count`, of the others."""
        return self.inside / self.count

    @cached_property
    def inside(self) -> np.ndarray:
        """At each loop the product of the extents of all at or inside it, (loops, programs)."""
        return np.multiply.accumulate(self.extent[::-1], axis=0)[::-1]

    @property
    def unique(self) -> np.ndarray:
        """At each loop the elements that those at or inside it touch, (operands, loops, programs)."""
        return self._regions[:, :-2]

    @property
    def thread_region(self) -> np.ndarray:
        """Elements of each operand that a thread holds at once."""
        return self._regions[:, -2]

    @property
    def block_region(self) -> np.ndarray:
        """Elements of each operand that a block goes through between two steps."""
        return self._regions[:, -1]

    @property
    def thread_box(self) -> np.ndarray:
        return self._boxes[:, -2]

    @property
    def block_box(self) -> np.ndarray:
        return self._boxes[:, -1]

    @cached_property
    def contiguous(self) -> np.ndarray:
        """Adjacent elements of each operand in one block tile."""
        return self._spans[self.own.contiguous, -1, self.columns]


def batch_of(programs: Sequence[RProgram], device: Device, predictions: Sequence[Prediction]) -> Batch:
    """`predictions`: of each program on `device`."""
    stages: list[Stage] = []
    predicted: list[StagePrediction] = []
    tables: list[Table] = []
    roles: list[tuple[int, ...]] = []
    known: dict[tuple[int, int, str | None], int] = {}
    numbers = []
    for program, said in zip(programs, predictions, strict=True):
        at = _heaviest(program.stages, said.stages) if len(program.stages) > 1 else 0
        stage = program.stages[at]
        last = stage.loops[-1] if stage.loops else _NO_LOOP
        lane = last.axis if last.kind == LANE else _walked(stage)
        key = (id(stage.op), id(stage.kept_rows), lane)
        number = known.get(key)
        if number is None:
            number = known[key] = len(tables)
            tables.append(table_of(stage))
            roles.append(roles_of(stage.op, lane))
        stages.append(stage)
        predicted.append(said.stages[at])
        numbers.append(number)
    own = stacked(tuple(tables), tuple(roles)).of(integers(numbers))
    of_stages = [tables[at] for at in numbers]
    extent, stride, kind, axis = _loops(stages, of_stages, nowhere=len(own.extents) - 1)
    return Batch(
        device, programs, predictions, stages, predicted, of_stages,
        extent, stride, kind, axis, own,
    )  # fmt: skip


def _walked(stage: Stage) -> str | None:
    """The axis that neighbouring lanes or threads walk."""
    for loop in reversed(stage.loops):
        if loop.kind == LANE or loop.kind in PARALLEL:
            return loop.axis
    return None


def _heaviest(stages: Sequence[Stage], predicted: Sequence[StagePrediction]) -> int:
    """Which stage is the slowest of those that run at every call."""
    found, most = 0, -1.0
    for at, stage in enumerate(stages):
        if not stage.once:
            seconds = predicted[at].seconds
            if seconds > most:
                found, most = at, seconds
    return found


def _loops(
    stages: Sequence[Stage], tables: Sequence[Table], nowhere: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(extent, stride, kind, axis) of the loops, (loops, programs); at least one loop, so that there is a level."""
    own = [[loop for loop in stage.loops if loop.extent > 1] for stage in stages]
    most = max(1, *map(len, own))
    loops: list[Loop] = []
    axes: list[int] = []
    for found, table in zip(own, tables, strict=True):
        if missing := most - len(found):
            loops += [_NO_LOOP] * missing
            axes += [nowhere] * missing
        loops += found
        position = table.axes
        axes += [position[loop.axis] for loop in found]
    kind = np.frombuffer(bytes([_NUMBERS[loop.kind] for loop in loops]), dtype=np.uint8)
    axis = np.frombuffer(bytes(axes), dtype=np.uint8)
    shape = (len(stages), most)
    return (
        integers([loop.extent for loop in loops]).reshape(shape).T.astype(float, order="C"),
        integers([loop.stride for loop in loops]).reshape(shape).T.astype(float, order="C"),
        np.ascontiguousarray(kind.reshape(shape).T), axis.reshape(shape).T.astype(np.intp, order="C"),
    )  # fmt: skip
