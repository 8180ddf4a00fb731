"""Neighbours along an axis: where whole groups of them lie side by side in memory and pass their bounds together."""

from __future__ import annotations

from rollergen.expr.index import Index, Mod
from rollergen.expr.values import Load, Within


def step_within(index: Index, axis: str, vector: int) -> tuple[int, bool] | None:
    """(what one step along `axis` adds to `index` within a group, whether groups begin at multiples of `vector`).

    Groups of `vector` begin at multiples of `vector` of the axis.  A quotient or remainder by a multiple of `vector`
    does not wrap within a group that begins at one: the one stays as it is, the other moves with its index.  None
    where a division may wrap within a group.

    >>> i = Index.axis("i")
    >>> step_within(i // 64 + i % 64, "i", 8), step_within(i // 64, "i", 8), step_within((i + 1) % 64, "i", 8)
    ((1, False), (0, False), None)
    """
    step, begins = 0, index.const % vector == 0
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            inner, whole = (1, True) if atom == axis else (0, False)
        elif axis not in atom.index.axes():
            inner, whole = 0, False
        else:
            within = step_within(atom.index, axis, vector)
            if within is None or (within[0] and (within != (1, True) or atom.divisor % vector)):
                return None
            inner, whole = within if isinstance(atom, Mod) and within[0] else (0, False)
        step += coefficient * inner
        begins = begins and (whole or coefficient % vector == 0)
    return step, begins


def side_by_side(offset: Index, axis: str, extent: int, vector: int) -> bool:
    """Whether every group of `vector` along `axis` is adjacent, aligned, and wholly inside the axis or beyond it."""
    return extent % vector == 0 and step_within(offset, axis, vector) == (1, True)


def moved_at_once(load: Load, axis: str, extent: int, vector: int, *, guarded: bool = True) -> bool:
    """Whether every group of `vector` along `axis` is one aligned vector of the load's tensor, of which its guard
    allows all or nothing: no bound tells the group's elements apart or (``guarded``) its ends lie between groups."""
    if not all(_of_one_bound(bound, axis, vector, guarded) for bound in load.guard):
        return False
    return side_by_side(load.offset(), axis, extent, vector)


def in_a_row(load: Load, axis: str) -> bool:
    """Whether neighbours along `axis` are neighbours in the load's tensor everywhere, and of one guard: any group of
    them may be moved at once by who needs no aligned addresses."""
    offset = load.offset()
    bounded = any(axis in bound.index.axes() for bound in load.guard)
    divided = any(not isinstance(atom, str) and axis in atom.index.axes() for atom, _ in offset.terms)
    return not divided and offset.coefficient(axis) == 1 and not bounded


def _of_one_bound(bound: Within, axis: str, vector: int, guarded: bool) -> bool:
    step = step_within(bound.index, axis, vector)
    if guarded and step == (1, True):
        return bound.low % vector == bound.high % vector == 0
    return step is not None and step[0] == 0
