"""Transactions of every load and store of a stage, exact for affine guarded accesses.

A visit is one filling of a load's copy from memory, or one block where nothing is copied; it costs the
distinct transactions of the elements that it touches.  Visits that differ by a shift of whole
transactions cost the same, so only classes of visits are looked at: per axis, what the end of the axis (or a
guard) leaves of the tile, and the start address modulo the transaction.

Affine indices of separate axes go through closed forms (`segments`).  What has ``//`` or ``%``, shares an axis
between dimensions, or is guarded by something else than an index, is enumerated class by class; tiles
too large for that are cut where the outermost division steps, which counts a transaction twice where two
pieces share it (an upper bound).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, lcm, prod

import numpy as np

from rollergen.expr.index import FloorDiv, Index, Mod, Within
from rollergen.tile.rules import ITEMSIZE
from rollergen.tile.segments import (
    Offsets,
    Progression,
    convolve_residues,
    distinct_transactions,
    offsets_of,
    scaled,
)
from rollergen.tile.visits import AxisVisits, StageLike, block_digits, visits_of

ENUMERATED_AT_MOST = 20_000_000
"""Elements that may be listed for one access before its tiles are cut."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one access of a stage moves: ``visits`` fillings (or blocks), ``transactions`` in all.

    ``role``: load | store; ``load``: position in the definition's loads, -1 for the store.
    """

    stage: str
    tensor: str
    role: str
    load: int
    visits: int
    transactions: int


@dataclass(frozen=True, slots=True)
class _Access:
    """A guarded access: the address is the sum of ``indices`` times ``strides``; ``transaction`` addresses are one."""

    indices: tuple[Index, ...]
    strides: tuple[int, ...]
    guard: tuple[Within, ...]
    transaction: int

    @property
    def offset(self) -> Index:
        total = Index()
        for index, stride in zip(self.indices, self.strides, strict=True):
            total = total + index * stride
        return total

    @staticmethod
    def of(
        indices: tuple[Index, ...], shape: tuple[int, ...], guard: tuple[Within, ...], dtype: str, bytes_: int
    ) -> _Access:
        itemsize = ITEMSIZE[dtype]
        common = gcd(itemsize, bytes_)
        strides, step = [], itemsize // common
        for extent in reversed(shape):
            strides.append(step)
            step *= extent
        return _Access(indices, tuple(reversed(strides)), guard, bytes_ // common)

    def by_axis(self, ranges: Mapping[str, tuple[int, int]]) -> _Access:
        """The same addresses with one dimension for each axis, where divisions and remainders cancel:
        a view of a whole row, split and joined again, is the row."""
        if self.guard or all(index.is_affine for index in self.indices):
            return self
        offset = recompose(self.offset)
        if not offset.is_affine or any(coefficient < 0 for _, coefficient in offset.terms):
            return self
        terms = sorted(offset.terms, key=lambda term: -term[1])
        reach = 0
        for atom, coefficient in reversed(terms):
            if coefficient <= reach:
                return self
            reach += coefficient * ranges[str(atom)][1]
        indices = (*(Index.axis(str(atom)) for atom, _ in terms), Index((), offset.const))
        return _Access(indices, (*(c for _, c in terms), 1), (), self.transaction)


def traffic(stage: StageLike, transaction_bytes: int, blocks: Sequence[int] | None = None) -> tuple[Traffic, ...]:
    """Transactions of each load (in order) and of the store, over all blocks or the given linear block numbers.

    Exact where all indices and guards are affine; for indices with ``//`` or ``%`` exact or an upper bound.
    """
    definition = stage.definition
    accesses = [
        (load.buffer, "load", number, _copy_depth(stage, number), load.indices, load.guard)
        for number, load in enumerate(definition.loads())
    ]
    accesses.append((definition.output, "store", -1, 0, definition.target, definition.where))
    found = []
    for buffer, role, number, depth, indices, guard in accesses:
        access = _Access.of(indices, buffer.shape, guard, buffer.dtype, transaction_bytes).by_axis(definition.ranges())
        visits = transactions = 0
        for digits in _chosen(stage, blocks):
            axes = visits_of(stage, depth, digits)
            visits += prod(len(own.bases) for own in axes.values())
            transactions += _transactions(access, axes)
        found.append(Traffic(stage.name, buffer.name, role, number, visits, transactions))
    return tuple(found)


def _chosen(stage: StageLike, blocks: Sequence[int] | None) -> Iterator[dict[int, int] | None]:
    if blocks is None:
        yield None
    else:
        for block in blocks:
            yield block_digits(stage, block)


def _copy_depth(stage: StageLike, load: int) -> int:
    """Depth of the load's copy from memory: the first of its chain; 0 (a whole block) without one."""
    own = [copy for copy in stage.copies if copy.load == load]
    filled = {copy.to_layer for copy in own}
    first = [copy for copy in own if copy.from_layer not in filled]
    return first[0].at_loop if first else 0


