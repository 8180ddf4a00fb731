"""Arithmetic that takes Python numbers (one program) and NumPy arrays (a batch) alike.

Plain numbers take the plain path: a NumPy call on two ints costs more than the rest of a term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from itertools import repeat
from operator import mul
from typing import Any

import numpy as np

Number = Any
"""An int or float, or an array of them (one entry for each program of a batch)."""


def least(a: Number, b: Number) -> Number:
    if type(a) is np.ndarray or type(b) is np.ndarray:
        return np.minimum(a, b)
    return a if a < b else b


def most(a: Number, b: Number) -> Number:
    if type(a) is np.ndarray or type(b) is np.ndarray:
        return np.maximum(a, b)
    return a if a > b else b


def product(factors: Collection[Number]) -> Number:
    """Their product, from the first one on: NumPy would copy what is multiplied by a plain 1."""
    return reduce(mul, factors) if factors else 1


def times(a: Number, b: Number) -> Number:
    """``a * b``, without that copy."""
    if type(a) is int and a == 1:
        return b
    return a if type(b) is int and b == 1 else a * b


def is_nothing(value: Number) -> bool:
    """Whether `value` is 0 for every program, and known to be."""
    return type(value) is not np.ndarray and value == 0


def ceil_div(a: Number, b: Number) -> Number:
    return -(-a // b)


def choose(condition: Number, a: Number, b: Number) -> Number:
    """``a`` where `condition` holds, else ``b``; both are evaluated."""
    if type(condition) is np.ndarray:
        return np.where(condition, a, b)
    return a if condition else b


def gcd(a: Number, b: Number) -> Number:
    if type(a) is np.ndarray:
        return _gcd_of_power(a, b) if type(b) is int and b > 0 and b & (b - 1) == 0 else np.gcd(a, b)
    return np.gcd(a, b) if type(b) is np.ndarray else math.gcd(a, b)


def _gcd_of_power(values: np.ndarray, power: int) -> np.ndarray:
    """gcd with a power of two: the lowest bit set, thirty times as fast as Euclid's on arrays."""
    lowest = values & -values
    return np.where(lowest == 0, power, np.minimum(lowest, power))


def whole(value: Number) -> Number:
    """`value` as an int (array): floors."""
    return value.astype(np.int64) if type(value) is np.ndarray else int(value)


def clip(value: Number, low: float, high: float) -> Number:
    return least(most(value, low), high)


def ratio(a: Number, b: Number) -> Number:
    """``a / b``, and 0 where b is 0 (a rate that the device does not have costs nothing)."""
    if type(b) is np.ndarray:
        return np.divide(a, b, out=np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b))), where=b != 0)
    return a / b if b else a * 0


def whole_log2(value: Number) -> Number:
    """Steps of a tree over `value` items."""
    if type(value) is np.ndarray:
        return np.ceil(np.log2(np.maximum(value, 1)))
    return (value - 1).bit_length() if value > 1 else 0


def size_key(value: Number) -> float:
    """What orders loops of one axis by stride: a mean orders a batch as it does each program."""
    return float(np.add.reduce(value) / len(value)) if type(value) is np.ndarray else float(value)


def per_distinct(function: Callable[..., float], columns: list[Number]) -> Number:
    """``function(*row)`` for each program, called once for every distinct row of integer `columns`."""
    return per_distinct_rows(lambda rows: [function(*row) for row in rows], columns)


def per_distinct_rows(function: Callable[[list[tuple[int, ...]]], Sequence[float]], columns: list[Number]) -> Number:
    """What ``function(rows)`` says of each program's row of integer `columns`; it is given every distinct row once."""
    rows, each = distinct_rows(columns)
    found = function(rows)
    return found[0] if each is None else np.array([found[at] for at in each], dtype=float)


def distinct_rows(columns: list[Number]) -> tuple[list[tuple[int, ...]], list[int] | None]:
    """Every distinct row of integer `columns`, and which of them each program has (None: there is one program).

    Lists, for batches are short: some tens of programs of few distinct rows."""
    arrays = [c for c in columns if type(c) is np.ndarray]
    if not arrays:
        return [tuple(map(int, columns))], None
    lists = [c.tolist() if type(c) is np.ndarray else repeat(int(c)) for c in columns]
    numbers: dict[tuple[int, ...], int] = {}
    each = [numbers.setdefault(row, len(numbers)) for row in zip(*lists, strict=False)]
    return list(numbers), each
