"""Transactions of affine accesses whose dimensions have axes of their own: closed forms, class by class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from rollergen.expr.values import Within
from rollergen.tile.axis_tiles import AxisTiles
from rollergen.tile.guarded_access import Access
from rollergen.tile.segments import (
    Offsets,
    Progression,
    convolve_residues,
    distinct_transactions,
    offsets_of,
    scaled,
)


def has_separate_dimensions(access: Access) -> bool:
    """Whether the closed form applies: affine, each axis in one dimension, guards on the indices themselves."""
    seen: set[str] = set()
    for index in access.indices:
        if not index.is_affine or seen & index.axes():
            return False
        seen |= index.axes()
    return all(_guarded_dimension(access, bound) is not None for bound in access.guard)


def _guarded_dimension(access: Access, bound: Within) -> int | None:
    return next((d for d, index in enumerate(access.indices) if index.terms and index.terms == bound.index.terms), None)


def count_affine(access: Access, axes: dict[str, AxisTiles]) -> int:
    """Over all combinations of the dimensions' classes: residue histogram times transactions by residue."""
    dimensions = [_dimension_classes(access, d, axes) for d in range(len(access.indices) - 1, -1, -1)]
    total = 0
    for combination in product(*(classes.items() for classes in dimensions)):
        levels = [scaled(offsets, access.strides[-1 - n]) for n, (offsets, _) in enumerate(combination)]
        starts = convolve_residues([histogram for _, histogram in combination], access.transaction)
        total += int(starts @ distinct_transactions(levels, access.transaction))
    return total


def _dimension_classes(access: Access, d: int, axes: dict[str, AxisTiles]) -> dict[Offsets, np.ndarray]:
    """Relative index sets of one dimension with the residues at which they start, by number of tiles."""
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
    reach = 1 + sum(abs(coefficient) * own.last_offset for own, coefficient in terms)
    for counts, clip, members in _groups(starts, held, low, high, reach):
        values = _index_values(terms, counts, clip)
        if values is None:
            continue
        first, offsets = values
        residues = (starts[members] + first) * access.strides[d] % access.transaction
        histogram = np.bincount(residues, minlength=access.transaction)
        classes[offsets] = classes.get(offsets, np.zeros(access.transaction, dtype=np.int64)) + histogram
    return classes


def _bounds(access: Access, d: int) -> tuple[int, int]:
    """The range that the guards leave of a dimension's index."""
    low, high = -(2**62), 2**62
    for bound in access.guard:
        if _guarded_dimension(access, bound) == d:
            shift = access.indices[d].const - bound.index.const
            low, high = max(low, bound.low + shift), min(high, bound.high + shift)
    return low, high


def _groups(
    starts: np.ndarray, held: np.ndarray, low: int, high: int, reach: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, int], np.ndarray]]:
    """Tiles with the same counts along each axis and the same distance to the guards, which counts as far as a tile
    reaches: all tiles that no guard cuts are one group."""
    clips = np.stack([np.clip(low - starts, -reach, reach), np.clip(high - starts, -reach, reach)], axis=1)
    facts = np.concatenate([held, clips], axis=1)
    group = np.zeros(len(facts), dtype=np.int64)
    for column in facts.T:  # a hundred times as fast as np.unique of rows
        values, own = np.unique(column, return_inverse=True)
        group = np.unique(group * len(values) + own, return_inverse=True)[1]
    for number, first in enumerate(np.unique(group, return_index=True)[1]):
        *counts, low_clip, high_clip = facts[first].tolist()
        yield tuple(counts), (low_clip, high_clip), np.flatnonzero(group == number)


def _index_values(
    terms: Sequence[tuple[AxisTiles, int]], counts: tuple[int, ...], clip: tuple[int, int]
) -> tuple[int, Offsets] | None:
    """(first value, offsets) of the index relative to the tile's start; None where nothing is left."""
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
