"""Arithmetic on values with a bound on what a kernel may differ by: a running error analysis, element by element.

A `Bounded` holds the result of an operation on exact operands (long double, or int64 wrapped to the dtype) and the most
by which a kernel's value may differ before its own last rounding.  That rounding is added where the value is used
(`settled`): so a sum of exact operands must come out correctly rounded, and what stands behind a rounding lies within
the bound.  Integers and conditions are exact or, where a bound straddles a jump, unknown (an error of infinity).

A rounding errs by u = 2^-p of the value, or half the least subnormal; functions by what the OpenCL C specification,
section 7.4, allows in the full profile (`UNITS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = Any
LONG = np.longdouble
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "float8_e4m3fn": 4, "float8_e5m2": 3}
LARGEST = {name: LONG(float(ml_dtypes.finfo(name).max)) for name in DIGITS}
LEAST = {name: LONG(float(ml_dtypes.finfo(name).smallest_subnormal)) for name in DIGITS}
NUMPY = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8,
         "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "float16": np.float16, "float32": np.float32,
         "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "bool": np.bool_,
         "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
UNITS = {"div": 2.5, "exp": 3, "log": 3, "sqrt": 3, "rsqrt": 2, "tanh": 5, "erf": 16, "pow": 16}
_erf = np.frompyfunc(lambda x: math.erf(float(x)), 1, 1)
MONOTONE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "erf": lambda x: np.asarray(_erf(x), LONG),
    "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "round": np.rint,
}  # fmt: skip
COMPARED: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
RINGED: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "abs": np.abs, "floor_divide": np.floor_divide, "remainder": np.remainder, "shl": np.left_shift,
    "shr": np.right_shift, "bitand": np.bitwise_and, "bitor": np.bitwise_or, "xor": np.bitwise_xor,
    "trunc_remainder": np.fmod, "trunc_divide": lambda a, b: (a - np.fmod(a, b)) // b,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Bounded:
    """``value`` and ``error`` broadcast against each other; see the module."""

    value: Array
    error: Array
    dtype: str

    @property
    def floating(self) -> bool:
        return self.dtype in DIGITS


def exact(value: Array, dtype: str) -> Bounded:
    """Values that a tensor of `dtype` holds."""
    kind = LONG if dtype in DIGITS else np.bool_ if dtype == "bool" else whole(dtype)
    return Bounded(np.asarray(value).astype(kind), LONG(0), dtype)


def whole(dtype: str) -> Any:
    """What values of an integer dtype are computed in: int64 holds all but uint64's."""
    return np.uint64 if dtype == "uint64" else np.int64


def wrapped(value: Array, dtype: str) -> Array:
    """Whole numbers as the integer `dtype` holds them: the low bits."""
    return np.asarray(value).astype(NUMPY[dtype]).astype(whole(dtype))


def rounding(value: Array, dtype: str, units: float = 0.5) -> Array:
    """By how much a rounding to `dtype` may move the value: `units` in the last place."""
    return np.abs(value) * LONG(2 * units * 2.0 ** -DIGITS[dtype]) + LEAST[dtype] * LONG(units)


def held(value: Array, dtype: str) -> Array:
    """Whether the values are numbers of `dtype`.  Of float64, whose products a long double rounds, only those on a
    grid of 2^-12, below 2^40."""
    if dtype == "float64":
        return (np.abs(value) < 2.0**40) & (np.rint(value * 4096) == value * 4096)
    return _nearest(value, dtype) == value


def settled(x: Bounded) -> Bounded:
    """The value as the next operation finds it, rounded to its dtype or not; unknown where it may overflow."""
    if not x.floating:
        return x
    rounded = x.error + rounding(np.abs(x.value) + x.error, x.dtype)  # of what may lie anywhere within the error
    error = np.where((x.error == 0) & held(x.value, x.dtype), LONG(0), rounded)
    return Bounded(x.value, unknown_unless(np.abs(x.value) + error <= LARGEST[x.dtype], error), x.dtype)


def unknown_unless(known: Array, error: Array) -> Array:
    return np.where(known & ~np.isnan(error), error, LONG(np.inf))


