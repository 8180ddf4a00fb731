"""Views: the same memory under another shape, so that indices get simpler; what indices are when simplified; and where
whole groups of neighbours along an axis lie side by side in memory and pass their bounds together.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import Atom, Bounds, FloorDiv, Index, Mod
from rollergen.expr.values import Load, Within

Shape = tuple[int, ...]
Indices = tuple[Index, ...]


def simplified(shape: Shape, indices: Indices, ranges: Mapping[str, Bounds]) -> tuple[Shape, Indices]:
    """The access without dimensions of extent 1, indices simplified, split numbers joined.

    Before: ``X[p // 56, p % 56]`` of (56, 56).  After: ``X[p]`` of (3136,).
    """
    kept = [(extent, reduced(index, ranges)) for extent, index in zip(shape, indices, strict=True) if extent > 1]
    position = len(kept) - 2
    while position >= 0:
        (outer, i), (inner, j) = kept[position], kept[position + 1]
        if not (i.is_affine or j.is_affine):
            joined = reduced(i * inner + j, ranges)
            if _complexity(joined) < _complexity(i) + _complexity(j):
                kept[position : position + 2] = [(outer * inner, joined)]
        position -= 1
    return tuple(extent for extent, _ in kept), tuple(index for _, index in kept)


def _complexity(index: Index) -> int:
    """Divisions and remainders in `index`, nested ones included."""
    return sum(1 + _complexity(atom.index) for atom, _ in index.terms if not isinstance(atom, str))


def merged(shape: Shape, indices: Indices, outer: str, inner: str, extent: int) -> tuple[Shape, Indices] | None:
    """The access with two axes as one (called `outer`; `inner` has `extent`); None if it does not allow that.

    Before: ``X[c, y, x]`` of (64, 56, 56).  After merging y and x: ``X[c, y]`` of (64, 3136).
    """
    a_at = [d for d, index in enumerate(indices) if outer in index.names()]
    b_at = [d for d, index in enumerate(indices) if inner in index.names()]
    if not a_at and not b_at:
        return shape, indices
    if len(a_at) != 1 or len(b_at) != 1:
        return None
    (d,), (e,) = a_at, b_at
    if d == e:
        joined = merged_index(indices[d], outer, inner, extent)
        return None if joined is None else (shape, (*indices[:d], joined, *indices[d + 1 :]))
    i = indices[d]
    if e != d + 1 or shape[e] != extent or indices[e] != Index.axis(inner) or i.coefficient(outer) != 1:
        return None
    rest = i - Index.axis(outer)
    if outer in rest.names():
        return None
    joined = rest * extent + Index.axis(outer)
    return (*shape[:d], shape[d] * extent, *shape[e + 1 :]), (*indices[:d], joined, *indices[e + 1 :])


def merged_index(index: Index, outer: str, inner: str, extent: int) -> Index | None:
    """``c*extent*outer + c*inner`` as ``c*outer``; None where the two occur otherwise."""
    names = index.names()
    if outer not in names and inner not in names:
        return index
    c = index.coefficient(inner)
    if not c or index.coefficient(outer) != c * extent:
        return None
    rest = index - Index.axis(inner) * c - Index.axis(outer) * (c * extent)
    if outer in rest.names() or inner in rest.names():
        return None
    return rest + Index.axis(outer) * c


def unflattened(shape: Shape, indices: Indices, extents: Mapping[str, int]) -> tuple[Shape, Indices]:
    """The access with ``a*E + b`` (b of extent E) over a whole dimension as two dimensions."""
    new_shape: list[int] = []
    new_indices: list[Index] = []
    for extent, index in zip(shape, indices, strict=True):
        parts = _two_digits(extent, index, extents)
        for part_extent, part in parts or ((extent, index),):
            new_shape.append(part_extent)
            new_indices.append(part)
    return tuple(new_shape), tuple(new_indices)


def _two_digits(extent: int, index: Index, extents: Mapping[str, int]) -> tuple[tuple[int, Index], ...] | None:
    if len(index.terms) != 2 or index.const or not index.is_affine:
        return None
    (b, low), (a, high) = sorted(index.terms, key=lambda term: term[1])
    if low != 1 or extents[str(b)] != high or extents[str(a)] * high != extent:
        return None
    return (extent // high, Index.axis(str(a))), (high, Index.axis(str(b)))


def recombine(index: Index) -> Index:
    """The same index with ``c*d*(x // d) + c*(x % d)`` written ``c*x``, wherever it occurs.

    >>> p = Index.axis("p")
    >>> str(recombine((p // 12) * 12 + ((p % 12) // 3) * 3 + p % 3))
    'p'
    """
    while not index.is_affine:
        joined = _join_once(index)
        if joined is None:
            return index
        index = joined
    return index


def reduced(index: Index, ranges: Mapping[str, Bounds]) -> Index:
    """`index` recombined and simplified for axes within `ranges`."""
    if index.is_affine:
        return index.simplify(ranges)
    return recombine(index.simplify(ranges)).simplify(ranges)


def _join_once(index: Index) -> Index | None:
    coefficients = dict(index.terms)
    for atom, c in index.terms:
        if not isinstance(atom, Mod):
            continue
        for quotient, factor, whole in _partners(atom, coefficients):
            if coefficients.get(quotient) == c * factor:
                rest = Index(tuple(t for t in index.terms if t[0] not in (atom, quotient)), index.const)
                return rest + whole * c
    return None


def _partners(remainder: Mod, atoms: Mapping[Atom, int]) -> list[tuple[Atom, int, Index]]:
    """(quotient, factor, whole) with ``quotient * factor + remainder == whole``."""
    x, d = remainder.index, remainder.divisor
    found: list[tuple[Atom, int, Index]] = []
    quotient = x // d
    if len(quotient.terms) == 1 and quotient.terms[0][1] == 1 and quotient.const == 0:
        found.append((quotient.terms[0][0], d, x))
    for atom in atoms:
        if isinstance(atom, FloorDiv) and atom.divisor == d and len(atom.index.terms) == 1 and not atom.index.const:
            inner, c = atom.index.terms[0]
            if isinstance(inner, Mod) and c == 1 and inner.index == x and inner.divisor % d == 0:
                found.append((atom, d, atom.index))  # (x % dm) // d and x % d
        if isinstance(atom, Mod) and atom.index == x // d:
            found.append((atom, d, x % (d * atom.divisor)))  # (x // d) % m and x % d
    return found


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


def realignable(load: Load, axis: str) -> bool:
    """Whether vectors along `axis` may be put together of what lies around them: neighbours everywhere, under no guard,
    of which those beyond the axis are zeros."""
    return in_a_row(load, axis) and not load.guard and load.fill == 0


def _of_one_bound(bound: Within, axis: str, vector: int, guarded: bool) -> bool:
    step = step_within(bound.index, axis, vector)
    if guarded and step == (1, True):
        return bound.low % vector == bound.high % vector == 0
    return step is not None and step[0] == 0
