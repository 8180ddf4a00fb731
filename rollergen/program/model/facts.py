"""What the model needs to know of a tensor op, found once for each tensor op and kept.

Nothing here depends on a tile size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import gcd as gcd_of
from typing import NamedTuple

from rollergen.expr.digits import kept_axes
from rollergen.expr.dtypes import ITEMSIZE, is_float
from rollergen.expr.index import Index, linear
from rollergen.expr.nibbles import low_bits
from rollergen.expr.places import Put
from rollergen.expr.positions import combiner_in_order
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.rows import PART, WHOLE, is_below_its_row, is_online_exponent, is_shrinking_exponent, shrinking
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Take,
    Unary,
    Value,
    Var,
    Within,
    axes_of,
    loads,
    walk,
)
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DOTS, in_a_word
from rollergen.program.model.chain_work import chain_flops
from rollergen.program.model.indices import count_of, count_within, range_of
from rollergen.program.model.numeric import Number, least
from rollergen.program.model.takes import taken
from rollergen.program.rprogram import KeptRow, Stage
from rollergen.program.stores import read_beside


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A load or the store: where its elements lie.

    ``strides``: bytes between neighbours of each tensor dimension.  ``offset``: linear element index.
    ``guard``: bounds that each access tests.  ``plain``: the axis of each dimension whose index is just that axis.
    ``scattered``: elements that follow one another lie far apart, and come back to lines of earlier ones later on.
    ``kept``: spatial axes whose tails no load tests, as the guard keeps it within the tensor there too.
    """

    buffer: Buffer
    indices: tuple[Index, ...]
    offset: Index
    axes: frozenset[str]
    itemsize: int
    strides: tuple[int, ...]
    guard: tuple[Within, ...]
    plain: tuple[str | None, ...]
    alignments: dict[int, int]
    scattered: bool = False
    kept: frozenset[str] = frozenset()

    @staticmethod
    def of(
        buffer: Buffer, indices: tuple[Index, ...], axes: frozenset[str], guard: tuple[Within, ...] = (),
        scattered: bool = False,
    ) -> Operand:  # fmt: skip
        itemsize = ITEMSIZE[buffer.dtype]
        strides, step = [], itemsize
        for extent in reversed(buffer.shape):
            strides.append(step)
            step *= extent
        offset = linear(indices, buffer.shape)
        plain = tuple(_just_an_axis(index) for index in indices)
        return Operand(buffer, indices, offset, axes, itemsize, tuple(reversed(strides)), guard, plain, {}, scattered)

    @property
    def bytes(self) -> int:
        return self.buffer.elements * self.itemsize

    def reach(self, dim: int, spans: Mapping[str, Number]) -> tuple[Number, Number]:
        """(range, distinct values) of one dimension's index over a tile, at most the dimension itself."""
        most = self.buffer.shape[dim]
        axis = self.plain[dim]
        if axis is not None:
            span = least(spans.get(axis, 1), most)
            return span, span
        index = self.indices[dim]
        reached = range_of(index, spans)
        return least(reached, most), least(count_within(index, spans, reached), most)

    def distinct(self, dim: int, spans: Mapping[str, Number]) -> Number:
        """Distinct values of one dimension's index over a tile, at most the dimension itself."""
        axis = self.plain[dim]
        count = count_of(self.indices[dim], spans) if axis is None else spans.get(axis, 1)
        return least(count, self.buffer.shape[dim])

    def row_alignment(self, line: int) -> int:
        """Bytes that divide a line and the distance between any two row starts."""
        found = self.alignments.get(line)
        if found is None:
            moving = (s for index, s in zip(self.indices[:-1], self.strides[:-1], strict=True) if index.terms)
            found = self.alignments[line] = gcd_of(line, *moving)
        return found


def _just_an_axis(index: Index) -> str | None:
    if len(index.terms) == 1 and index.terms[0][1] == 1 and isinstance(index.terms[0][0], str):
        return index.terms[0][0]
    return None