def applied(name: str, dtype: str, operands: tuple[Bounded, ...]) -> Bounded:
    """The operation `name`, whose result has `dtype`."""
    parts = tuple(map(settled, operands))
    if name == "select":
        return selected(*parts)
    if name == "cast":
        return converted(parts[0], dtype)
    if name in COMPARED:
        return _compared(name, *parts)
    if name in ("and", "or", "not"):
        return _logical(name, parts)
    if not parts[0].floating:
        made = RINGED[name](*(part.value for part in parts))
        return Bounded(wrapped(made, dtype), sum(part.error for part in parts), dtype)
    if name in MONOTONE:
        return _monotone(name, parts[0])
    return _FLOATING[name](*parts)


def selected(condition: Bounded, a: Bounded, b: Bounded) -> Bounded:
    """One of two values; either, where the condition is unknown."""
    known = condition.error == 0
    one = np.where(condition.value, a.error, b.error)
    if a.floating:
        either = np.maximum(a.error, b.error) + np.abs(a.value - b.value)
    else:
        either = np.where((a.value == b.value) & (a.error + b.error == 0), LONG(0), LONG(np.inf))
    return Bounded(np.where(condition.value, a.value, b.value), np.where(known, one, either), a.dtype)


def converted(x: Bounded, dtype: str) -> Bounded:
    """A cast: floats to integers towards zero (unknown beyond the range), integers to integers by their low bits."""
    if dtype == "bool":
        return Bounded(x.value != 0, np.where((np.abs(x.value) > x.error) | (x.error == 0), LONG(0), LONG(np.inf)), dtype)
    if dtype in DIGITS:
        return Bounded(x.value.astype(LONG), x.error, dtype)
    if not x.floating:
        return Bounded(wrapped(x.value, dtype), x.error, dtype)
    low, high = np.trunc(x.value - x.error), np.trunc(x.value + x.error)
    info = np.iinfo(NUMPY[dtype])
    known = (low == high) & (low >= info.min) & (high < LONG(info.max) + 1)
    return Bounded(np.where(known, low, LONG(0)).astype(whole(dtype)), np.where(known, LONG(0), LONG(np.inf)), dtype)


def _compared(name: str, a: Bounded, b: Bounded) -> Bounded:
    error = a.error + b.error
    if a.floating:
        error = np.where((error == 0) | (np.abs(a.value - b.value) > error), LONG(0), LONG(np.inf))
    return Bounded(COMPARED[name](a.value, b.value), error, "bool")


def _logical(name: str, parts: tuple[Bounded, ...]) -> Bounded:
    if name == "not":
        return Bounded(~parts[0].value, parts[0].error, "bool")
    a, b = parts
    decides = name == "or"
    decided = ((a.value == decides) & (a.error == 0)) | ((b.value == decides) & (b.error == 0))
    value = np.where(decided, decides, a.value | b.value if decides else a.value & b.value)
    return Bounded(value, np.where(decided, LONG(0), a.error + b.error), "bool")


def _monotone(name: str, x: Bounded) -> Bounded:
    function = MONOTONE[name]
    value = function(x.value)
    error = np.maximum(np.abs(function(x.value - x.error) - value), np.abs(function(x.value + x.error) - value))
    if name in UNITS:
        error = error + rounding(value, x.dtype, UNITS[name])
    known = np.isfinite(value) & np.isfinite(x.error)  # what may be NaN stays it, however bounded the function is
    return Bounded(value, unknown_unless(known, error), x.dtype)


def _sum(sign: int) -> Callable[[Bounded, Bounded], Bounded]:
    return lambda a, b: _inexact(a.value + sign * b.value, a.error + b.error, a.dtype)


def _product(a: Bounded, b: Bounded) -> Bounded:
    error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    zero = ((a.error == 0) & (a.value == 0) & np.isfinite(b.error)) | ((b.error == 0) & (b.value == 0) & np.isfinite(a.error))
    return _inexact(a.value * b.value, np.where(zero, LONG(0), error), a.dtype)


def _inexact(value: Array, error: Array, dtype: str) -> Bounded:
    """What a long double may have rounded itself (float64 operands) is not exact."""
    if dtype == "float64":
        error = np.where(held(value, dtype), error, error + np.abs(value) * LONG(2.0**-63))
    return Bounded(value, error, dtype)


