"""Quasi-affine integer indices as plain records.

An index is ``constant + sum(coefficient * atom)``; an atom is an axis (its name) or a floor
division or remainder of another index by a positive constant.  Division and remainder follow
Python (towards minus infinity); whoever prints C asks `Index.bounds` before writing ``/``.

>>> i, j = Index.axis("i"), Index.axis("j")
>>> str((i * 56 + j) // 56), str(((i * 56 + j) // 56).simplify({"i": (0, 9), "j": (0, 55)}))
('((j)//56) + i', 'i')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, Union

Bounds = tuple[int, int]


class _Remembered:
    """Hash and text, found once: every sum of indices asks its atoms for both."""

    __slots__ = ("_hash", "_text")
    _hash: int
    _text: str

    def _keep(self, name: str, value: Any) -> Any:
        object.__setattr__(self, name, value)
        return value


@dataclass(frozen=True, slots=True)
class FloorDiv(_Remembered):
    """``index // divisor`` with a divisor of at least 2."""

    index: Index
    divisor: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return self._keep("_hash", hash((self.index, self.divisor)))

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            return self._keep("_text", f"({self.index})//{self.divisor}")


@dataclass(frozen=True, slots=True)
class Mod(_Remembered):
    """``index % divisor`` with a divisor of at least 2; never negative."""

    index: Index
    divisor: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return self._keep("_hash", hash((self.index, -self.divisor)))

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            return self._keep("_text", f"({self.index})%{self.divisor}")


Atom = Union[str, FloorDiv, Mod]


def _ordered(total: Mapping[Atom, int], const: int) -> Index:
    kept = [(atom, c) for atom, c in total.items() if c]
    if len(kept) > 1:
        try:
            kept.sort()  # by name, where all atoms are axes; atoms differ, so coefficients are never compared
        except TypeError:
            kept.sort(key=lambda term: str(term[0]))
    return Index(tuple(kept), const)


def weighted_sum(parts: Iterable[tuple[Index, int]], const: int = 0) -> Index:
    """``const + sum(index * factor)`` over (index, factor) pairs."""
    total: dict[Atom, int] = {}
    for index, factor in parts:
        const += index.const * factor
        for atom, coefficient in index.terms:
            total[atom] = total.get(atom, 0) + coefficient * factor
    return _ordered(total, const)


def _replaced(index: Index, kept: list[tuple[Atom, int]], parts: list[tuple[Index, int]]) -> Index:
    """`index` itself where all its terms are kept, else what is kept and the weighted parts instead of the others."""
    if not parts:
        return index
    if all(not part.terms for part, _ in parts):
        return Index(tuple(kept), index.const + sum(part.const * factor for part, factor in parts))
    return weighted_sum([(Index(tuple(kept)), 1), *parts], index.const)


