"""What features know of a tensor op before anybody cuts its axes into loops: found once for each tensor op, kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rollergen.construct.roles import contraction_of
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load
from rollergen.features.arrays import floats, integers
from rollergen.features.operator import size_features
from rollergen.hal.dataclass import dataclass
from rollergen.program.model.facts import operations_of
from rollergen.program.rprogram import Stage
from rollergen.tile.rules import contiguous_axis

ROLES = ("batch", "row", "col", "reduce")
OPERANDS = ("in0", "in1", "out")
MOST_LOADS = 8
NO_ATOM = -1
_ALWAYS_1 = (NO_ATOM, 1)
_WHOLE: tuple[int, list[tuple[int, int]]] = (1, [])
"""A dimension that an operand lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A load or the store of a stage, see `Operands`; ``contiguous`` -1: none.  ``indices``: of each dimension its
    extent and the (atom, weight) of its terms, the atom -2 - n for ``compound[n]`` of the table."""

    itemsize: int
    touches: list[bool]
    slope: list[int]
    contiguous: int
    repeated: bool
    indices: list[tuple[int, list[tuple[int, int]]]]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """``axes``: position of each axis by name; ``extents``: theirs.  ``loads``: numbers of ``in0`` and ``in1`` among
    the tensor op's loads (-1: none).  ``figures``: flops, output's bytes, sizes; see `Operands`."""

    axes: Mapping[str, int]
    extents: list[int]
    loads: tuple[int, int]
    operands: list[Operand]
    compound: list[list[bool]]
    figures: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """What the launches of several stages compute on, the operands as rows ``in0``, ``in1``, ``out`` (absent ones are
    empty); the last dimension are the stages.  Of axes there is one more than any stage has, which nothing has.

    ``extents``: of the axes; ``roles``: theirs, as positions in `ROLES`, -1: the stage lacks the axis.  ``itemsize``;
    ``touches``, the axes that decide which element is meant; ``slope``, elements of the buffer between neighbours along
    an axis; ``contiguous``, the axis whose neighbours are adjacent (the last: none); ``repeated``: several loads read
    its buffer.

    An index of a dimension is a sum of ``weight * atom``: ``atom`` counts axes, behind them the divisions and
    remainders, which are over the axes ``compound[n]``, and last of all what is always 1; ``limit``: extent of the
    dimension.  ``flops``, ``output_bytes``: of the whole launch; ``sizes``: `size_features`.
    """

    extents: np.ndarray
    roles: np.ndarray
    itemsize: np.ndarray
    touches: np.ndarray
    slope: np.ndarray
    contiguous: np.ndarray
    repeated: np.ndarray
    compound: np.ndarray
    limit: np.ndarray
    atom: np.ndarray
    weight: np.ndarray
    flops: np.ndarray
    output_bytes: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """Stages side by side, filled up to a common size: ``floats`` and ``integers`` of all of them, (.., stages), one
    after another in the order of `of`."""

    axes: int
    dims: int
    terms: int
    floats: np.ndarray
    integers: np.ndarray

    def of(self, which: np.ndarray) -> Operands:
        """The stages of these numbers."""
        axes, dims, terms, operands = self.axes, self.dims, self.terms, len(OPERANDS)
        extents, itemsize, slope, limit, weight, figures = _parts(
            self.floats.take(which, axis=1),
            (axes,), (operands,), (operands, axes), (operands, dims), (operands, dims, terms), (-1,),
        )  # fmt: skip
        roles, contiguous, atom, masks = _parts(
            self.integers.take(which, axis=1), (axes,), (operands,), (operands, dims, terms), (-1,)
        )
        repeated, touches, compound = _parts(masks != 0, (operands,), (operands, axes), (-1, axes))
        return Operands(
            extents, roles, itemsize, touches, slope, contiguous, repeated, compound, limit, atom, weight,
            figures[0], figures[1], figures[2:],
        )  # fmt: skip


def _parts(numbers: np.ndarray, *shapes: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Rows one after another as arrays of these shapes, a -1 what is left, of several stages."""
    start = 0
    for shape in shapes:
        end = len(numbers) if shape[0] < 0 else start + prod(shape)
        yield numbers[start:end].reshape(*shape, numbers.shape[1])
        start = end


def table_of(stage: Stage) -> Table:
    return _table(stage.op, operations_of(stage))


@lru_cache(maxsize=256)
def _table(op: TensorOp, flops: int) -> Table:
    axes = {axis.name: n for n, axis in enumerate(op.axes)}
    numbers = _inputs(op)
    loads = op.loads()
    output = op.stored()
    buffers = [load.buffer for load in loads]
    compound: list[list[bool]] = []
    there = (*(loads[n] if n >= 0 else None for n in numbers), output)
    operands = [_operand(load, axes, buffers, compound) for load in there]
    figures = (flops, output.buffer.elements * ITEMSIZE[output.dtype], *size_features(op, flops))
    return Table(axes, [axis.extent for axis in op.axes], numbers, operands, compound, figures)


