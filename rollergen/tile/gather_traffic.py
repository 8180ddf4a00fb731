"""Transactions of any other access (views with ``//`` and ``%``): one tile of each class is listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import lcm, prod

import numpy as np

from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.values import Within
from rollergen.hal.dataclass import dataclass
from rollergen.tile.axis_tiles import AxisTiles
from rollergen.tile.guarded_access import Access
from rollergen.tile.segments import Progression

ENUMERATED_AT_MOST = 20_000_000
"""Elements that may be listed for one access before its tiles are cut."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What one group of axes adds: for each class of its tiles, addresses [n] and guard indices [guards, n]."""

    weights: tuple[int, ...]
    addresses: tuple[np.ndarray, ...]
    bounds: tuple[np.ndarray, ...]


def count_enumerated(access: Access, axes: dict[str, AxisTiles]) -> int:
    offset = access.offset
    groups = _groups_of_axes([offset, *(bound.index for bound in access.guard)], list(axes))
    ranges = {name: (0, own.extent - 1) for name, own in axes.items()}
    parts = [_part(access, offset, [axes[a] for a in group], ranges) for group in groups]
    work = prod(sum(len(a) for a in part.addresses) for part in parts)
    if work > ENUMERATED_AT_MOST:
        cut = [[_cut(axes[a], _period([*access.indices], a)) for a in group] for group in groups]
        parts = [_part(access, offset, group, ranges) for group in cut]
    return _sum_of_parts(access, offset.const, parts)


def _groups_of_axes(indices: Sequence[Index], axes: list[str]) -> list[list[str]]:
    """Axes that occur together inside one division or remainder belong together."""
    group = {axis: {axis} for axis in axes}
    for index in indices:
        for atom, _ in index.terms:
            if not isinstance(atom, str):
                together = set().union(*(group[a] for a in atom.index.axes()))
                for axis in together:
                    group[axis] = together
    return [sorted(g) for g in {id(g): g for g in group.values()}.values()]


def _part(access: Access, offset: Index, group: list[AxisTiles], ranges: Mapping[str, tuple[int, int]]) -> _Part:
    names = {own.axis for own in group}
    address = _own_terms(offset, names)
    tests = [(_own_terms(bound.index, names), _decisive(bound, names, ranges)) for bound in access.guard]
    classes: dict[bytes, int] = {}
    shapes: dict[bytes, np.ndarray] = {}
    for bases in product(*(own.bases for own in group)):
        values, inside = _coordinates(group, bases)
        if not inside.any():
            continue
        at = _evaluated(address, values, inside)
        at -= at.min() // access.transaction * access.transaction
        rows = np.stack([at, *(simplify(_evaluated(index, values, inside)) for index, simplify in tests)])
        key = rows.tobytes()
        classes[key] = classes.get(key, 0) + 1
        shapes[key] = rows
    found = [np.unique(rows, axis=1) for rows in shapes.values()]
    return _Part(tuple(classes.values()), tuple(rows[0] for rows in found), tuple(rows[1:] for rows in found))


def _evaluated(index: Index, values: dict[str, np.ndarray], inside: np.ndarray) -> np.ndarray:
    total = np.zeros(len(inside), dtype=np.int64) + index.evaluate(values)
    return total[inside]


def _decisive(
    bound: Within, names: set[str], ranges: Mapping[str, tuple[int, int]]
) -> Callable[[np.ndarray], np.ndarray]:
    """Replaces the values of one group that decide nothing (always inside, or never, whatever the other groups say)
    by one value of their kind, so that tiles which differ in nothing else count as one class.  What is always inside
    becomes a value that the group has: the other groups' kinds follow from what it has."""
    own = _own_terms(bound.index, names)
    rest = Index(tuple(term for term in bound.index.terms if term not in own.terms), bound.index.const)
    least, most = rest.bounds(ranges)
    low, high = bound.low - least, bound.high - most
    outside, inside = bound.high - least, max(low, own.bounds(ranges)[0])

    def simplify(values: np.ndarray) -> np.ndarray:
        values = np.where((values < bound.low - most) | (values >= outside), outside, values)
        return np.where((values >= low) & (values < high), inside, values)

    return simplify


def _own_terms(index: Index, names: set[str]) -> Index:
    def axes(atom: object) -> frozenset[str]:
        return frozenset([atom]) if isinstance(atom, str) else atom.index.axes()  # type: ignore[attr-defined]

    return Index(tuple((atom, c) for atom, c in index.terms if axes(atom) <= names))


def _coordinates(group: list[AxisTiles], bases: tuple[int, ...]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    grids = np.meshgrid(*(base + own.offsets for base, own in zip(bases, group, strict=True)), indexing="ij")
    values = {own.axis: grid.ravel() for own, grid in zip(group, grids, strict=True)}
    inside = np.ones(grids[0].size, dtype=bool)
    for own in group:
        inside &= values[own.axis] < own.extent
    return values, inside


def _period(indices: Sequence[Index], axis: str) -> int:
    """Where the outermost divisions of an axis step: tiles are cut there. 0: nothing divides the axis."""
    found = 0
    for index in indices:
        for atom, _ in index.terms:
            if isinstance(atom, FloorDiv) and axis in atom.index.axes():
                found = lcm(found or 1, atom.divisor) if found else atom.divisor
    return found


def _cut(own: AxisTiles, period: int) -> AxisTiles:
    """The same axis in more, smaller tiles that begin on multiples of the period."""
    if not period or not isinstance(own.tile, Progression) or own.tile.step != 1 or own.tile.count <= period:
        return own
    if (own.bases % period).any() or own.tile.count % period:
        return own
    pieces = np.arange(own.tile.count // period) * period
    return AxisTiles(own.axis, own.extent, (own.bases[:, None] + pieces).ravel(), Progression(period, 1))


def _sum_of_parts(access: Access, const: int, parts: list[_Part]) -> int:
    total = 0
    for choice in product(*(range(len(part.weights)) for part in parts)):
        weight = prod(part.weights[c] for part, c in zip(parts, choice, strict=True))
        addresses = _outer([part.addresses[c] for part, c in zip(parts, choice, strict=True)]) + const
        inside = np.ones(addresses.shape, dtype=bool)
        for number, bound in enumerate(access.guard):
            values = _outer([part.bounds[c][number] for part, c in zip(parts, choice, strict=True)]) + bound.index.const
            inside &= (values >= bound.low) & (values < bound.high)
        total += weight * len(np.unique(addresses[inside] // access.transaction))
    return total


def _outer(values: list[np.ndarray]) -> np.ndarray:
    total: np.ndarray = np.zeros(1, dtype=np.int64)
    for own in values:
        total = (total[:, None] + own).ravel()
    return total
