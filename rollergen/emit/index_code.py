"""Index records -> C integer expressions.

C's ``/`` and ``%`` truncate, Python's floor: an operand that can be negative is first raised by a
multiple of the divisor.  ``int`` throughout, unless a value may pass 2^31 - 1: then the products
that make it up are computed as ``long``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rollergen.expr.index import KEPT, Bounds, FloorDiv, Index, Mod, atom_bounds

INT_MAX = 2**31 - 1


def index_code(index: Index, ranges: Mapping[str, Bounds]) -> str:
    """`index` as C text for variables within `ranges`.

    >>> index_code((Index.axis("i") * 56 - 1) // 3, {"i": (0, 9)})
    '(i*56 + 2)/3 - 1'
    """
    return _plain(index, ranges) or _text(index, tuple([ranges[name] for name in index.names()]))


def _plain(index: Index, ranges: Mapping[str, Bounds]) -> str:
    """What most places are: a number, or a variable by itself; empty for any other."""
    if not index.terms:
        return str(index.const) if abs(index.const) <= INT_MAX else ""
    atom, coefficient = index.terms[0]
    if not isinstance(atom, str) or coefficient != 1 or index.const or len(index.terms) > 1:
        return ""
    low, high = ranges[atom]
    return atom if max(abs(low), abs(high)) <= INT_MAX else ""


@lru_cache(maxsize=KEPT)
def _text(index: Index, known: tuple[Bounds, ...]) -> str:
    """`index` whose names have the `known` bounds: the same places are named in many candidates of an operator."""
    ranges = dict(zip(index.names(), known, strict=True))
    return _sum(index, ranges, is_wide(index, ranges))


def forget() -> None:
    """Drops the texts that are kept: for what measures building from the start, or prints otherwise."""
    _text.cache_clear()


def is_wide(index: Index, ranges: Mapping[str, Bounds]) -> bool:
    """Whether the value, or a partial sum of it, may not fit an ``int``."""
    reach = abs(index.const)
    for atom, coefficient in index.terms:
        low, high = ranges[atom] if isinstance(atom, str) else atom_bounds(atom, ranges)
        reach += abs(coefficient) * max(abs(low), abs(high))
    return reach > INT_MAX


def _sum(index: Index, ranges: Mapping[str, Bounds], wide: bool) -> str:
    text = ""
    const = index.const
    if const > 0 and index.terms and all(c < 0 for _, c in index.terms):
        text, const = f"{const}", 0
    for atom, coefficient in sorted(index.terms, key=_order) if len(index.terms) > 1 else index.terms:
        sign, size = ("-" if coefficient < 0 else "+"), abs(coefficient)
        product = _atom(atom, ranges, wide, size)
        if text:
            text += f" {sign} {product}"
        else:
            text = product if sign == "+" else f"-{product}"
    if not text:
        return f"{const}L" if wide else str(const)
    return f"{text} {'-' if const < 0 else '+'} {abs(const)}" if const else text


def _order(term: tuple[object, int]) -> tuple[bool, int]:
    """What is added before what is subtracted, large steps first."""
    return term[1] < 0, -abs(term[1])


def _atom(atom: str | FloorDiv | Mod, ranges: Mapping[str, Bounds], wide: bool, factor: int) -> str:
    if isinstance(atom, str):
        text = f"(long){atom}" if wide else atom
        return text if factor == 1 else f"{text}*{factor}"
    text = _divided(atom, ranges)
    if wide:
        text = f"(long)({text})"
        return text if factor == 1 else f"{text}*{factor}"
    return text if factor == 1 and " - " not in text else f"({text})" + (f"*{factor}" if factor > 1 else "")


def _divided(atom: FloorDiv | Mod, ranges: Mapping[str, Bounds]) -> str:
    low, _ = atom.index.bounds(ranges)
    raise_by = -(low // atom.divisor) if low < 0 else 0
    inner = atom.index + raise_by * atom.divisor
    text = _sum(inner, ranges, is_wide(inner, ranges))
    text = text if text.isidentifier() else f"({text})"
    if isinstance(atom, Mod):
        return f"{text} % {atom.divisor}"
    return f"{text}/{atom.divisor} - {raise_by}" if raise_by else f"{text}/{atom.divisor}"
