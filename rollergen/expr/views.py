"""Views: the same memory under another shape, so that indices get simpler."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import Bounds, Index
from rollergen.expr.recombine import reduced
from rollergen.expr.rewrite import Indices

Shape = tuple[int, ...]


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