class Shared(NamedTuple):
    """(name, count) of operations on what the ``axes`` tell apart; ``places``: whole numbers of places alone."""
    axes: frozenset[str]
    places: bool
    operations: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """One pass through the loops: a reduction (``reduces``) or the result.

    ``operations``: (name, count) of the arithmetic of one point, multiply-adds fused;
    ``loads``: positions in the tensor op's loads; ``kept``: names of kept rows written here, ``reused``: read.
    ``gathered``: the operations of one point where points go into an online pair together.
    ``of_rows``: those of ``operations`` that are the same at all points of a row, found once for each.
    ``shared``: those of a reduction's values, or of an elementwise result, that some spatial axis does not tell apart.
    """

    reduces: bool
    components: int
    operations: tuple[tuple[str, int], ...]
    loads: tuple[int, ...]
    kept: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    gathered: tuple[tuple[str, int], ...] = ()
    of_rows: tuple[tuple[str, int], ...] = ()
    shared: tuple[Shared, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """``beside``: positions of the loads that the result reads where the output's neighbours are (`read_beside`)."""

    op: TensorOp
    kept_rows: tuple[KeptRow, ...]
    loads: tuple[Operand, ...]
    store: Operand
    phases: tuple[Phase, ...]
    roles: Mapping[str, str]
    extents: Mapping[str, Number]
    beside: frozenset[int]

    @property
    def by_row(self) -> bool:
        return "row" in self.roles.values()

    @property
    def several_passes(self) -> bool:
        """Whether a row is read several times."""
        return self.by_row or len(self.op.reductions) > 1

    @property
    def components(self) -> int:
        """Accumulators of one output, over all its reductions."""
        return sum(phase.components for phase in self.phases if phase.reduces)

    def passes(self, load: int) -> int:
        """In how many phases the load is read."""
        return sum(load in phase.loads for phase in self.phases)


@lru_cache(maxsize=64)
def facts_of(op: TensorOp, kept_rows: tuple[KeptRow, ...] = ()) -> Facts:
    """The facts of a tensor op."""
    operands = tuple(
        replace(Operand.of(load.buffer, load.indices, load.axes(), load.guard), kept=kept_axes(load, op.axes))
        for load in op.loads()
    )
    operands += tuple(Operand.of(*taken(take, op)) for take in op.takes())
    target_axes = frozenset().union(*(index.axes() for index in op.target))
    return Facts(
        op,
        kept_rows,
        operands,
        Operand.of(op.output, op.target, target_axes, op.where),
        _phases(op, kept_rows),
        {axis.name: axis.role for axis in op.axes},
        {axis.name: axis.extent for axis in op.axes},
        frozenset(map(op.loads().index, read_beside(op))),
    )


def _phases(op: TensorOp, kept_rows: tuple[KeptRow, ...]) -> tuple[Phase, ...]:
    position: dict[Value, int] = {read: i for i, read in enumerate((*op.loads(), *op.takes()))}
    phases = []
    for number, reduction in enumerate(op.reductions):
        combine = (combiner_in_order(reduction) or reduction.combiner).combine
        phases.append(_phase(op, number, reduction.bodies, combine, kept_rows, position))
    last = len(op.reductions)
    phases.append(_phase(op, last, (op.result,), (), kept_rows, position))
    return tuple(phases)


def _phase(
    op: TensorOp,
    number: int,
    values: tuple[Value, ...],
    combine: tuple[Value, ...],
    kept_rows: tuple[KeptRow, ...],
    position: Mapping[Value, int],
) -> Phase:
    known = {r.value: r.name for r in kept_rows if r.phase <= number}
    kept = tuple(r.name for r in kept_rows if r.phase == number)
    roots = [*values, *(r.value for r in kept_rows if r.phase == number)]
    reused: dict[str, None] = {}
    nodes: dict[Value, None] = {}
    own = {r.value for r in kept_rows if r.phase == number}
    for root in roots:
        _visit(root, known, own, reused, nodes)
    read = tuple(position[node] for node in nodes if isinstance(node, (Load, Take)))
    counts = count_operations(tuple(nodes), combine, op)
    gathered: tuple[tuple[str, int], ...] = ()
    if combine and len(values) == 2:
        dtype = values[0].dtype
        shrunk = Binary("add", Var("sum", dtype), shrinking(dtype), dtype)
        point = (Binary("max", Var(PART, dtype), Var(WHOLE, dtype), dtype), shrunk)
        gathered = count_operations(tuple(nodes), point, op)
    of_rows, shared = _of_rows(nodes, op, counts), _shared(nodes, op, counts) if combine or not op.reductions else ()
    return Phase(bool(combine), len(values), counts, read, kept, tuple(reused), gathered, of_rows, shared)


def _of_rows(
    nodes: Mapping[Value, None], op: TensorOp, counts: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int], ...]:
    """Of the operations counted in `counts`, those of values that no axis along a row tells apart."""
    if not any(axis.role == "row" for axis in op.axes):
        return ()
    along = {axis.name for axis in op.axes if axis.role in ("row", "reduce")}
    found = dict(count_operations(tuple(node for node in nodes if not axes_of(node) & along), (), op))
    every = dict(counts)
    return tuple((name, min(count, every[name])) for name, count in found.items() if every.get(name, 0))


