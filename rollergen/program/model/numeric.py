"""Arithmetic on the columns of a batch: one entry for each program, or one number where all programs share it.

NumPy's broadcasting makes both alike, so that a program is a batch of one and nothing asks which it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from itertools import count, repeat
from operator import mul
from typing import Any

import numpy as np

Number = Any
"""A column: an array with an entry for each program, or the number that all of them share."""

least, most = np.minimum, np.maximum
_ARRAYS = np.ndarray, np.generic


def choose(condition: Number, if_so: Number, if_not: Number) -> Number:
    """`np.where`; of a condition that all programs share, one of both as it is, in a tenth of the time."""
    if condition is True or condition is False:
        return if_so if condition else if_not
    return np.where(condition, if_so, if_not)


def product(factors: Collection[Number]) -> Number:
    """Their product, from the first one on: NumPy would copy what is multiplied by a plain 1."""
    return reduce(mul, factors) if factors else 1


def is_nothing(value: Number) -> bool:
    """Whether `value` is 0 for every program."""
    return not (np.count_nonzero(value) if isinstance(value, np.ndarray) else value)


def is_one(value: Number) -> bool:
    """Whether `value` is 1 for every program."""
    return is_nothing(value - 1)


def ceil_div(a: Number, b: Number) -> Number:
    return -(-a // b)


def gcd(a: Number, b: Number) -> Number:
    """Greatest common divisor.  Of a power of two it is the lowest bit set, found thirty times as fast as by Euclid."""
    if isinstance(b, int) and b > 0 and b & (b - 1) == 0:
        lowest = a & -a
        return choose(lowest == 0, b, least(lowest, b))
    return np.gcd(a, b)


def clip(value: Number, low: float, high: float) -> Number:
    return least(most(value, low), high)


def whole_log2(value: Number) -> Number:
    """Steps of a tree over `value` items."""
    return np.ceil(np.log2(most(value, 1)))


def size_key(value: Number) -> float:
    """A key that orders loops of one axis by stride: a mean orders a batch as it does each program."""
    return float(np.add.reduce(value, axis=None) / value.size if isinstance(value, np.ndarray) else value)


def per_distinct(function: Callable[..., float], columns: list[Number]) -> Number:
    """Values of ``function(*row)`` for each program; the function is called once for every distinct row of integer
    `columns`."""
    return per_distinct_rows(lambda rows: [function(*row) for row in rows], columns)


def per_distinct_rows(function: Callable[[list[tuple[int, ...]]], Sequence[float]], columns: list[Number]) -> Number:
    """Values of ``function(rows)`` for each program's row of integer `columns`; the function is given every distinct
    row once."""
    rows, each = distinct_rows(columns)
    return np.array(function(rows), dtype=float)[each]


def distinct_rows(columns: Sequence[Number]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Every distinct row of integer `columns`, and which of them each program has.

    Lists, for batches are short: some tens of programs of few distinct rows."""
    lists = [column.ravel().tolist() if isinstance(column, _ARRAYS) else [column] for column in columns]
    several = max(map(len, lists), default=1) > 1
    numbers: dict[tuple[int, ...], int] = defaultdict(count().__next__)
    rows = zip(*[repeat(*one) if several and len(one) == 1 else one for one in lists], strict=False)
    each = list(map(numbers.__getitem__, rows)) or [numbers[()]]
    return list(numbers), each
