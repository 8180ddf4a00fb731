"""The inputs on which candidates are checked: one table, with what each kind catches.

*Whole* kinds make all elements of all inputs.  The first is also what candidates are timed on; the second is the first
of `SECOND` that says something about the program; then comes `EQUAL`.  *Hostile* kinds replace few elements of the
first kind: those that sampled output elements depend on (`adversarial.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from rollergen.expr.arithmetic import wide
from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Bounds
from rollergen.expr.values import Buffer
from rollergen.gate.arrays import fill_ramp, fill_random, fill_whole, random_array
from rollergen.gate.blocks import puts_of
from rollergen.gate.facts import Facts
from rollergen.gate.tolerance import unit_roundoff
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES
from rollergen.program.rprogram import RProgram

LARGE = 1024.0
"""Exact in most floating dtypes, its products of two within float32's and bfloat16's range."""


def _large(dtype: str) -> float:
    """`LARGE`, or the largest power of two of a dtype that ends before."""
    most = float(ml_dtypes.finfo(dtype).max)
    return LARGE if most >= LARGE else 2.0 ** math.floor(math.log2(most))


BEYOND = {"float64": 1000.0}
"""exp of it passes the range of the dtype (float64: 709, float32: 88), of the others' `_BEYOND`, where the float64
definition can still tell what comes out."""

_BEYOND = 200.0


@dataclass(frozen=True, slots=True)
class Whole:
    """``fill(array, buffer, number of the input, facts, random)`` makes the elements of one input in place.

    ``exact``: every value of the program is a whole number held exactly, so that results have no tolerance.
    """

    title: str
    catches: str
    applies: Callable[[Facts], bool]
    fill: Callable[[np.ndarray, Buffer, int, Facts, np.random.Generator], None]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Hostile:
    """``values(dtype, facts)``: float64 or int64 numbers to put in place of few elements, none: leave the input alone.

    ``sparse``: so few that most results remain ordinary.  ``absolute``: errors lie on the scale of the definition on
    absolute inputs.
    """

    title: str
    catches: str
    applies: Callable[[Facts], bool]
    values: Callable[[str, Facts], np.ndarray]
    sparse: Callable[[Facts], bool] = lambda facts: False
    absolute: bool = False


def _random(array: np.ndarray, buffer: Buffer, number: int, facts: Facts, random: np.random.Generator) -> None:
    fill_random(array, random)
    if facts.few and is_float(buffer.dtype):
        np.abs(array, out=array)


def _ramp(array: np.ndarray, buffer: Buffer, number: int, facts: Facts, random: np.random.Generator) -> None:
    fill_ramp(array, facts.ramp or 0)


def _small(array: np.ndarray, buffer: Buffer, number: int, facts: Facts, random: np.random.Generator) -> None:
    """Not negative where results are rounded to a narrow dtype: then sums pass what it holds, and many are ties."""
    fill_whole(array, 0 if facts.narrowed else -(facts.magnitude or 0), facts.magnitude or 0, random)


def _equal(array: np.ndarray, buffer: Buffer, number: int, facts: Facts, random: np.random.Generator) -> None:
    if not is_float(buffer.dtype):
        array[...] = 1 if buffer.dtype == "bool" else 7
    elif facts.exponential:
        array[...] = -BEYOND.get(buffer.dtype, _BEYOND)
    else:
        array[...] = 0.1 * (number + 1)  # no multiple of a power of two: every addition rounds


def _special(dtype: str, facts: Facts) -> np.ndarray:
    """Zeros, denormals, ties of roundings, large values."""
    if not is_float(dtype):
        return np.zeros(0)
    info, large = ml_dtypes.finfo(dtype), BEYOND.get(dtype, _BEYOND) if facts.exponential else _large(dtype)
    smallest, tiny = float(info.smallest_subnormal), float(info.tiny)
    found = [0.0, -0.0, tiny, -tiny]
    if not facts.divided:  # what was divided by a denormal passes the range, where only the oracle goes on counting
        found += [smallest, -smallest, tiny / 4]
    if facts.jumps:
        found += _halves(dtype, (0.5, 1.5, 2.5, -0.5, -1.5, -2.5))
    for narrow in facts.narrowed:
        found += _ties(dtype, narrow, facts)
    if (facts.exponential or facts.extremes) and not facts.unlimited and not facts.mixes:
        found += [large, large, -large]
    return np.array(found)


def _halves(dtype: str, numbers: tuple[float, ...]) -> list[float]:
    """The numbers and their neighbours in the dtype."""
    near = 2 * unit_roundoff(dtype)
    return [number * side for number in numbers for side in (1.0, 1.0 + near, 1.0 - near)]


def _ties(dtype: str, narrow: str, facts: Facts) -> list[float]:
    """What lies in the middle between two numbers of a narrower dtype, the even one below or above, and neighbours;
    where nothing is made of them, also the middle between its largest number and infinity."""
    if unit_roundoff(dtype) >= unit_roundoff(narrow):
        return []
    half = unit_roundoff(narrow)
    found = _halves(dtype, (1 + half, 1 + 3 * half, -1 - half))
    beyond = float(ml_dtypes.finfo(narrow).max) / (1 - half) * (1 - half / 2)
    if not facts.reduces and beyond <= float(ml_dtypes.finfo(dtype).max):
        found += _halves(dtype, (beyond,))
    return found


def _ends(dtype: str, facts: Facts) -> np.ndarray:
    """Ends of an integer dtype and of the narrower ones.  Of neighbours some are equal in the lower 32 bits or as
    floats, sums and products of some wrap around."""
    if is_float(dtype) or dtype == "bool":
        return np.zeros(0, np.int64)
    low, high = DTYPES[dtype].limits
    found = [low, low, high, high, low, -1, low + 1, 1, high - 1]
    for bits in (7, 8, 15, 16, 24, 31, 32, 53):
        found += [0, 2**bits, 2**bits + 1, 2**bits - 1, 2**bits, -(2**bits) - 1]
    return np.array([number for number in found if low <= number <= high], wide(dtype))


def fill_ids(array: np.ndarray, allowed: Bounds, number: int, random: np.random.Generator) -> None:
    """Places in a tensor, from the first to the last allowed: any, then the first and the last among others, then the
    last alone.  Their neighbours are what `PLACES` puts there."""
    low, high = allowed
    if number == 1:
        array[...] = np.resize(np.array([low, high, min(0, high), max(low, -1)]), array.shape)
        every_third = array.reshape(-1)[::3]
        every_third[...] = random.integers(low, high, every_third.shape, endpoint=True)
    elif array.size == 1:
        array[...] = high
    else:
        array[...] = random.integers(low, high, array.shape, endpoint=True)


def fill_different(array: np.ndarray, extent: int, random: np.random.Generator) -> None:
    """Places that are all different, the first and the last among them, some from the end where numbers have a sign."""
    found = random.permutation(extent)[: array.size]
    ends = (0, extent - 1)[: array.size]
    for end in ends:
        if end not in found:
            found[np.flatnonzero(np.isin(found, ends, invert=True))[0]] = end
    from_the_end = random.integers(0, 2, array.size) * (array.dtype.kind == "i")
    array.reshape(-1)[...] = found - extent * from_the_end


def random_inputs(program: RProgram, random: np.random.Generator) -> list[np.ndarray]:
    """An array for each input: random numbers, and of ids those that a call takes."""
    facts = Facts(program, puts_of(program))
    ids, made = facts.ids, []
    for buffer in program.inputs:
        made.append(random_array(buffer.shape, buffer.dtype, random))
        if buffer.name in facts.different:
            fill_different(made[-1], facts.different[buffer.name], random)
        elif buffer.name in ids:
            fill_ids(made[-1], ids[buffer.name], 0, random)
    return made


def _places(allowed: Bounds) -> np.ndarray:
    """Ends of what is allowed, of what a signed and of what an unsigned reading would have."""
    low, high = allowed
    found = (low, high, 0, -1, low + 1, high - 1, low, high, high // 2, low // 2)
    return np.array([number for number in found if low <= number <= high], np.int64)


RANDOM = Whole("random inputs", "wrong terms, wrong places, precision lost", lambda facts: True, _random)
RAMPS = Whole(
    "whole-number ramps",
    "elements taken from elsewhere: neighbours, rows and columns all differ; a lost unit in the last place",
    lambda facts: facts.ramp is not None, _ramp, exact=True,
)  # fmt: skip
SMALL = Whole(
    "whole-number inputs",
    "a lost unit in the last place; ties where results are rounded once",
    lambda facts: facts.magnitude is not None, _small, exact=True,
)  # fmt: skip
OTHERS = Whole("other random inputs", "what only some values show", lambda facts: True, _random)
SECOND = RAMPS, SMALL, OTHERS
EQUAL = Whole(
    "equal values",
    "the wrong one of equal values (argmax); long chains of additions, whose errors all have one sign; rows of which "
    "every exp underflows",
    lambda facts: not facts.order_decides, _equal,
)  # fmt: skip

SPECIAL = Hostile(
    "zeros, denormals, halves",
    "the sign of zero; denormals flushed; ties rounded the wrong way; overflow where a maximum should be subtracted",
    lambda facts: not facts.order_decides, _special,
)  # fmt: skip
INFINITE = Hostile(
    "infinities and NaN",
    "what should propagate and does not, or spreads",
    lambda facts: facts.orderless,
    lambda dtype, facts: np.array([np.inf, -np.inf, np.nan] if is_float(dtype) else ()),
    sparse=lambda facts: facts.reduces,
)
CANCELLING = Hostile(
    "cancellation",
    "partial sums kept in a narrower dtype",
    lambda facts: facts.absolute,
    lambda dtype, facts: np.array([_large(dtype), -_large(dtype)] if is_float(dtype) else ()),
    absolute=True,
)
ENDS = Hostile(
    "ends of integers",
    "widened too late, saturated, truncated, compared as 32 bits",
    lambda facts: not facts.unlimited and not facts.raised, _ends,
)  # fmt: skip
PLACES = Hostile(
    "first and last places",
    "elements taken from elsewhere, or from outside",
    lambda facts: bool(facts.ids),
    lambda dtype, facts: np.zeros(0),
)
HOSTILE = SPECIAL, INFINITE, CANCELLING, ENDS, PLACES


def hostile_values(kind: Hostile, buffer: Buffer, facts: Facts) -> np.ndarray:
    """The numbers to put in place of few elements of an input; ids are replaced by `PLACES` only."""
    if buffer.name in facts.different:
        return np.zeros(0, np.int64)
    if buffer.name in facts.ids:
        return _places(facts.ids[buffer.name]) if kind is PLACES else np.zeros(0, np.int64)
    return kind.values(buffer.dtype, facts)
