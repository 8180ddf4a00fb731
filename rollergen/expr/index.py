"""Quasi-affine integer indices as plain records.

An index is ``constant + sum(coefficient * atom)``; an atom is an axis (its name) or a floor
division or remainder of another index by a positive constant.  Division and remainder follow
Python (towards minus infinity); whoever prints C asks `Index.bounds` before writing ``/``.

>>> i, j = Index.axis("i"), Index.axis("j")
>>> str((i * 56 + j) // 56), str(((i * 56 + j) // 56).simplify({"i": (0, 9), "j": (0, 55)}))
('((j)//56) + i', 'i')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from math import gcd
from operator import itemgetter
from typing import Any, ClassVar, Union

from rollergen.expr.limits import Divisor
from rollergen.hal.dataclass import dataclass

Bounds = tuple[int, int]

KEPT = 64
"""Results of each operation that are kept: the candidates of one operator ask for few different ones again and again,
the next operator asks for others.  Twice or four times as many build convolutions 5 % faster, and scatter so many small
objects between what builds free that 300 kernels keep a MiB more."""


class _Copied:
    """Values with something that is found later: copied by their fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Divided(_Copied):
    """Atoms are in the order of their texts, among names of axes too.

    Hash and text are found once: every sum of indices asks its atoms for them.
    """

    index: Index
    divisor: Divisor
    SYMBOL: ClassVar[str]

    def __lt__(self, other: Atom) -> bool:
        return str(self) < str(other)

    def __gt__(self, other: Atom) -> bool:
        return str(self) > str(other)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _hash(self) -> int:
        return hash((self.index, self.divisor, self.SYMBOL))

    @cached_property
    def _text(self) -> str:
        return f"({self.index}){self.SYMBOL}{self.divisor}"


class FloorDiv(_Divided):
    """``index // divisor`` with a divisor of at least 2."""

    SYMBOL = "//"


class Mod(_Divided):
    """``index % divisor`` with a divisor of at least 2; never negative."""

    SYMBOL = "%"


Atom = Union[str, FloorDiv, Mod]
_ATOM = itemgetter(0)


def _ordered(total: Mapping[Atom, int], const: int) -> Index:
    kept = list(total.items())
    if 0 in total.values():
        kept = [term for term in kept if term[1]]
    if len(kept) > 1:
        kept.sort(key=_ATOM)
    return Index(tuple(kept), const)


def weighted_sum(parts: Iterable[tuple[Index, int]], const: int = 0) -> Index:
    """``const + sum(index * factor)`` over (index, factor) pairs."""
    total: dict[Atom, int] = {}
    for index, factor in parts:
        const += index.const * factor
        for atom, coefficient in index.terms:
            total[atom] = total.get(atom, 0) + coefficient * factor
    return _ordered(total, const)


