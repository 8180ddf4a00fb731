"""Programs as their features see them: of each the heaviest stage, its loops and its operands along these, as arrays.

Arrays have one row for each program.  Loops of more than one iteration are counted from the outermost; a program that
has fewer than others has loops of one iteration, over no axis, in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.model import Prediction
from rollergen.program.model.prediction import StagePrediction
from rollergen.program.rprogram import GRID, GROUP, LANE, PARALLEL, SERIAL, THREAD, UNROLL, RProgram, Stage
from rollergen.verify.features.table import ROLES, Operands, Table, roles_of, stacked, table_of

KINDS = {kind: number for number, kind in enumerate((GRID, GROUP, THREAD, SERIAL, UNROLL, LANE))}
NO_LOOP = -1
REDUCE = ROLES.index("reduce")


def slog(x: np.ndarray) -> np.ndarray:
    """``sign(x) log2(1 + |x|)``."""
    return np.copysign(np.log2(1 + np.abs(x)), x)


@dataclass(frozen=True)
class Batch:
    """``stages``: of each program the one that the model finds slowest, of those that run at every call, with its
    prediction in ``predicted`` and the loads that are its operands in ``tables``.

    ``extent``, ``stride``, ``kind`` (`KINDS`), ``axis``: of the loops, (programs, loops).  ``own``: of each
    program, (programs, ...); ``roles``: of its axes, as positions in `ROLES`, -1: it lacks the axis.
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
    roles: np.ndarray

    def __len__(self) -> int:
        return len(self.stages)

    @cached_property
    def role(self) -> np.ndarray:
        """Of each loop, as its position in `ROLES`; -1: no loop."""
        return self.roles[self._rows, self.axis]

    @cached_property
    def _rows(self) -> np.ndarray:
        """Numbers of the programs, (programs, 1)."""
        return np.arange(len(self))[:, None]

    def is_kind(self, *kinds: str) -> np.ndarray:
        """Mask of the loops of these kinds."""
        found = self.kind == KINDS[kinds[0]]
        for kind in kinds[1:]:
            found |= self.kind == KINDS[kind]
        return found

    def product(self, mask: np.ndarray) -> np.ndarray:
        """Product of the extents of the loops of a mask (programs, loops)."""
        return np.where(mask, self.extent, 1.0).prod(axis=1)

    @cached_property
    def by_kind(self) -> np.ndarray:
        """Product of the extents of the loops of each kind, (`KINDS`, programs)."""
        kinds = np.arange(len(KINDS))[:, None]
        return np.where(self.kind.T[:, None] == kinds, self.extent.T[:, None], 1.0).prod(axis=0)

    @property
    def blocks(self) -> np.ndarray:
        return self.by_kind[KINDS[GRID]]

    @cached_property
    def threads(self) -> np.ndarray:
        """Of a block."""
        return self.by_kind[[KINDS[kind] for kind in PARALLEL]].prod(axis=0)

    @cached_property
    def seconds(self) -> np.ndarray:
        """That the model predicts."""
        return np.array([float(one.seconds) for one in self.predictions])

    @cached_property
    def is_step(self) -> np.ndarray:
        """Mask of the outermost serial loop of a reduced axis: it steps from one block tile to the next."""
        steps = self.is_kind(SERIAL) & (self.role == REDUCE)
        return steps & (np.cumsum(steps, axis=1) == 1)

    @cached_property
    def moves(self) -> np.ndarray:
        """Whether a loop decides which element of an operand is meant, (programs, operands, loops)."""
        return self.along(self.own.touches)

    def along(self, of_axes: np.ndarray) -> np.ndarray:
        """What operands have by axis, (programs, operands, axes), by loop, (programs, operands, loops)."""
        operands = np.arange(of_axes.shape[1])[:, None]
        return of_axes[self._rows[:, None], operands, self.axis[:, None, :]]

    @cached_property
    def _spans(self) -> np.ndarray:
        """Elements along each axis, (axes, programs, levels): covered by the loops at or inside each loop, held by a
        thread at once, and covered by a block between two steps of its outermost serial reduce loop.

        Axes stand in front: numpy multiplies long rows together in a fraction of the time that many short ones take."""
        axes = np.arange(self.own.extents.shape[1])
        extents = np.where(self.axis.T[:, None] == axes[:, None], self.extent.T[:, None], 1.0).transpose(1, 2, 0)
        inside = np.multiply.accumulate(extents[:, :, ::-1], axis=2)[:, :, ::-1]
        thread = np.where(self.is_kind(UNROLL, LANE), extents, 1.0).prod(axis=2)
        block = np.where(self.is_kind(GRID) | self.is_step, 1.0, extents).prod(axis=2)
        return np.concatenate([inside, thread[:, :, None], block[:, :, None]], axis=2)

    @cached_property
    def _boxes(self) -> np.ndarray:
        """Points of a tile over the axes of each operand, (programs, operands, levels)."""
        touches = self.own.touches.transpose(2, 0, 1)
        return np.where(touches[:, :, :, None], self._spans[:, :, None], 1.0).prod(axis=0)

    @cached_property
    def _regions(self) -> np.ndarray:
        """Elements of each operand that a tile touches, (programs, operands, levels); divisions and remainders count
        whole, and no dimension has more than the tensor's."""
        spans = self._spans
        _, n, levels = spans.shape
        parts = [spans, np.ones((1, n, levels))]
        if self.own.compound.shape[1]:
            compound = self.own.compound.transpose(2, 1, 0)
            parts.insert(1, np.where(compound[:, :, :, None], spans[:, None], 1.0).prod(axis=0))
        steps = np.concatenate(parts)[self.own.atom, self._rows[:, :, None, None]] - 1
        reach = 1 + (np.minimum(self.own.weight[..., None], steps + 1) * steps).sum(axis=3)
        whole = np.minimum(reach, self.own.limit[..., None]).prod(axis=2)
        return np.minimum(whole, self._boxes)

    @property
    def count(self) -> np.ndarray:
        """At each loop the product of the extents of those at or inside it that move through the operand,
        (programs, operands, loops)."""
        return self._boxes[:, :, :-2]

    @cached_property
    def reuse(self) -> np.ndarray:
        """As `count`, of the others."""
        return self.inside[:, None] / self.count

    @cached_property
    def inside(self) -> np.ndarray:
        """At each loop the product of the extents of all at or inside it, (programs, loops)."""
        return np.multiply.accumulate(self.extent[:, ::-1], axis=1)[:, ::-1]

    @cached_property
    def topdown(self) -> np.ndarray:
        """At each loop the product of the extents of all at or outside it."""
        return np.multiply.accumulate(self.extent, axis=1)

    @property
    def unique(self) -> np.ndarray:
        """At each loop the elements that those at or inside it touch, (programs, operands, loops)."""
        return self._regions[:, :, :-2]

    @property
    def thread_region(self) -> np.ndarray:
        """Elements of each operand that a thread holds at once."""
        return self._regions[:, :, -2]

    @property
    def block_region(self) -> np.ndarray:
        """Elements of each operand that a block goes through between two steps."""
        return self._regions[:, :, -1]

    @property
    def thread_box(self) -> np.ndarray:
        return self._boxes[:, :, -2]

    @property
    def block_box(self) -> np.ndarray:
        return self._boxes[:, :, -1]

    @cached_property
    def contiguous(self) -> np.ndarray:
        """Adjacent elements of each operand in one block tile."""
        return self._spans[self.own.contiguous, self._rows, -1]