def _transactions(access: _Access, axes: dict[str, AxisVisits]) -> int:
    used = frozenset().union(*(i.axes() for i in access.indices), *(w.index.axes() for w in access.guard))
    repeats = prod(own.nonempty for name, own in axes.items() if name not in used)
    if repeats == 0:
        return 0
    own = {name: axes[name] for name in axes if name in used}
    plain = _separate_dimensions(access)
    return repeats * (_count_affine(access, own) if plain else _count_enumerated(access, own))


def _separate_dimensions(access: _Access) -> bool:
    """Whether the closed form applies: affine, each axis in one dimension, guards on the indices themselves."""
    seen: set[str] = set()
    for index in access.indices:
        if not index.is_affine or seen & index.axes():
            return False
        seen |= index.axes()
    return all(_guarded_dimension(access, bound) is not None for bound in access.guard)


def _guarded_dimension(access: _Access, bound: Within) -> int | None:
    return next((d for d, index in enumerate(access.indices) if index.terms and index.terms == bound.index.terms), None)


# --- closed form -----------------------------------------------------------------------------------


def _count_affine(access: _Access, axes: dict[str, AxisVisits]) -> int:
    """Over all combinations of the dimensions' classes: residue histogram times transactions by residue."""
    dimensions = [_dimension_classes(access, d, axes) for d in range(len(access.indices) - 1, -1, -1)]
    total = 0
    for combination in product(*(classes.items() for classes in dimensions)):
        levels = [scaled(offsets, access.strides[-1 - n]) for n, (offsets, _) in enumerate(combination)]
        starts = convolve_residues([histogram for _, histogram in combination], access.transaction)
        total += int(starts @ distinct_transactions(levels, access.transaction))
    return total


def _dimension_classes(access: _Access, d: int, axes: dict[str, AxisVisits]) -> dict[Offsets, np.ndarray]:
    """Relative index sets of one dimension with the residues at which they start, by number of visits."""
    index = access.indices[d]
    terms = [(axes[str(atom)], coefficient) for atom, coefficient in index.terms]
    low, high = _bounds(access, d)
    starts = np.full(1, index.const, dtype=np.int64)
    held = np.zeros((1, 0), dtype=np.int64)
    for own, coefficient in terms:
        starts = (starts[:, None] + own.bases * coefficient).ravel()
        held = np.concatenate(
            [np.repeat(held, len(own.bases), axis=0), np.tile(own.held(), len(held))[:, None]], axis=1
        )
    classes: dict[Offsets, np.ndarray] = {}
    for counts, clip, members in _groups(starts, held, low, high):
        values = _index_values(terms, counts, clip)
        if values is None:
            continue
        first, offsets = values
        residues = (starts[members] + first) * access.strides[d] % access.transaction
        histogram = np.bincount(residues, minlength=access.transaction)
        classes[offsets] = classes.get(offsets, np.zeros(access.transaction, dtype=np.int64)) + histogram
    return classes


def _bounds(access: _Access, d: int) -> tuple[int, int]:
    """The range that the guards leave of a dimension's index."""
    low, high = -(2**62), 2**62
    for bound in access.guard:
        if _guarded_dimension(access, bound) == d:
            shift = access.indices[d].const - bound.index.const
            low, high = max(low, bound.low + shift), min(high, bound.high + shift)
    return low, high