@dataclass(frozen=True)
class Index(_Copied):
    """``const + sum(coefficient * atom)``, terms sorted by atom, no zero coefficients."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __hash__(self) -> int:
        return hash((self.terms, self.const))

    @staticmethod
    @lru_cache(maxsize=KEPT)
    def axis(name: str) -> Index:
        return Index(((name, 1),))

    @staticmethod
    def of(value: int | Index) -> Index:
        return value if isinstance(value, Index) else Index((), int(value))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        if not other.terms:
            return Index(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Index(other.terms, self.const + other.const) if self.const else other
        last, first = self.terms[-1][0], other.terms[0][0]
        if type(last) is str and type(first) is str and last < first:  # in order already
            return Index(self.terms + other.terms, self.const + other.const)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + coefficient
        if len(total) == len(self.terms):  # in order already
            return Index(tuple([term for term in total.items() if term[1]]), self.const + other.const)
        return _ordered(total, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1)

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        if factor == 1:
            return self
        return Index(tuple([(a, c * factor) for a, c in self.terms]), self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        return self if divisor == 1 else _quotient(self, divisor)

    def __mod__(self, divisor: int) -> Index:
        return _remainder(self, divisor)

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """``(q, r)`` with ``self == q * divisor + r``: what divides evenly, and what is left."""
        if divisor < 1:
            raise ValueError(f"divisor is {divisor}; expected an integer of at least 1")
        if divisor == 1:
            return self, Index()
        whole = tuple([(a, c // divisor) for a, c in self.terms if c % divisor == 0])
        return Index(whole, self.const // divisor), self._rest(divisor)

    def _rest(self, divisor: int) -> Index:
        """What `divisor` does not divide evenly."""
        rest = [term for term in self.terms if term[1] % divisor]
        if len(rest) == len(self.terms) and 0 <= self.const < divisor:
            return self
        return Index(tuple(rest), self.const % divisor)

    def axes(self) -> frozenset[str]:
        """Names of all axes that occur, inside divisions and remainders too."""
        return frozenset(self.names())

    def names(self) -> tuple[str, ...]:
        """`axes` in alphabetical order."""
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        names = [atom for atom, _ in self.terms if isinstance(atom, str)]
        if len(names) == len(self.terms):  # in the order of their atoms
            return tuple(names)
        within = [atom.index.names() for atom, _ in self.terms if not isinstance(atom, str)]
        return tuple(sorted(set(names).union(*within)))

    def coefficient(self, axis: str) -> int:
        """Coefficient of the plain axis (0 where it occurs only inside ``//`` or ``%``)."""
        for atom, coefficient in self.terms:
            if type(atom) is str and atom == axis:
                return coefficient
        return 0

    @property
    def is_affine(self) -> bool:
        return all(isinstance(atom, str) for atom, _ in self.terms)

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        """Every named axis replaced by its index; axes not named stay."""
        total: dict[Atom, int] = {}
        const, same = self.const, True
        for atom, coefficient in self.terms:
            if isinstance(atom, str):
                new = mapping.get(atom)
            else:
                new = _substituted(atom, tuple(map(mapping.get, atom.index.names())))
            if new is None:
                total[atom] = total.get(atom, 0) + coefficient
            else:
                same = False
                const += new.const * coefficient
                for inner, factor in new.terms:
                    total[inner] = total.get(inner, 0) + factor * coefficient
        return self if same else _ordered(total, const)

    def without(self, axis: str) -> Index:
        """The same without the plain axis' term: the axis at 0, where it occurs in no ``//`` or ``%``."""
        kept = tuple([term for term in self.terms if type(term[0]) is not str or term[0] != axis])
        return self if len(kept) == len(self.terms) else Index(kept, self.const)

    def bounds(self, ranges: Mapping[str, Bounds]) -> Bounds:
        """Inclusive (low, high) over axes within their inclusive `ranges`; KeyError if one lacks."""
        low = high = self.const
        for atom, coefficient in self.terms:
            if isinstance(atom, str):
                a, b = ranges[atom]
            else:
                a, b = atom_bounds(atom, ranges)
            if coefficient < 0:
                a, b = b, a
            low, high = low + coefficient * a, high + coefficient * b
        return low, high

    def simplify(self, ranges: Mapping[str, Bounds]) -> Index:
        """The same index for axes within `ranges`, with divisions resolved where these allow."""
        kept: list[tuple[Atom, int]] = []
        parts: list[tuple[Index, int]] = []
        const = self.const
        for term in self.terms:
            atom, coefficient = term
            if type(atom) is str:
                low, high = ranges[atom]
                if low != high:
                    kept.append(term)
                else:
                    const += coefficient * low
            else:
                known = tuple(map(ranges.__getitem__, atom.index.names()))  # type: ignore[union-attr]
                new = _simplified_atom(atom, known)  # type: ignore[arg-type]
                if new is None:
                    kept.append(term)
                elif new.terms:
                    parts.append((new, coefficient))
                else:
                    const += coefficient * new.const
        if parts:
            return weighted_sum([(Index(tuple(kept)), 1), *parts], const)
        return self if len(kept) == len(self.terms) else Index(tuple(kept), const)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The number (or NumPy array) for the given values of the axes."""
        total: Any = self.const
        for atom, coefficient in self.terms:
            if isinstance(atom, str):
                value = values[atom]
            elif isinstance(atom, FloorDiv):
                value = atom.index.evaluate(values) // atom.divisor
            else:
                value = atom.index.evaluate(values) % atom.divisor
            total = total + (value if coefficient == 1 else coefficient * value)
        return total

    def __str__(self) -> str:
        if not self.terms:
            return str(self.const)
        text = ""
        for atom, c in self.terms:
            name = str(atom) if isinstance(atom, str) or (len(self.terms) == 1 and abs(c) == 1) else f"({atom})"
            sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
            text += sign + (name if abs(c) == 1 else f"{abs(c)}*{name}")
        if self.const:
            text += f" {'-' if self.const < 0 else '+'} {abs(self.const)}"
        return text


@lru_cache(maxsize=KEPT)
def _quotient(index: Index, divisor: int) -> Index:
    whole, rest = index._split(divisor)
    if not rest.terms:
        return whole + rest.const // divisor
    if len(rest.terms) == 1 and rest.const == 0:
        atom, coefficient = rest.terms[0]
        if coefficient == 1 and isinstance(atom, FloorDiv):
            return whole + Index(((FloorDiv(atom.index, atom.divisor * divisor), 1),))
    return whole + Index(((FloorDiv(rest, divisor), 1),))


@lru_cache(maxsize=KEPT)
def _remainder(index: Index, divisor: int) -> Index:
    _, rest = index._split(divisor)
    if not rest.terms:
        return Index((), rest.const % divisor)
    if len(rest.terms) == 1 and rest.const == 0:
        atom, coefficient = rest.terms[0]
        if coefficient == 1 and isinstance(atom, Mod) and atom.divisor % divisor == 0:
            return atom.index % divisor
    return Index(((Mod(rest, divisor), 1),))


@lru_cache(maxsize=KEPT)
def _substituted(atom: FloorDiv | Mod, new: tuple[Index | None, ...]) -> Index | None:
    """The atom with each of its names replaced (None: it stays); None where nothing is."""
    names = atom.index.names()
    inner = atom.index.substitute({name: index for name, index in zip(names, new, strict=True) if index is not None})
    if inner is atom.index:
        return None
    return inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor


def atom_bounds(atom: FloorDiv | Mod, ranges: Mapping[str, Bounds]) -> Bounds:
    """Inclusive (low, high) of an atom over axes within their inclusive `ranges`."""
    return _bounded(atom, tuple(map(ranges.__getitem__, atom.index.names())))


@lru_cache(maxsize=KEPT)
def _bounded(atom: FloorDiv | Mod, known: tuple[Bounds, ...]) -> Bounds:
    """Bounds of an atom whose names have the `known` ones."""
    return divided_bounds(atom, *atom.index.bounds(dict(zip(atom.index.names(), known, strict=True))))


def divided_bounds(atom: FloorDiv | Mod, low: int, high: int) -> Bounds:
    """Bounds of an atom whose index has these."""
    divisor = atom.divisor
    if type(atom) is FloorDiv:
        return low // divisor, high // divisor
    if low // divisor == high // divisor:
        return low % divisor, high % divisor
    return 0, divisor - 1


@lru_cache(maxsize=KEPT)
def _simplified_atom(atom: FloorDiv | Mod, known: tuple[Bounds, ...]) -> Index | None:
    """An atom simplified where its names have the `known` bounds; None: it stays."""
    divisor = atom.divisor
    if len(known) == 1 and atom.index == Index.axis(atom.index.names()[0]):  # a variable by itself: a thread's number
        low, high = known[0]
        if low // divisor != high // divisor:
            return None
    ranges = dict(zip(atom.index.names(), known, strict=True))
    inner = atom.index.simplify(ranges)
    whole, rest = inner._split(divisor)
    quotient = isinstance(atom, FloorDiv)
    low, high = rest.bounds(ranges)
    if low // divisor == high // divisor:
        block = low // divisor
        return whole + block if quotient else rest - block * divisor
    grain = _grain(rest, divisor, ranges)
    if grain > 1:
        coarse, fine = rest._split(grain)
        steps = divisor // grain
        return whole + coarse // steps if quotient else (coarse % steps) * grain + fine
    new = (inner // divisor) if quotient else (inner % divisor)
    return None if new.terms == ((atom, 1),) and not new.const else new


def _grain(rest: Index, divisor: int, ranges: Mapping[str, Bounds]) -> int:
    """The largest divisor g of `divisor` for which `rest` is a multiple of g and something within 0 .. g - 1:
    only the multiple takes part in the division."""
    for grain in sorted({gcd(c, divisor) for _, c in rest.terms}, reverse=True):
        if grain == 1:
            break
        fine = rest._rest(grain)
        if len(fine.terms) < len(rest.terms):
            low, high = fine.bounds(ranges)
            if low >= 0 and high < grain:
                return grain
    return 1


@lru_cache(maxsize=KEPT)
def linear(indices: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
    """Row-major element offset of `indices` into a tensor of `shape`."""
    parts, stride = [], 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        parts.append((index, stride))
        stride *= extent
    return weighted_sum(parts)
