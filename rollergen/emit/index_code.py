"""Index records -> C integer expressions.

C's ``/`` and ``%`` truncate, Python's floor: an operand that can be negative is first raised by a
multiple of the divisor.  ``int`` throughout, unless a value may pass 2^31 - 1: then the products
that make it up are computed in 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from rollergen.expr.index import KEPT, Atom, Bounds, FloorDiv, Index, Mod, atom_bounds, divided_bounds

INT_MAX = 2**31 - 1
_COEFFICIENT = itemgetter(1)
Terms = Sequence[tuple[Atom, int]]


LONG = ("long", "L")
"""The type of 64-bit integers, and what their literals end in."""


def index_code(
    index: Index, ranges: Mapping[str, Bounds], wide: bool = False, long: tuple[str, str] = LONG
) -> str:
    """`index` as C text for variables within `ranges`: an ``int``, or a ``long`` where it is `wide` or turns out so.

    >>> index_code((Index.axis("i") * 56 - 1) // 3, {"i": (0, 9)})
    '(i*56 + 2)/3 - 1'
    """
    terms: Terms = index.terms
    const = index.const
    if not terms:
        return str(const) if -INT_MAX <= const <= INT_MAX and not wide else f"{const}{long[1]}"
    atom, coefficient = terms[0]
    if len(terms) > 1:
        last = terms[-1][1]
        if len(terms) > 2 or last > coefficient or last < 0:  # else they are in order
            terms = _printed(terms)
    elif coefficient == 1 and not const and not wide and type(atom) is str:  # most places are a variable by itself
        low, high = ranges[atom]
        if low >= -INT_MAX and high <= INT_MAX:
            return atom
    reach, text = abs(const), ""
    if const > 0 and terms[0][1] < 0:  # nothing else is added
        text, const = str(const), 0
    for atom, coefficient in terms:
        if type(atom) is str:
            low, high = ranges[atom]
            product = f"({long[0]}){atom}" if wide else atom
        else:
            names = atom.index.names()  # type: ignore[union-attr]
            product, (low, high) = _division(atom, tuple(map(ranges.__getitem__, names)), long)  # type: ignore[arg-type]
            if wide:
                product = f"({long[0]})({product})"
            elif coefficient > 1 or coefficient < -1 or " - " in product:
                product = f"({product})"
        farthest = high if low >= 0 else max(-low, high)
        if coefficient > 0:
            reach += coefficient * farthest
            if coefficient > 1:
                product = f"{product}*{coefficient}"
            text = f"{text} + {product}" if text else product
        else:
            reach -= coefficient * farthest
            if coefficient < -1:
                product = f"{product}*{-coefficient}"
            text = f"{text} - {product}" if text else f"-{product}"
    if reach > INT_MAX and not wide:
        return index_code(index, ranges, True, long)
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
def _division(atom: FloorDiv | Mod, known: tuple[Bounds, ...], long: tuple[str, str]) -> tuple[str, Bounds]:
    """An atom whose names have the `known` bounds, and its own."""
    inner, divisor = atom.index, atom.divisor
    ranges = dict(zip(inner.names(), known, strict=True))
    low, high = inner.bounds(ranges)
    below = low // divisor
    text = index_code(inner + -below * divisor if below < 0 else inner, ranges, False, long)
    text = text if text.isidentifier() else f"({text})"
    if type(atom) is Mod:
        return f"{text} % {divisor}", divided_bounds(atom, low, high)
    return f"{text}/{divisor} - {-below}" if below < 0 else f"{text}/{divisor}", divided_bounds(atom, low, high)
