"""Figures of an index over a tile: how far it reaches, how many values it has, and what divides them."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import FloorDiv, Index, Mod
from rollergen.program.model.numeric import Number, ceil_div, gcd, least, product


def range_of(index: Index, spans: Mapping[str, Number]) -> Number:
    """Distance from the least to the largest value, plus 1, when each axis runs over its span from a tile's start."""
    reached: Number = 1 - sum(abs(coefficient) for _, coefficient in index.terms)
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            inner = spans.get(atom, 1)
        elif isinstance(atom, FloorDiv):
            inner = ceil_div(range_of(atom.index, spans), atom.divisor)
        else:
            inner = least(range_of(atom.index, spans), atom.divisor)
        reached = reached + abs(coefficient) * inner
    return reached


def count_of(index: Index, spans: Mapping[str, Number]) -> Number:
    """Distinct values of the index over a tile: at most its range, at most the product of its atoms' counts."""
    return count_within(index, spans, range_of(index, spans))


def count_within(index: Index, spans: Mapping[str, Number], reached: Number) -> Number:
    """`count_of` an index whose range is known."""
    counts = []
    for atom, _ in index.terms:
        if isinstance(atom, str):
            counts.append(spans.get(atom, 1))
        elif isinstance(atom, FloorDiv):
            counts.append(ceil_div(range_of(atom.index, spans), atom.divisor))
        else:
            counts.append(least(count_of(atom.index, spans), atom.divisor))
    return least(product(counts), reached)


def alignment_of(index: Index, steps: Mapping[str, Number]) -> Number:
    """A number that divides every value of the index (without its constant) when axes move in multiples of `steps`."""
    found: Number = 0
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            step = steps.get(atom, 0)
        elif isinstance(atom, Mod):
            step = gcd(alignment_of(atom.index, steps), atom.divisor)
        else:
            step = 1
        found = gcd(found, abs(coefficient) * step)
    return found


def divisors_of(index: Index, axis: str) -> frozenset[int]:
    """Divisors of the divisions and remainders of `index` that `axis` runs through."""
    found: frozenset[int] = frozenset()
    for atom, _ in index.terms:
        if not isinstance(atom, str) and axis in atom.index.axes():
            found |= {atom.divisor} | divisors_of(atom.index, axis)
    return found