def _groups(
    starts: np.ndarray, held: np.ndarray, low: int, high: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, int], np.ndarray]]:
    """Visits with the same counts along each axis and the same distance to the guards, as far as these are near."""
    far = 2**40
    clips = np.stack([np.clip(low - starts, -far, far), np.clip(high - starts, -far, far)], axis=1)
    if low <= -(2**61):
        clips[:, 0] = -far
    if high >= 2**61:
        clips[:, 1] = far
    keys, inverse = np.unique(np.concatenate([held, clips], axis=1), axis=0, return_inverse=True)
    inverse = inverse.ravel()
    for number, key in enumerate(keys):
        yield tuple(int(v) for v in key[:-2]), (int(key[-2]), int(key[-1])), np.flatnonzero(inverse == number)


def _index_values(
    terms: Sequence[tuple[AxisVisits, int]], counts: tuple[int, ...], clip: tuple[int, int]
) -> tuple[int, Offsets] | None:
    """(first value, offsets) of the index relative to the visit's start; None where nothing is left."""
    if any(count == 0 for count in counts):
        return None
    if len(terms) == 1 and isinstance(terms[0][0].tile, Progression):
        step = terms[0][0].tile.step * terms[0][1]
        first, last = 0, (counts[0] - 1) * step
        if step < 0:
            first, last, step = last, first, -step
        first += max(0, -((first - clip[0]) // step)) * step if first < clip[0] else 0
        last = min(last, first + (clip[1] - 1 - first) // step * step)
        return (first, Progression((last - first) // step + 1, step)) if last >= first else None
    values = np.zeros(1, dtype=np.int64)
    for (own, coefficient), count in zip(terms, counts, strict=True):
        values = np.unique((values[:, None] + own.offsets[:count] * coefficient).ravel())
    values = values[(values >= clip[0]) & (values < clip[1])]
    return (int(values[0]), offsets_of(values)) if len(values) else None


# --- enumeration by classes ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What one group of axes adds: for each class of its visits, addresses [n] and guard indices [guards, n]."""

    weights: tuple[int, ...]
    addresses: tuple[np.ndarray, ...]
    bounds: tuple[np.ndarray, ...]


def _count_enumerated(access: _Access, axes: dict[str, AxisVisits]) -> int:
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


def _part(access: _Access, offset: Index, group: list[AxisVisits], ranges: Mapping[str, tuple[int, int]]) -> _Part:
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
    by one value of their kind, so that visits which differ in nothing else count as one class."""
    own = _own_terms(bound.index, names)
    rest = Index(tuple(term for term in bound.index.terms if term not in own.terms), bound.index.const)
    least, most = rest.bounds(ranges)
    low, high = bound.low - least, bound.high - most
    outside = bound.high - least

    def simplify(values: np.ndarray) -> np.ndarray:
        values = np.where((values < bound.low - most) | (values >= outside), outside, values)
        return np.where((values >= low) & (values < high), low, values)

    return simplify


def recompose(index: Index) -> Index:
    """`index` with ``d * (x // d) + x % d`` put together to x again, as often as that applies."""
    for atom, coefficient in index.terms:
        if not isinstance(atom, FloorDiv) or coefficient % atom.divisor:
            continue
        factor = coefficient // atom.divisor
        rest = atom.index % atom.divisor
        whole = len(rest.terms) == 1 and isinstance(rest.terms[0][0], Mod)
        if whole and all((term, factor * c) in index.terms for term, c in rest.terms):
            return recompose(index - Index(((atom, coefficient),)) - rest * factor + atom.index * factor)
    return index


def _own_terms(index: Index, names: set[str]) -> Index:
    def axes(atom: object) -> frozenset[str]:
        return frozenset([atom]) if isinstance(atom, str) else atom.index.axes()  # type: ignore[attr-defined]

    return Index(tuple((atom, c) for atom, c in index.terms if axes(atom) <= names))


def _coordinates(group: list[AxisVisits], bases: tuple[int, ...]) -> tuple[dict[str, np.ndarray], np.ndarray]:
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


def _cut(own: AxisVisits, period: int) -> AxisVisits:
    """The same axis in more, smaller visits that begin on multiples of the period."""
    if not period or not isinstance(own.tile, Progression) or own.tile.step != 1 or own.tile.count <= period:
        return own
    if (own.bases % period).any() or own.tile.count % period:
        return own
    pieces = np.arange(own.tile.count // period) * period
    return AxisVisits(own.axis, own.extent, (own.bases[:, None] + pieces).ravel(), Progression(period, 1))


def _sum_of_parts(access: _Access, const: int, parts: list[_Part]) -> int:
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


__all__ = ["Traffic", "traffic"]