@dataclass(frozen=True, slots=True)
class Index(_Remembered):
    """``const + sum(coefficient * atom)``, terms sorted by atom, no zero coefficients."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return self._keep("_hash", hash((self.terms, self.const)))

    @staticmethod
    def axis(name: str) -> Index:
        return Index(((name, 1),))

    @staticmethod
    def of(value: int | Index) -> Index:
        return value if isinstance(value, Index) else Index((), int(value))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        if not other.terms or not self.terms:
            return Index(self.terms or other.terms, self.const + other.const)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + coefficient
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
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        whole, rest = self._split(divisor)
        if not rest.terms:
            return whole + rest.const // divisor
        if len(rest.terms) == 1 and rest.const == 0:
            atom, coefficient = rest.terms[0]
            if coefficient == 1 and isinstance(atom, FloorDiv):
                return whole + Index(((FloorDiv(atom.index, atom.divisor * divisor), 1),))
        return whole + Index(((FloorDiv(rest, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        _, rest = self._split(divisor)
        if not rest.terms:
            return Index((), rest.const % divisor)
        if len(rest.terms) == 1 and rest.const == 0:
            atom, coefficient = rest.terms[0]
            if coefficient == 1 and isinstance(atom, Mod) and atom.divisor % divisor == 0:
                return atom.index % divisor
        return Index(((Mod(rest, divisor), 1),))

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """``(q, r)`` with ``self == q * divisor + r``: what divides evenly, and what is left."""
        if divisor < 1:
            raise ValueError(f"divisor is {divisor}; expected an integer of at least 1")
        if divisor == 1:
            return self, Index()
        whole = tuple((a, c // divisor) for a, c in self.terms if c % divisor == 0)
        rest = tuple((a, c) for a, c in self.terms if c % divisor)
        return Index(whole, self.const // divisor), Index(rest, self.const % divisor)

    def axes(self) -> frozenset[str]:
        """Names of all axes that occur, inside divisions and remainders too."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= {atom} if isinstance(atom, str) else atom.index.axes()
        return frozenset(names)

    def coefficient(self, axis: str) -> int:
        """Coefficient of the plain axis (0 where it occurs only inside ``//`` or ``%``)."""
        return next((c for atom, c in self.terms if atom == axis), 0)

    @property
    def is_affine(self) -> bool:
        return all(isinstance(atom, str) for atom, _ in self.terms)

    def substitute(self, mapping: Mapping[str, Index]) -> Index:
        """Every named axis replaced by its index; axes not named stay."""
        kept, parts = [], []
        for term in self.terms:
            atom, coefficient = term
            if isinstance(atom, str):
                new = mapping.get(atom)
            else:
                inner = atom.index.substitute(mapping)
                if inner is atom.index:
                    new = None
                else:
                    new = inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor
            if new is None:
                kept.append(term)
            else:
                parts.append((new, coefficient))
        return _replaced(self, kept, parts)

    def bounds(self, ranges: Mapping[str, Bounds]) -> Bounds:
        """Inclusive (low, high) over axes within their inclusive `ranges`; KeyError if one lacks."""
        low = high = self.const
        for atom, coefficient in self.terms:
            if isinstance(atom, str):
                a, b = ranges[atom]
            else:
                a, b = atom.index.bounds(ranges)
                if isinstance(atom, FloorDiv):
                    a, b = a // atom.divisor, b // atom.divisor
                elif a // atom.divisor == b // atom.divisor:
                    a, b = a % atom.divisor, b % atom.divisor
                else:
                    a, b = 0, atom.divisor - 1
            if coefficient < 0:
                a, b = b, a
            low, high = low + coefficient * a, high + coefficient * b
        return low, high

    def simplify(self, ranges: Mapping[str, Bounds]) -> Index:
        """The same index for axes within `ranges`, with divisions resolved where these allow."""
        if self.is_affine:
            fixed = [(a, c) for a, c in self.terms if ranges[a][0] == ranges[a][1]]  # type: ignore[index]
            if not fixed:
                return self
            const = self.const + sum(c * ranges[a][0] for a, c in fixed)  # type: ignore[index, misc]
            return Index(tuple(t for t in self.terms if t not in fixed), const)
        kept, parts = [], []
        for term in self.terms:
            atom, coefficient = term
            if isinstance(atom, str):
                low, high = ranges[atom]
                if low == high:
                    parts.append((Index((), low), coefficient))
                else:
                    kept.append(term)
            else:
                new = _simplify_atom(atom, ranges)
                if new.terms == ((atom, 1),) and not new.const:
                    kept.append(term)
                else:
                    parts.append((new, coefficient))
        return _replaced(self, kept, parts)

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


def _simplify_atom(atom: FloorDiv | Mod, ranges: Mapping[str, Bounds]) -> Index:
    inner = atom.index.simplify(ranges)
    divisor = atom.divisor
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
    return (inner // divisor) if quotient else (inner % divisor)


def _grain(rest: Index, divisor: int, ranges: Mapping[str, Bounds]) -> int:
    """The largest divisor g of `divisor` for which `rest` is a multiple of g and something within 0 .. g - 1:
    only the multiple takes part in the division."""
    for grain in sorted({gcd(c, divisor) for _, c in rest.terms}, reverse=True):
        fine = rest._split(grain)[1]
        if grain > 1 and len(fine.terms) < len(rest.terms):
            low, high = fine.bounds(ranges)
            if low >= 0 and high < grain:
                return grain
    return 1


@dataclass(frozen=True, slots=True)
class Within:
    """The predicate ``low <= index < high``: one bound of a guard."""

    index: Index
    low: int
    high: int

    def substitute(self, mapping: Mapping[str, Index]) -> Within:
        return Within(self.index.substitute(mapping), self.low, self.high)

    def always(self, ranges: Mapping[str, Bounds]) -> bool:
        """Whether the bound holds for every value of the axes within `ranges`."""
        low, high = self.index.bounds(ranges)
        return low >= self.low and high < self.high

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        at = self.index.evaluate(values)
        return (at >= self.low) & (at < self.high)

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


def linear(indices: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
    """Row-major element offset of `indices` into a tensor of `shape`."""
    parts, stride = [], 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        parts.append((index, stride))
        stride *= extent
    return weighted_sum(parts)


IndexMap = Callable[[Index], Index]