def _inputs(op: TensorOp) -> tuple[int, int]:
    """Numbers of the two loads that are looked at: those inside the reduction first, the larger ones first."""
    loads = op.loads()[:MOST_LOADS]
    body = len(op.body_loads())
    order = sorted(range(len(loads)), key=lambda n: (n >= body, -loads[n].buffer.elements, n))
    first, second, *_ = (*order, -1, -1)
    return first, second


def _operand(
    load: Load | None, axes: Mapping[str, int], buffers: Sequence[Buffer], compound: list[list[bool]]
) -> Operand:
    """``buffers``: of all loads.  Divisions and remainders are put behind those in ``compound``.  A dimension of one
    term has weight 1: a step of one atom never skips more than one element of what is touched."""
    if load is None:
        return Operand(0, [False] * len(axes), [0] * len(axes), -1, False, [])
    own, offset = load.axes(), load.offset()
    indices = []
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        terms = []
        for what, coefficient in index.terms:
            if isinstance(what, str):
                atom = axes[what]
            else:
                atom = -2 - len(compound)
                among = what.index.axes()
                compound.append([name in among for name in axes])
            terms.append((atom, abs(coefficient) if len(index.terms) > 1 else 1))
        indices.append((extent, terms))
    return Operand(
        ITEMSIZE[load.buffer.dtype], [name in own for name in axes], [abs(offset.coefficient(name)) for name in axes],
        axes.get(str(contiguous_axis(load)), -1), buffers.count(load.buffer) > 1, indices,
    )  # fmt: skip


@lru_cache(maxsize=256)
def roles_of(op: TensorOp, lane: str | None) -> tuple[int, ...]:
    """Every axis' role, as its position in `ROLES`: reduced and row axes reduce; of the others col is what lanes or
    neighbouring threads walk (``lane``), row the longest that shares operands with it, batch the rest."""
    found = {a.name: "reduce" if a.role != "spatial" else "batch" for a in op.axes}
    spatial = [a for a in op.axes if a.role == "spatial"]
    if spatial:
        roles = contraction_of(op)
        names = [a.name for a in spatial]
        col = lane if lane in names else contiguous_axis(op.stored())
        col = col if col in names else names[-1]
        others = [a for a in spatial if a.name != col]
        row = roles.m if roles is not None and roles.m != col else None
        row = row or (max(others, key=lambda a: a.extent).name if others else None)
        found[str(col)] = "col"
        if row is not None:
            found[row] = "row"
    return tuple(ROLES.index(role) for role in found.values())


@lru_cache(maxsize=64)
def stacked(tables: tuple[Table, ...], roles: tuple[tuple[int, ...], ...]) -> Stacked:
    """``roles``: of each one's axes."""
    axes = 1 + max(len(one.axes) for one in tables)
    compounds = max(len(one.compound) for one in tables)
    each = [operand for one in tables for operand in one.operands]
    dims = max(len(operand.indices) for operand in each)
    terms = max((len(found) for operand in each for _, found in operand.indices), default=0)
    numbers: list[float] = []
    counts: list[int] = []
    for table, own in zip(tables, roles, strict=True):
        indices = [_filled(operand.indices, dims, _WHOLE) for operand in table.operands]
        summed = [term for one in indices for _, found in one for term in _filled(found, terms, _ALWAYS_1)]
        numbers += _filled(table.extents, axes, 1)
        numbers += [operand.itemsize for operand in table.operands]
        numbers += [step for operand in table.operands for step in _filled(operand.slope, axes, 0)]
        numbers += [extent for one in indices for extent, _ in one]
        numbers += [weight for _, weight in summed]
        numbers += table.figures
        counts += _filled(own, axes, -1)
        counts += [operand.contiguous if operand.contiguous >= 0 else axes - 1 for operand in table.operands]
        # an axis, a division or remainder behind the axes, or what is behind these
        counts += [n if n >= 0 else axes + compounds if n == NO_ATOM else axes - 2 - n for n, _ in summed]
        counts += [operand.repeated for operand in table.operands]
        counts += [touched for operand in table.operands for touched in _filled(operand.touches, axes, False)]
        for among in _filled(table.compound, compounds, []):
            counts += _filled(among, axes, False)
    by_stage = (floats(numbers).reshape(len(tables), -1).T, integers(counts).reshape(len(tables), -1).T)
    return Stacked(axes, dims, terms, *by_stage)


def _filled(found: Sequence[Any], length: int, value: Any) -> list[Any]:
    return [*found, *[value] * (length - len(found))]
