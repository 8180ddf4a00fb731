"""Views: the same memory under another shape, so that indices get simpler; and what indices are when simplified."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import Atom, Bounds, FloorDiv, Index, Mod

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