def batch_of(programs: Sequence[RProgram], device: Device, predictions: Sequence[Prediction]) -> Batch:
    """`predictions`: of each program on `device`."""
    heaviest = [_heaviest(p, said) for p, said in zip(programs, predictions, strict=True)]
    stages = [stage for stage, _ in heaviest]
    tables: list[Table] = []
    roles: list[tuple[int, ...]] = []
    known: dict[tuple[int, int, str | None], int] = {}
    numbers = []
    for stage in stages:
        lane = _lane(stage)
        key = (id(stage.definition), id(stage.residents), lane)
        if key not in known:
            known[key] = len(tables)
            tables.append(table_of(stage))
            roles.append(roles_of(stage.definition, lane))
        numbers.append(known[key])
    which = np.array(numbers)
    found, own = stacked(tuple(tables), tuple(roles))
    nowhere = own.extents.shape[1] - 1
    of_stages = [tables[at] for at in numbers]
    loops = _loops(stages, of_stages, nowhere)
    return Batch(
        device, programs, predictions, stages, [said for _, said in heaviest], of_stages,
        loops[..., 0].astype(float), loops[..., 1].astype(float), loops[..., 2], loops[..., 3], own.of(which),
        found[which],
    )  # fmt: skip


def _lane(stage: Stage) -> str | None:
    """The axis that neighbouring lanes or threads walk."""
    for loop in reversed(stage.loops):
        if loop.kind == LANE or loop.kind in PARALLEL:
            return loop.axis
    return None


def _heaviest(program: RProgram, prediction: Prediction) -> tuple[Stage, StagePrediction]:
    if len(program.stages) == 1:
        return program.stages[0], prediction.stages[0]
    pairs = [(s, p) for s, p in zip(program.stages, prediction.stages, strict=True) if not s.once]
    return pairs[0] if len(pairs) == 1 else max(pairs, key=lambda pair: float(pair[1].seconds))


def _loops(stages: Sequence[Stage], tables: Sequence[Table], nowhere: int) -> np.ndarray:
    """(programs, loops, 4): extent, stride, kind, axis; at least one loop, so that there is a level."""
    figures: list[int] = []
    ends = []
    for stage, table in zip(stages, tables, strict=True):
        axes = table.axes
        for x in stage.loops:
            if x.extent > 1:
                figures += x.extent, x.stride, KINDS[x.kind], axes[x.axis]
        ends.append(len(figures) // 4)
    counts = np.diff(ends, prepend=0)
    most = max(1, int(counts.max()))
    found = np.empty((4, most, len(stages)), dtype=np.int64).T
    found[:] = (1, 0, NO_LOOP, nowhere)
    found[np.arange(most) >= most - counts[:, None]] = np.array(figures, dtype=np.int64).reshape(-1, 4)
    return found