def _shared(nodes: Mapping[Value, None], op: TensorOp, counts: tuple[tuple[str, int], ...]) -> tuple[Shared, ...]:
    """Of the operations counted in `counts`, those that `Phase.shared` tells."""
    if any(axis.role == "row" for axis in op.axes):
        return ()
    spatial, left = {axis.name for axis in op.of_role("spatial")}, dict(counts)
    alike: dict[tuple[frozenset[str], bool], list[Value]] = {}
    for node in nodes:
        axes = axes_of(node)
        if not spatial <= axes and _operation(node, op):
            alike.setdefault((axes, not (is_float(node.dtype) or loads(node))), []).append(node)
    found = []
    for (axes, places), some in alike.items():
        own = [(name, min(count, left.get(name, 0))) for name, count in count_operations(tuple(some), (), op)]
        left |= {name: left[name] - count for name, count in own if name in left}
        found.append(Shared(axes, places, tuple(own)))
    return tuple(found)


def _visit(
    value: Value, known: Mapping[Value, str], own: set[Value], reused: dict[str, None], nodes: dict[Value, None]
) -> None:
    if value in known and value not in own:
        reused[known[value]] = None
        return
    if value in nodes:
        return
    nibble = low_bits(value)  # looked up in a table, whatever is taken off
    for child in value.children() if nibble is None else nibble[:1]:
        _visit(child, known, own, reused, nodes)
    nodes[value] = None


_SUMMED = {op: in_a_word(dtype) for (dtype, _), op in DOTS.items()}
"""Multiply-adds of a dot product."""


def count_operations(
    nodes: tuple[Value, ...], combine: tuple[Value, ...], op: TensorOp | None = None
) -> tuple[tuple[str, int], ...]:
    """(name, count) of the arithmetic of `nodes` and of a combiner, multiply-adds fused."""
    counts: dict[str, int] = {}
    for node in (*nodes, *dict.fromkeys(n for value in combine for n in walk(value))):
        name = _operation(node, op)
        if name:
            counts[name] = counts.get(name, 0) + 1
    if dots := sum(counts.get(name, 0) for name in _SUMMED):  # each with the sum that it is added to
        counts["add"] = max(counts.get("add", 0) - dots, 0)
    fused = min(counts.get("mul", 0), counts.get("add", 0) + counts.get("sub", 0))
    if fused:
        counts["mul"] -= fused
    return tuple((name, count) for name, count in counts.items() if count)


def _operation(node: Value, op: TensorOp | None) -> str:
    if isinstance(node, Unary) and node.op == "exp":
        online = is_online_exponent(node.x) or is_shrinking_exponent(node.x)
        below = online or (op is not None and is_below_its_row(op, node.x))
        return "exp_below" if below else "exp"
    if isinstance(node, Binary) and node.op in DOTS.values():
        return node.op
    if isinstance(node, (Unary, Binary)):
        return PRIMITIVES[node.op].cost or node.op
    if isinstance(node, (Const, Load, Take, Var, Partial, Put)):
        return ""
    if isinstance(node, IndexValue):
        return "index"
    cast = "cast" if low_bits(node) is None else "lookup"
    return "select" if isinstance(node, Select) else cast


def flops_of(stage: Stage) -> int:
    """Arithmetic operations of the tensor op, a multiply-add counted as two and a conversion as none; of a chain those
    of its contractions."""
    return operations_of(stage, free=("cast",))


def operations_of(stage: Stage, free: tuple[str, ...] = ()) -> int:
    """`flops_of` with conversions, as the verifier's features count them; but for those that are ``free``."""
    if stage.inner is not None:
        return chain_flops(stage)
    facts = facts_of(stage.op, stage.kept_rows)
    total = 0
    for phase in facts.phases:
        counted = [(name, count) for name, count in phase.operations if name not in free]
        per_point = sum((2 * _SUMMED[name] if name in _SUMMED else 1) * count for name, count in counted)
        if phase.reduces and any(name == "add" for name, _ in phase.operations):
            per_point += 1
        spatial_only = not phase.reduces and facts.op.reductions and not facts.by_row
        size = 1
        for axis, extent in facts.extents.items():
            size *= 1 if spatial_only and facts.roles[axis] != "spatial" else extent
        total += per_point * size
    return total
