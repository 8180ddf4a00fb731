"""Test inputs that any language makes alike: every element is a hash of its place.

Element i of input number s under seed d holds the 64-bit word ``mix((d << 48) + (s << 40) + i)``, `mix` being the
finaliser of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
The word's upper bits make the value:

    whole numbers of magnitude m: (word >> 32) % (2 m + 1) - m     true and false: word >> 63
    integers: (word >> 60) - 8, -8 ... 7                          floats: (word >> (64 - p)) * 2^(1 - p) - 1
    integers from l to h (`rg.scalar`): l + (word >> 32) % (h - l + 1)

p is the number of significant bits of the dtype, so that every value in [-1, 1) is exact.  The launchers of a
saved kernel hold the same rules again; a test compares them.
"""

from __future__ import annotations

from math import prod

import numpy as np

from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.index import Bounds
from rollergen.expr.takes import Bounded
from rollergen.expr.values import Buffer
from rollergen.hal.dtypes import DTYPES

_PIECE = 1 << 20  # elements made at a time


def made_array(buffer: Buffer, seed: int, position: int, magnitude: int | None) -> np.ndarray:
    """The contents of an input, which is number ``position`` of the program's: its shape, its dtype.

    ``magnitude`` None: values anywhere; else whole numbers from ``-magnitude`` to it.
    """
    count = prod(buffer.shape)
    made = np.empty(count, numpy_dtype(buffer.dtype))
    first = (seed << 48) + (position << 40)
    for start in range(0, count, _PIECE):
        stop = min(start + _PIECE, count)
        words = _mixed(np.arange(first + start, first + stop, dtype=np.uint64))
        bounds = (buffer.low, buffer.high) if isinstance(buffer, Bounded) else None
        made[start:stop] = _values(words, buffer.dtype, magnitude, bounds).astype(made.dtype)
    return made.reshape(buffer.shape)


def _mixed(words: np.ndarray) -> np.ndarray:
    words = words * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _values(words: np.ndarray, dtype: str, magnitude: int | None, bounds: Bounds | None = None) -> np.ndarray:
    if bounds is not None:
        low, high = bounds
        return low + ((words >> np.uint64(32)) % np.uint64(high - low + 1)).astype(np.int64)
    if dtype == "bool":
        return words >> np.uint64(63)
    unsigned = not DTYPES[dtype].signed
    if magnitude is not None:
        numbers = ((words >> np.uint64(32)) % np.uint64(2 * magnitude + 1)).astype(np.int64) - magnitude
        return np.abs(numbers) if unsigned else numbers
    if not is_float(dtype):
        return (words >> np.uint64(60)).astype(np.int64) - (0 if unsigned else 8)
    bits = DTYPES[dtype].significant
    return (words >> np.uint64(64 - bits)).astype(np.float64) * 2.0 ** (1 - bits) - 1.0
