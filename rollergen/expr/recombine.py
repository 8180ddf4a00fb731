"""Quotients and remainders that belong together, put together again."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import Atom, Bounds, FloorDiv, Index, Mod


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
