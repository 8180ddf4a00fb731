"""A program as its features see it: the heaviest stage, its loops by role, its operands along the loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod

from rollergen.construct.roles import CONTRACTION, contraction_roles, kind_of
from rollergen.expr.definition import Definition
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.program.model import Prediction
from rollergen.program.model.prediction import StagePrediction
from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL, Loop, RProgram, Stage
from rollergen.tile.rules import contiguous_axis

ROLES = ("batch", "row", "col", "reduce")
OPERANDS = ("in0", "in1", "out")


def slog(x: float) -> float:
    """``sign(x) log2(1 + |x|)``."""
    return log2(1 + x) if x >= 0 else -log2(1 - x)


@dataclass(frozen=True, slots=True)
class Chain:
    """One operand along the loops, outermost first.  At loop k: ``count``, product of the extents of loops at or
    inside k that index the operand; ``reuse``, of the others at or inside k; ``topdown``, of all at or outside k;
    ``unique``: elements touched by the loops at or inside k."""

    load: Load
    itemsize: int
    count: tuple[int, ...]
    reuse: tuple[int, ...]
    topdown: tuple[int, ...]
    unique: tuple[int, ...]


@dataclass(frozen=True)
class StageView:
    """The stage that the model finds slowest, of those that run at every call."""

    program: RProgram
    device: Device
    prediction: Prediction
    stage: Stage
    predicted: StagePrediction
    role_of: Mapping[str, str]

    @property
    def definition(self) -> Definition:
        return self.stage.definition

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Loops of more than one iteration, outermost first."""
        return tuple(loop for loop in self.stage.loops if loop.extent > 1)

    @cached_property
    def chains(self) -> Mapping[str, Chain | None]:
        """``in0`` and ``in1`` (the operands read inside the reduction first, the larger ones first) and ``out``."""
        loads = self.definition.loads()[:8]
        body = len(self.definition.body_loads())
        order = sorted(range(len(loads)), key=lambda n: (n >= body, -loads[n].buffer.elements, n))
        inputs = [self._chain(loads[n]) for n in order[:2]]
        target = self._chain(Load(self.definition.output, self.definition.target))
        return dict(zip(OPERANDS, [*inputs, *[None] * (2 - len(inputs)), target], strict=True))

    def extent(self, role: str) -> int:
        return prod(a.extent for a in self.definition.axes if self.role_of[a.name] == role)

    def inside(self, role: str, *kinds: str) -> int:
        """Product of the extents of the loops of these kinds over the role's axes."""
        return prod(x.extent for x in self.loops if self.role_of[x.axis] == role and x.kind in kinds)

    def of_kinds(self, *kinds: str) -> int:
        return prod(x.extent for x in self.loops if x.kind in kinds)

    @cached_property
    def register_tile(self) -> dict[str, int]:
        """Elements along each axis of what a thread holds at once."""
        return self._spans((UNROLL, LANE))

    @cached_property
    def block_tile(self) -> dict[str, int]:
        """Elements along each axis that a block covers between two steps of its outermost serial reduce loop."""
        outer = self.outermost_step
        spans: dict[str, int] = {}
        for loop in self.loops:
            if loop.kind != GRID and loop is not outer:
                spans[loop.axis] = spans.get(loop.axis, 1) * loop.extent
        return spans

    @property
    def outermost_step(self) -> Loop | None:
        """The outermost serial loop of a reduced axis: it steps from one block tile to the next."""
        return next((x for x in self.loops if x.kind == SERIAL and self.role_of[x.axis] == "reduce"), None)

    def contiguous(self, load: Load) -> int:
        """Adjacent elements of the load's buffer in one block tile."""
        axis = contiguous_axis(load)
        return self.block_tile.get(axis, 1) if axis is not None else 1

    def _spans(self, kinds: tuple[str, ...]) -> dict[str, int]:
        spans: dict[str, int] = {}
        for loop in self.loops:
            if loop.kind in kinds:
                spans[loop.axis] = spans.get(loop.axis, 1) * loop.extent
        return spans

    def _chain(self, load: Load) -> Chain:
        axes = load.axes()
        count, reuse, unique = 1, 1, 1
        rows: list[tuple[int, int, int]] = []
        spans: dict[str, int] = {}
        for loop in reversed(self.loops):
            if loop.axis in axes:
                count *= loop.extent
                spans[loop.axis] = spans.get(loop.axis, 1) * loop.extent
                unique = region(load, spans)
            else:
                reuse *= loop.extent
            rows.append((count, reuse, unique))
        rows.reverse()
        down, topdown = 1, []
        for loop in self.loops:
            down *= loop.extent
            topdown.append(down)
        columns = tuple(zip(*rows, strict=True)) if rows else ((), (), ())
        return Chain(load, ITEMSIZE[load.buffer.dtype], columns[0], columns[1], tuple(topdown), columns[2])


def region(load: Load, spans: Mapping[str, int]) -> int:
    """Elements of the buffer that a box of `spans` axis elements touches; divisions and remainders count whole."""
    total = 1
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        total *= min(extent, _reach(index, spans))
    return min(total, prod(spans.get(axis, 1) for axis in load.axes()))


def _reach(index: Index, spans: Mapping[str, int]) -> int:
    reach = 1
    for atom, coefficient in index.terms:
        axes = {atom} if isinstance(atom, str) else atom.index.axes()
        steps = prod(spans.get(axis, 1) for axis in axes) - 1
        reach += min(abs(coefficient), steps + 1) * steps if len(index.terms) > 1 else steps
    return reach


def view_of(program: RProgram, device: Device, prediction: Prediction) -> StageView:
    pairs = [(s, p) for s, p in zip(program.stages, prediction.stages, strict=True) if not s.once]
    stage, predicted = max(pairs, key=lambda pair: float(pair[1].seconds))
    return StageView(program, device, prediction, stage, predicted, _roles(stage))


def _roles(stage: Stage) -> dict[str, str]:
    """Every axis' role: reduced and row axes reduce; of the others col is what lanes or neighbouring threads walk,
    row the longest that shares operands with it, batch the rest."""
    definition = stage.definition
    found = {a.name: "reduce" if a.role != "spatial" else "batch" for a in definition.axes}
    spatial = [a for a in definition.axes if a.role == "spatial"]
    if not spatial:
        return found
    roles = next(contraction_roles(definition), None) if kind_of(definition) == CONTRACTION else None
    lane = next((x.axis for x in reversed(stage.loops) if x.kind in (LANE, *PARALLEL)), None)
    names = [a.name for a in spatial]
    col = lane if lane in names else contiguous_axis(Load(definition.output, definition.target))
    col = col if col in names else names[-1]
    others = [a for a in spatial if a.name != col]
    row = roles.m if roles is not None and roles.m != col else None
    row = row or (max(others, key=lambda a: a.extent).name if others else None)
    found[str(col)] = "col"
    if row is not None:
        found[row] = "row"
    return found
