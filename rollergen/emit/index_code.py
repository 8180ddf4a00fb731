"""Index records -> C integer expressions.

C's ``/`` and ``%`` truncate, Python's floor: an operand that can be negative is first raised by a
multiple of the divisor.  ``int`` throughout, unless a value may pass 2^31 - 1: then the products
that make it up are computed as ``long``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from rollergen.expr.index import KEPT, Bounds, FloorDiv, Index, Mod, atom_bounds

INT_MAX = 2**31 - 1
_COEFFICIENT = itemgetter(1)


def index_code(index: Index, ranges: Mapping[str, Bounds]) -> str:
    """`index` as C text for variables within `ranges`.

    >>> index_code((Index.axis("i") * 56 - 1) // 3, {"i": (0, 9)})
    '(i*56 + 2)/3 - 1'
    """
    terms = index.terms
    if not terms:
        if -INT_MAX <= index.const <= INT_MAX:
            return str(index.const)
    elif len(terms) == 1 and not index.const:  # most places are a number, or a variable by itself
        atom, coefficient = terms[0]
        if coefficient == 1 and isinstance(atom, str):
            low, high = ranges[atom]
            if low >= -INT_MAX and high <= INT_MAX:
                return atom
    return _text(index, tuple(map(ranges.__getitem__, index.names())))


@lru_cache(maxsize=KEPT)
def _text(index: Index, known: tuple[Bounds, ...]) -> str:
    """`index` whose names have the `known` bounds: the same places are named in many candidates of an operator."""
    return _sum(index, dict(zip(index.names(), known, strict=True)))


def forget() -> None:
    """Drops the texts that are kept: for what measures building from the start, or prints otherwise."""
    _text.cache_clear()
    _division.cache_clear()


def is_wide(index: Index, ranges: Mapping[str, Bounds]) -> bool:
    """Whether the value, or a partial sum of it, may not fit an ``int``."""
    reach = abs(index.const)
    for atom, coefficient in index.terms:
        low, high = ranges[atom] if type(atom) is str else atom_bounds(atom, ranges)  # type: ignore[arg-type]
        reach += abs(coefficient) * (high if low >= 0 else max(-low, high))
    return reach > INT_MAX


def _sum(index: Index, ranges: Mapping[str, Bounds], wide: bool = False) -> str:
    """`index` as an ``int``, or as a ``long`` where it is `wide` or turns out to be."""
    text, const, reach = "", index.const, abs(index.const)
    terms = _printed(index.terms)
    if const > 0 and terms and terms[0][1] < 0:  # nothing else is added
        text, const = str(const), 0
    for atom, coefficient in terms:
        size = abs(coefficient)
        if isinstance(atom, str):
            product, (low, high) = atom, ranges[atom]
            if wide:
                product = f"(long){product}"
        else:
            product, (low, high) = _division(atom, tuple(map(ranges.__getitem__, atom.index.names())))
            if wide:
                product = f"(long)({product})"
            elif size > 1 or " - " in product:
                product = f"({product})"
        reach += size * (high if low >= 0 else max(-low, high))
        if size > 1:
            product += f"*{size}"
        if text:
            text += f" + {product}" if coefficient > 0 else f" - {product}"
        else:
            text = product if coefficient > 0 else f"-{product}"
    if reach > INT_MAX and not wide:
        return _sum(index, ranges, wide=True)
    if not text:
        return f"{const}L" if wide else str(const)
    return f"{text} {'-' if const < 0 else '+'} {abs(const)}" if const else text


def _printed(terms: Sequence[tuple[str | FloorDiv | Mod, int]]) -> Sequence[tuple[str | FloorDiv | Mod, int]]:
    """What is added before what is subtracted, large steps first."""
    if len(terms) < 2:
        return terms
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
    text = _sum(inner, ranges)
    text = text if text.isidentifier() else f"({text})"
    if isinstance(atom, Mod):
        return f"{text} % {atom.divisor}"
    return f"{text}/{atom.divisor} - {raise_by}" if raise_by else f"{text}/{atom.divisor}"
