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
        return np.take_along_axis(self.roles, self.axis, axis=1)

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
    def blocks(self) -> np.ndarray:
        return self.product(self.is_kind(GRID))

    @cached_property
    def threads(self) -> np.ndarray:
        """Of a block."""
        return self.product(self.is_kind(*PARALLEL))

    @cached_property
    def is_step(self) -> np.ndarray:
        """Mask of the outermost serial loop of a reduced axis: it steps from one block tile to the next."""
        steps = self.is_kind(SERIAL) & (self.role == REDUCE)
        return steps & (np.cumsum(steps, axis=1) == 1)

    @cached_property
    def moves(self) -> np.ndarray:
        """Whether a loop decides which element of an operand is meant, (programs, operands, loops)."""
        return np.take_along_axis(self.own.touches, self.axis[:, None, :], axis=2)

    @cached_property
    def _spans(self) -> np.ndarray:
        """Elements along each axis, (programs, levels, axes): covered by the loops at or inside each loop, held by a
        thread at once, and covered by a block between two steps of its outermost serial reduce loop."""
        along = self.axis[:, :, None] == np.arange(self.own.extents.shape[1])
        extents = np.where(along, self.extent[:, :, None], 1.0)
        inside = np.multiply.accumulate(extents[:, ::-1], axis=1)[:, ::-1]
        thread = np.where(self.is_kind(UNROLL, LANE)[:, :, None], extents, 1.0).prod(axis=1)
        block = np.where((self.is_kind(GRID) | self.is_step)[:, :, None], 1.0, extents).prod(axis=1)
        return np.concatenate([inside, thread[:, None], block[:, None]], axis=1)

    @cached_property
    def _boxes(self) -> np.ndarray:
        """Points of a tile over the axes of each operand, (programs, operands, levels)."""
        return np.where(self.own.touches[:, :, None], self._spans[:, None], 1.0).prod(axis=3)

    @cached_property
    def _regions(self) -> np.ndarray:
        """Elements of each operand that a tile touches, (programs, operands, levels); divisions and remainders count
        whole, and no dimension has more than the tensor's."""
        spans = self._spans
        n, levels, _ = spans.shape
        compound = self.own.compound
        parts = [spans, np.ones((n, levels, 1))]
        if compound.shape[1]:
            parts.insert(1, np.where(compound[:, None], spans[:, :, None], 1.0).prod(axis=3))
        _, operands, dims, terms = self.own.atom.shape
        chosen = np.take_along_axis(np.concatenate(parts, axis=2), self.own.atom.reshape(n, 1, -1), axis=2)
        steps = chosen.reshape(n, levels, operands, dims, terms) - 1
        reach = 1 + (np.minimum(self.own.weight[:, None], steps + 1) * steps).sum(axis=4)
        whole = np.minimum(reach, self.own.limit[:, None]).prod(axis=3)
        return np.minimum(whole.transpose(0, 2, 1), self._boxes)

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
        return np.take_along_axis(self._spans[:, -1], self.own.contiguous, axis=1)


def batch_of(programs: Sequence[RProgram], device: Device, predictions: Sequence[Prediction]) -> Batch:
    """`predictions`: of each program on `device`."""
    heaviest = [_heaviest(p, said) for p, said in zip(programs, predictions, strict=True)]
    stages = [stage for stage, _ in heaviest]
    tables: list[Table] = []
    roles: list[tuple[int, ...]] = []
    known: dict[tuple[int, int, str | None], int] = {}
    which = []
    for stage in stages:
        lane = next((x.axis for x in reversed(stage.loops) if x.kind == LANE or x.kind in PARALLEL), None)
        key = (id(stage.definition), id(stage.residents), lane)
        if key not in known:
            known[key] = len(tables)
            tables.append(table_of(stage))
            roles.append(roles_of(stage.definition, lane))
        which.append(known[key])
    found, own = stacked(tables, roles)
    nowhere = own.extents.shape[1] - 1
    loops = _loops(stages, [tables[at] for at in which], nowhere)
    return Batch(
        device, programs, predictions, stages, [said for _, said in heaviest], [tables[at] for at in which],
        loops[..., 0].astype(float), loops[..., 1].astype(float), loops[..., 2], loops[..., 3], own.of(which),
        found[which],
    )  # fmt: skip


def _heaviest(program: RProgram, prediction: Prediction) -> tuple[Stage, StagePrediction]:
    pairs = [(s, p) for s, p in zip(program.stages, prediction.stages, strict=True) if not s.once]
    return pairs[0] if len(pairs) == 1 else max(pairs, key=lambda pair: float(pair[1].seconds))


def _loops(stages: Sequence[Stage], tables: Sequence[Table], nowhere: int) -> np.ndarray:
    """(programs, loops, 4): extent, stride, kind, axis; at least one loop, so that there is a level."""
    rows = [
        [(x.extent, x.stride, KINDS[x.kind], table.axes[x.axis]) for x in stage.loops if x.extent > 1]
        for stage, table in zip(stages, tables, strict=True)
    ]
    most = max(1, *map(len, rows))
    none = (1, 0, NO_LOOP, nowhere)
    return np.array([[none] * (most - len(row)) + row for row in rows])
