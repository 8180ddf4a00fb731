"""Runs: neighbours along an axis that read one element, as two nibbles their byte and a group its scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rollergen.expr.index import Bounds, Index
from rollergen.expr.values import Load
from rollergen.expr.views import reduced

LONGEST = 1024
"""Neighbours of the longest runs that are looked for."""


def of_runs(load: Load, axis: str, every: int, ranges: Mapping[str, Bounds]) -> Load | None:
    """`load` along an axis of whose points each stands for `every` neighbours; None where these read several elements
    or a guard tells them apart."""
    if every == 1:
        return load
    found = [_of_runs(index, axis, every, ranges) for index in load.indices]
    if None in found or any(axis in one.index.axes() for one in load.guard):
        return None
    return replace(load, indices=tuple(found))  # type: ignore[arg-type]


def is_same_in_runs(index: Index, axis: str, every: int, ranges: Mapping[str, Bounds]) -> bool:
    """Whether the index is the same for all of each run of `every` neighbours along the axis, whole runs of which make
    up its extent."""
    if axis not in index.axes():
        return True
    return (ranges[axis][1] + 1) % every == 0 and _of_runs(index, axis, every, ranges) is not None


def _of_runs(index: Index, axis: str, every: int, ranges: Mapping[str, Bounds]) -> Index | None:
    """The index along an axis of whose points each stands for `every`; None where it differs among these."""
    within = f"{axis} within"
    low, high = ranges[axis]
    known = {**ranges, axis: (low // every, high // every), within: (0, every - 1)}
    found = reduced(index.substitute({axis: Index.axis(axis) * every + Index.axis(within)}), known)
    return None if within in found.axes() else found


def run_along(load: Load, axis: str, ranges: Mapping[str, Bounds]) -> int:
    """The longest run along an axis: a power of two that divides its extent, up to `LONGEST`."""
    extent, every = ranges[axis][1] + 1, 1
    while 2 * every <= LONGEST and extent % (2 * every) == 0 and of_runs(load, axis, 2 * every, ranges) is not None:
        every *= 2
    return every
