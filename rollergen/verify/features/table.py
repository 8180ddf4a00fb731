"""What features know of a definition before anybody cuts its axes into loops: found once for each definition, kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod

import numpy as np

from rollergen.construct.roles import CONTRACTION, contraction_roles, kind_of
from rollergen.expr.definition import Definition
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import linear
from rollergen.expr.values import Load
from rollergen.program.model.prediction import flops_of
from rollergen.program.rprogram import Stage
from rollergen.tile.rules import contiguous_axis
from rollergen.verify.features.operator import size_features

ROLES = ("batch", "row", "col", "reduce")
OPERANDS = ("in0", "in1", "out")
MOST_LOADS = 8
NO_ATOM = -1


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """What a stage's launch computes on, the operands as rows ``in0``, ``in1``, ``out`` (absent ones are empty).

    ``extents``: of the axes.  ``itemsize``; ``touches``, the axes that decide which element is meant; ``slope``,
    elements of the buffer between neighbours along an axis; ``contiguous``, the axis whose neighbours are adjacent (-1:
    none); ``repeated``: several loads read its buffer.

    An index of a dimension is a sum of ``weight * atom``: ``atom`` is an axis' position, ``-2 - n`` for a division or
    remainder over the axes ``compound[n]``, `NO_ATOM` where there is none; ``limit``: extent of the dimension.
    ``flops``, ``output_bytes``: of the whole launch; ``sizes``: `size_features`.

    Of several stages (`stacked`) each array has one more dimension, the last.
    """

    extents: np.ndarray
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

    def of(self, rows: np.ndarray) -> Operands:
        """Those of some of several stages."""
        return Operands(*[getattr(self, name).take(rows, axis=-1) for name in _OPERANDS])


_OPERANDS = tuple(one.name for one in fields(Operands))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """``axes``: position of each axis by name.  ``loads``: numbers of ``in0`` and ``in1`` among the definition's loads
    (-1: none)."""

    axes: Mapping[str, int]
    loads: tuple[int, ...]
    operands: Operands


def table_of(stage: Stage) -> Table:
    return _table(stage.definition, flops_of(stage))


@lru_cache(maxsize=512)
def _table(definition: Definition, flops: int) -> Table:
    axes = {axis.name: n for n, axis in enumerate(definition.axes)}
    numbers = _inputs(definition)
    loads = definition.loads()
    output = definition.stored()
    operands = [*(loads[n] if n >= 0 else None for n in numbers), output]
    buffers = [load.buffer for load in loads]
    compound, limit, atom, weight = _indices(operands, axes)
    own = Operands(
        np.array([axis.extent for axis in definition.axes], dtype=float),
        np.array([ITEMSIZE[one.buffer.dtype] if one else 0 for one in operands], dtype=float),
        np.array([[name in one.axes() if one else False for name in axes] for one in operands], dtype=bool),
        np.array([_slope(one, axes) for one in operands], dtype=float),
        np.array([axes.get(str(contiguous_axis(one)), -1) if one else -1 for one in operands]),
        np.array([one is not None and buffers.count(one.buffer) > 1 for one in operands]),
        compound, limit, atom, weight,
        np.array(float(flops)),
        np.array(float(output.buffer.elements * ITEMSIZE[output.dtype])),
        np.array(size_features(definition, flops)),
    )  # fmt: skip
    return Table(axes, numbers, own)


def _inputs(definition: Definition) -> tuple[int, int]:
    """Numbers of the two loads that are looked at: those inside the reduction first, the larger ones first."""
    loads = definition.loads()[:MOST_LOADS]
    body = len(definition.body_loads())
    order = sorted(range(len(loads)), key=lambda n: (n >= body, -loads[n].buffer.elements, n))
    first, second, *_ = (*order, -1, -1)
    return first, second


def _slope(load: Load | None, axes: Mapping[str, int]) -> list[int]:
    if load is None:
        return [0] * len(axes)
    offset = linear(load.indices, load.buffer.shape)
    return [abs(offset.coefficient(name)) for name in axes]


def _indices(
    operands: Sequence[Load | None], axes: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(compound, limit, atom, weight), see `Operands`.  A dimension of one term has weight 1: a step of one atom never
    skips more than one element of what is touched."""
    dims = max(len(one.indices) for one in operands if one)
    terms = max((len(index.terms) for one in operands if one for index in one.indices), default=0)
    limit = np.ones((len(operands), dims))
    atom = np.full((len(operands), dims, terms), NO_ATOM)
    weight = np.ones((len(operands), dims, terms))
    compound: list[list[bool]] = []
    for row, load in enumerate(operands):
        for dim, index in enumerate(load.indices if load else ()):
            limit[row, dim] = load.buffer.shape[dim] if load else 1
            for term, (what, coefficient) in enumerate(index.terms):
                if isinstance(what, str):
                    atom[row, dim, term] = axes[what]
                else:
                    atom[row, dim, term] = -2 - len(compound)
                    compound.append([name in what.index.axes() for name in axes])
                weight[row, dim, term] = abs(coefficient) if len(index.terms) > 1 else 1
    return np.array(compound, dtype=bool).reshape(len(compound), len(axes)), limit, atom, weight


