"""A guarded access to a tensor, as addresses: what both ways of counting its transactions start from."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import FloorDiv, Index, Mod
from rollergen.expr.values import Within
from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """A guarded access: the address is the sum of ``indices`` times ``strides``; ``transaction`` addresses are one."""

    indices: tuple[Index, ...]
    strides: tuple[int, ...]
    guard: tuple[Within, ...]
    transaction: int

    @property
    def offset(self) -> Index:
        total = Index()
        for index, stride in zip(self.indices, self.strides, strict=True):
            total = total + index * stride
        return total

    @staticmethod
    def of(
        indices: tuple[Index, ...], shape: tuple[int, ...], guard: tuple[Within, ...], dtype: str, bytes_: int
    ) -> Access:
        itemsize = ITEMSIZE[dtype]
        common = gcd(itemsize, bytes_)
        strides, step = [], itemsize // common
        for extent in reversed(shape):
            strides.append(step)
            step *= extent
        return Access(indices, tuple(reversed(strides)), guard, bytes_ // common)

    def by_axis(self, ranges: Mapping[str, tuple[int, int]]) -> Access:
        """The same addresses with one dimension for each axis, where divisions and remainders cancel:
        a view of a whole row, split and joined again, is the row."""
        if self.guard or all(index.is_affine for index in self.indices):
            return self
        offset = recompose(self.offset)
        if not offset.is_affine or any(coefficient < 0 for _, coefficient in offset.terms):
            return self
        terms = sorted(offset.terms, key=lambda term: -term[1])
        reach = 0
        for atom, coefficient in reversed(terms):
            if coefficient <= reach:
                return self
            reach += coefficient * ranges[str(atom)][1]
        indices = (*(Index.axis(str(atom)) for atom, _ in terms), Index((), offset.const))
        return Access(indices, (*(c for _, c in terms), 1), (), self.transaction)


def recompose(index: Index) -> Index:
    """`index` with ``d * (x // d) + x % d`` put together to x again, as often as that applies."""
    for atom, coefficient in index.terms:
        if not isinstance(atom, FloorDiv) or coefficient % atom.divisor:
            continue
        factor = coefficient // atom.divisor
        rest = atom.index % atom.divisor
        whole = len(rest.terms) == 1 and isinstance(rest.terms[0][0], Mod)
        if whole and all((term, factor * c) in index.terms for term, c in rest.terms):
            return recompose(index - Index(((atom, coefficient),)) - rest * factor + atom.index * factor)
    return index
