"""Index records -> C integer expressions.

C's ``/`` and ``%`` truncate, Python's floor: an operand that can be negative is first raised by a
multiple of the divisor.  ``int`` throughout, unless a value may pass 2^31 - 1: then the products
that make it up are computed as ``long``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from rollergen.expr.index import KEPT, Atom, Bounds, FloorDiv, Index, Mod, atom_bounds

INT_MAX = 2**31 - 1
_COEFFICIENT = itemgetter(1)
Terms = Sequence[tuple[Atom, int]]


def index_code(index: Index, ranges: Mapping[str, Bounds], wide: bool = False) -> str:
    """`index` as C text for variables within `ranges`: an ``int``, or a ``long`` where it is `wide` or turns out so.

    >>> index_code((Index.axis("i") * 56 - 1) // 3, {"i": (0, 9)})
    '(i*56 + 2)/3 - 1'
    """
    terms: Terms = index.terms
    const = index.const
    if not terms:
        return str(const) if -INT_MAX <= const <= INT_MAX and not wide else f"{const}L"
    if len(terms) > 1:
        terms = _printed(terms)
    elif not const and not wide:  # most places are a variable by itself
        atom, coefficient = terms[0]
        if coefficient == 1 and type(atom) is str:
            low, high = ranges[atom]
            if low >= -INT_MAX and high <= INT_MAX:
                return atom
    reach, text = abs(const), ""
    if const > 0 and terms[0][1] < 0:  # nothing else is added
        text, const = str(const), 0
    for atom, coefficient in terms:
        size = coefficient if coefficient > 0 else -coefficient
        if type(atom) is str:
            low, high = ranges[atom]
            product = f"(long){atom}" if wide else atom
        else:
            names = atom.index.names()  # type: ignore[union-attr]
            product, (low, high) = _division(atom, tuple(map(ranges.__getitem__, names)))  # type: ignore[arg-type]
            if wide:
                product = f"(long)({product})"
            elif size > 1 or " - " in product:
                product = f"({product})"
        reach += size * (high if low >= 0 else max(-low, high))
        if size > 1:
            product = f"{product}*{size}"
        if text:
            text = f"{text} + {product}" if coefficient > 0 else f"{text} - {product}"
        else:
            text = product if coefficient > 0 else f"-{product}"
    if reach > INT_MAX and not wide:
        return index_code(index, ranges, wide=True)
    if const:
        return f"{text} + {const}" if const > 0 else f"{text} - {-const}"
    return text


def forget() -> None:
    """Drops the texts that are kept: for what measures building from the start, or prints otherwise."""
    _division.cache_clear()


def is_wide(index: Index, ranges: Mapping[str, Bounds]) -> bool:
    """Whether the value, or a partial sum of it, may not fit an ``int``."""
    reach = abs(index.const)
    for atom, coefficient in index.terms:
        low, high = ranges[atom] if type(atom) is str else atom_bounds(atom, ranges)  # type: ignore[arg-type]
        reach += abs(coefficient) * (high if low >= 0 else max(-low, high))
    return reach > INT_MAX


def _printed(terms: Terms) -> Terms:
    """What is added before what is subtracted, large steps first."""
    ordered = sorted(terms, key=_COEFFICIENT, reverse=True)
    if ordered[-1][1] > 0:
        return ordered
    return sorted(terms, key=lambda term: (term[1] < 0, -abs(term[1])))


@lru_cache(maxsize=KEPT)
def _division(atom: FloorDiv | Mod, known: tuple[Bounds, ...]) -> tuple[str, Bounds]:
    """An atom whose names have the `known` bounds, and its own."""
    ranges = dict(zip(atom.index.names(), known, strict=True))
    return _divided(atom, ranges), atom_bounds(atom, ranges)


def _divided(atom: FloorDiv | Mod, ranges: Mapping[str, Bounds]) -> str:
    low, _ = atom.index.bounds(ranges)
    raise_by = -(low // atom.divisor) if low < 0 else 0
    inner = atom.index + raise_by * atom.divisor if raise_by else atom.index
    text = index_code(inner, ranges)
    text = text if text.isidentifier() else f"({text})"
    if isinstance(atom, Mod):
        return f"{text} % {atom.divisor}"
    return f"{text}/{atom.divisor} - {raise_by}" if raise_by else f"{text}/{atom.divisor}"
