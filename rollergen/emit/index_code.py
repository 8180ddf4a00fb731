"""Index records -> C integer expressions, and what is known of the addresses that they make.

C's ``/`` and ``%`` truncate, Python's floor: an operand that can be negative is first raised by a
multiple of the divisor.  ``int`` throughout, unless a value may pass 2^31 - 1: then the products
that make it up are computed in 64 bits.

`Alignment` knows of addresses the largest power of two, in bytes, that surely divides each.  CUDA faults on a vector
access whose address is no multiple of its size, and has no unaligned vectors to fall back on, so its printer asks for a
proof: `Alignment` follows a kernel statement by statement, as it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd
from operator import itemgetter

from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.expr.index import KEPT, Atom, Bounds, FloorDiv, Index, Mod, atom_bounds, divided_bounds
from rollergen.lower.expressions import STORAGE_BYTES, Pointer
from rollergen.lower.ir import Allocate, Kernel, Point

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


class Alignment:
    """Known factors of the pointers that are in scope.

    They are found when they are asked for, as few are: what a name in scope was defined by is then in scope too.
    """

    def __init__(self, kernel: Kernel | None = None) -> None:
        parameters = kernel.parameters if kernel is not None else ()
        self._pointers: dict[str, int | Point] = {pointer.name: ARGUMENT_BYTES for pointer in parameters}

    def allocate(self, node: Allocate) -> None:
        self._pointers[node.name] = max(node.alignment, STORAGE_BYTES.get(node.dtype, 1))

    def point(self, node: Point) -> None:
        self._pointers[node.pointer.name] = node

    def of(self, pointer: Pointer, offset: Index, integers: dict[str, int | Index]) -> int:
        """Bytes that surely divide the address ``pointer + offset``; ``integers``: as `factor` has them, of those in
        scope."""
        size = STORAGE_BYTES[pointer.dtype]
        known = self._pointers.get(pointer.name, size)
        if isinstance(known, Point):
            known = self._pointers[pointer.name] = self.of(known.base, known.offset, integers)
        return gcd(known, factor(offset, integers) * size)


def factor(index: Index, integers: dict[str, int | Index] | None = None) -> int:
    """The largest integer known to divide `index`, given factors of its variables or what these stand for (then their
    factors take its place); 0 for the index 0.

    >>> i, j = Index.axis("i"), Index.axis("j")
    >>> factor(i * 12 + (j % 4) * 8 + 4), factor((i * 32) // 4 + (j * 6) % 4), factor(i, {"i": 16})
    (4, 2, 16)
    """
    integers = {} if integers is None else integers
    known = abs(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            given = integers.get(atom, 1)
            if isinstance(given, Index):
                given = integers[atom] = factor(given, integers)
            own = given
        else:
            inner, by = factor(atom.index, integers), atom.divisor
            own = (inner // by if inner % by == 0 else 1) if isinstance(atom, FloorDiv) else gcd(inner, by)
        known = gcd(known, coefficient * own)
    return known