def _quotient(a: Bounded, b: Bounded) -> Bounded:
    value = a.value / b.value
    error = (a.error + np.abs(value) * b.error) / (np.abs(b.value) - b.error) + rounding(value, a.dtype, UNITS["div"])
    return Bounded(value, unknown_unless((np.abs(b.value) > b.error) & np.isfinite(value), error), a.dtype)


def _rest(floor: bool) -> Callable[[Bounded, Bounded], Bounded]:
    """What a division leaves, rounded towards 0 or down; unknown next to a multiple of the divisor."""

    def made(a: Bounded, b: Bounded) -> Bounded:
        rest, size = np.fmod(a.value, b.value), np.abs(b.value)
        error = a.error + np.abs(np.trunc(a.value / b.value)) * b.error
        near = np.minimum(np.abs(rest), size - np.abs(rest)) <= error + b.error
        error = np.where((a.error == 0) & (b.error == 0), LONG(0), unknown_unless(~near, error))
        if floor:
            below = (rest != 0) & ((rest < 0) != (b.value < 0))
            rest, error = np.where(below, rest + b.value, rest), error + np.where(below, b.error, LONG(0))
        return _inexact(rest, unknown_unless(np.isfinite(rest), error), a.dtype)

    return made


def _power(a: Bounded, b: Bounded) -> Bounded:
    """Of a base that is positive for certain; monotone in each operand, so that the corners bound it."""
    value = a.value**b.value
    corners = [(a.value + s * a.error) ** (b.value + t * b.error) for s in (-1, 1) for t in (-1, 1)]
    error = np.max(np.broadcast_arrays(*(np.abs(corner - value) for corner in corners)), axis=0)
    error = error + rounding(value, a.dtype, UNITS["pow"])
    return Bounded(value, unknown_unless((a.value > a.error) & np.isfinite(value), error), a.dtype)


def _extreme(function: Callable[[Array, Array], Array]) -> Callable[[Bounded, Bounded], Bounded]:
    """Either operand where they are near: the larger of the errors; the chosen one's where they are apart."""

    def made(a: Bounded, b: Bounded) -> Bounded:
        value, error = function(a.value, b.value), a.error + b.error
        apart = np.abs(a.value - b.value) > error
        return Bounded(value, np.where(apart, np.where(value == a.value, a.error, b.error), np.maximum(a.error, b.error)), a.dtype)

    return made


_FLOATING: dict[str, Callable[..., Bounded]] = {
    "add": _sum(1), "sub": _sum(-1), "mul": _product, "div": _quotient, "pow": _power, "max": _extreme(np.maximum),
    "min": _extreme(np.minimum), "neg": lambda x: Bounded(-x.value, x.error, x.dtype),
    "abs": lambda x: Bounded(np.abs(x.value), x.error, x.dtype), "fmod": _rest(False), "floored": _rest(True),
}  # fmt: skip


def differences(got: Array, want: Bounded) -> Array:
    """Where `got` (of the dtype) is not what it may be; nothing is said of unknown elements."""
    shape = got.shape
    value, error = np.broadcast_to(want.value, shape), np.broadcast_to(want.error, shape)
    if not want.floating:
        return (got != value.astype(got.dtype)) & (error == 0)
    with np.errstate(all="ignore"):
        actual = got.astype(LONG)
        rounded = _nearest(value, want.dtype)
        allowed = error + rounding(np.abs(value) + error, want.dtype)
        near = np.abs(actual - value) <= allowed
        known = np.isfinite(error) & (np.abs(value) + allowed <= LARGEST[want.dtype])
        return known & np.where(error == 0, actual != rounded, ~near)


def _nearest(value: Array, dtype: str) -> Array:
    """The value rounded once to the dtype, ties to even; exact, as a quotient by a power of two is."""
    exponent = np.frexp(np.where(np.isfinite(value), value, LONG(0)))[1]
    unit = np.maximum(np.ldexp(LONG(1), exponent - DIGITS[dtype]), LEAST[dtype])
    return np.rint(value / unit) * unit