@lru_cache(maxsize=1024)
def roles_of(definition: Definition, lane: str | None) -> tuple[int, ...]:
    """Every axis' role, as its position in `ROLES`: reduced and row axes reduce; of the others col is what lanes or
    neighbouring threads walk (``lane``), row the longest that shares operands with it, batch the rest."""
    found = {a.name: "reduce" if a.role != "spatial" else "batch" for a in definition.axes}
    spatial = [a for a in definition.axes if a.role == "spatial"]
    if spatial:
        roles = next(contraction_roles(definition), None) if kind_of(definition) == CONTRACTION else None
        names = [a.name for a in spatial]
        col = lane if lane in names else contiguous_axis(definition.stored())
        col = col if col in names else names[-1]
        others = [a for a in spatial if a.name != col]
        row = roles.m if roles is not None and roles.m != col else None
        row = row or (max(others, key=lambda a: a.extent).name if others else None)
        found[str(col)] = "col"
        if row is not None:
            found[row] = "row"
    return tuple(ROLES.index(role) for role in found.values())


@lru_cache(maxsize=64)
def stacked(tables: tuple[Table, ...], roles: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, Operands]:
    """(role of each axis, -1 for those that a stage lacks; operands) of several stages, filled up to a common size:
    the last axis is one that nothing has; ``atom`` counts axes, compounds behind them, and last of all what is
    always 1."""
    own = [one.operands for one in tables]
    axes = 1 + max(len(one.axes) for one in tables)
    compounds = max(len(one.compound) for one in own)
    dims = max(one.atom.shape[1] for one in own)
    terms = max(one.atom.shape[2] for one in own)
    fill = lambda name, shape, value: np.stack([_filled(getattr(one, name), shape, value) for one in own], axis=-1)
    atom = fill("atom", (3, dims, terms), NO_ATOM)
    contiguous = np.stack([one.contiguous for one in own], axis=-1)
    changed = {
        "extents": fill("extents", (axes,), 1.0),
        "touches": fill("touches", (3, axes), False),
        "slope": fill("slope", (3, axes), 0.0),
        "contiguous": np.where(contiguous < 0, axes - 1, contiguous),
        "compound": fill("compound", (compounds, axes), False),
        "limit": fill("limit", (3, dims), 1.0),
        "atom": np.where(atom >= 0, atom, np.where(atom == NO_ATOM, axes + compounds, axes - 2 - atom)),
        "weight": fill("weight", (3, dims, terms), 1.0),
    }
    same = {name: np.stack([getattr(one, name) for one in own], axis=-1) for name in _OPERANDS if name not in changed}
    return np.stack([_filled(np.array(one), (axes,), -1) for one in roles], axis=-1), Operands(**changed, **same)


def _filled(array: np.ndarray, shape: tuple[int, ...], value: float) -> np.ndarray:
    if array.shape == shape:
        return array
    found = np.full(shape, value, dtype=array.dtype)
    if prod(array.shape):
        found[tuple(slice(0, extent) for extent in array.shape)] = array
    return found
