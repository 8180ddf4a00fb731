"""Reductions: how each is written in rollergen's language, and what it is in NumPy.

A fold takes bodies whose last axis is reduced, and gives one `Bounded` for each component, for whatever order a kernel
combines in: sums of n terms err by n roundings of the sum of magnitudes at most, products by n relative ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzzing.formulas.bounds import DIGITS, LARGEST, LONG, NUMPY, Bounded, unknown_unless, wrapped

Bodies = tuple[Bounded, ...]
_LOWEST = {"float8_e4m3fn": "-3e38", "float8_e5m2": "-3e38", "float16": "-3e38", "bfloat16": "-3e38", "float32": "-3e38", "float64": "-1e308"}


@dataclass(frozen=True)
class Fold:
    """``combine`` and ``identity``: texts of `rg.reduce`'s arguments, the first "" where the reduction has a name of its
    own."""

    folded: Callable[[Bodies], Bodies]
    combine: str = ""
    identity: Callable[[str], str] = lambda dtype: "0"


def unit(dtype: str) -> Any:
    return LONG(2.0 ** -DIGITS[dtype])


def _sum(x: Bounded) -> Bounded:
    count, total = x.value.shape[-1], x.value.sum(axis=-1)
    if not x.floating:
        return Bounded(wrapped(total, x.dtype), x.error.sum(axis=-1), x.dtype)
    size, error = np.abs(x.value).sum(axis=-1), x.error.sum(axis=-1)
    whole = (error == 0) & np.any([_counts(x.value, size, grid, x.dtype) for grid in (0, 4, 12)], axis=0)
    error = np.where(whole, LONG(0), error + size * unit(x.dtype) * (count + 1))
    return Bounded(total, unknown_unless(size <= LARGEST[x.dtype] / 2, error), x.dtype)


def _counts(value: Any, size: Any, bits: int, dtype: str) -> Any:
    """Whether all partial sums in any order are multiples of 2^-bits that the dtype holds."""
    scaled = value * LONG(2**bits)
    return np.all(np.rint(scaled) == scaled, axis=-1) & (size * LONG(2**bits) <= LONG(2) ** DIGITS[dtype])


def _product(x: Bounded) -> Bounded:
    value = np.multiply.reduce(x.value, axis=-1)
    if not x.floating:
        return Bounded(wrapped(value, x.dtype), x.error.sum(axis=-1), x.dtype)
    most = np.abs(x.value) + x.error
    bound, exact = np.multiply.reduce(most, axis=-1), np.all(x.error == 0, axis=-1)
    largest = np.multiply.reduce(np.maximum(most, 1), axis=-1)
    small = np.multiply.reduce(np.where(x.value == 0, LONG(1), np.minimum(np.abs(x.value), 1)), axis=-1)
    whole = exact & np.all(np.rint(x.value) == x.value, axis=-1) & (largest <= LONG(2) ** DIGITS[x.dtype])
    error = bound - np.abs(value) + 2 * bound * unit(x.dtype) * x.value.shape[-1]
    known = (largest < LARGEST[x.dtype] / 4) & (small > (1e-290 if x.dtype == "float64" else 1e-30))
    return Bounded(value, unknown_unless(known, np.where(whole | (exact & (bound == 0)), LONG(0), error)), x.dtype)


def _extreme(function: Any) -> Callable[[Bounded], Bounded]:
    return lambda x: Bounded(function.reduce(x.value, axis=-1), x.error.max(axis=-1), x.dtype)


_largest, _least = _extreme(np.maximum), _extreme(np.minimum)


def _place(sign: int) -> Callable[[Bodies], Bodies]:
    """(extreme value, the least second component among those that have it)."""

    def folded(bodies: Bodies) -> Bodies:
        value, place = bodies
        best = (_largest if sign > 0 else _least)(value)
        chosen = value.value == best.value[..., None]
        first = np.where(chosen, place.value, np.iinfo(NUMPY[place.dtype]).max).min(axis=-1)
        size, largest = (sign * one.value.astype(LONG) for one in (value, best))  # which holds all of 64 bits
        rivals = (size + value.error >= largest[..., None] - best.error[..., None]) & (value.error >= 0)
        sure = (rivals.sum(axis=-1) == 1) | np.all(value.error == 0, axis=-1)
        error = np.where(sure & np.all(place.error == 0, axis=-1), LONG(0), LONG(np.inf))
        return best, Bounded(first, error, place.dtype)

    return folded


def _welford(bodies: Bodies) -> Bodies:
    """(count, mean, sum of squared distances from it) of bodies (1, x, 0)."""
    x = bodies[1]
    count, size = x.value.shape[-1], np.abs(x.value).max(axis=-1) + x.error.max(axis=-1)
    mean = x.value.mean(axis=-1)
    apart = ((x.value - mean[..., None]) ** 2).sum(axis=-1)
    off = x.error.max(axis=-1) + (4 * count + 8) * unit(x.dtype) * size
    spread = 4 * count * size * off + (8 * count + 32) * unit(x.dtype) * count * size**2
    known = size < np.sqrt(LARGEST[x.dtype]) / count
    counted = Bounded(np.full(mean.shape, LONG(count)), np.zeros(mean.shape, LONG), x.dtype)
    parts = (Bounded(mean, off, x.dtype), Bounded(apart, spread, x.dtype))
    return counted, *(Bounded(p.value, unknown_unless(known, p.error), p.dtype) for p in parts)


def _softmax(bodies: Bodies) -> Bodies:
    """(maximum, sum of exponentials less it) of bodies (x, 1)."""
    x = bodies[0]
    best, count = _largest(x), x.value.shape[-1]
    total = np.exp(x.value - best.value[..., None]).sum(axis=-1)
    error = total * (np.expm1(2 * x.error.max(axis=-1)) + 12 * (count + 4) * unit(x.dtype))
    return best, Bounded(total, unknown_unless(np.isfinite(total), error), x.dtype)


def _circle(bodies: Bodies) -> Bodies:
    """a + b + a b of integers: the product of 1 + x, less 1."""
    x = bodies[0]
    value = np.multiply.reduce(x.value + 1, axis=-1) - 1
    return (Bounded(wrapped(value, x.dtype), x.error.sum(axis=-1), x.dtype),)


def _each(*folds: Callable[[Bounded], Bounded]) -> Callable[[Bodies], Bodies]:
    return lambda bodies: tuple(fold(body) for fold, body in zip(folds, bodies, strict=True))


def _first(sign: str) -> str:
    first = f"(a[0] {sign} b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))"
    return f"lambda a, b: (rg.select({first}, a[0], b[0]), rg.select({first}, a[1], b[1]))"


_JOINED = (
    "lambda a, b: (a[0] + b[0], a[1] + (b[1] - a[1]) * b[0] / rg.maximum(a[0] + b[0], 1), "
    "a[2] + b[2] + (b[1] - a[1]) * (b[1] - a[1]) * a[0] * b[0] / rg.maximum(a[0] + b[0], 1))"
)
_RESCALED = (
    "lambda a, b: (rg.maximum(a[0], b[0]), a[1] * rg.exp(a[0] - rg.maximum(a[0], b[0]))"
    " + b[1] * rg.exp(b[0] - rg.maximum(a[0], b[0])))"
)


def end(dtype: str, least: bool) -> str:
    """The least, or the largest, of a dtype, as the identity of a maximum, or of a minimum."""
    if dtype in DIGITS:
        return f'float("{"-" if least else ""}inf")'
    info = np.iinfo({"int8": np.int32, "uint8": np.int32, "int16": np.int32, "uint16": np.uint32}.get(dtype, NUMPY[dtype]))
    return str(info.min if least else info.max)  # of what accumulates them


FOLDS: dict[str, Fold] = {
    "sum": Fold(_each(_sum)),
    "max": Fold(_each(_largest), identity=lambda dtype: end(dtype, True)),
    "min": Fold(_each(_least), identity=lambda dtype: end(dtype, False)),
    "prod": Fold(_each(_product), identity=lambda dtype: "1"),
    "circle": Fold(_circle, "lambda a, b: a + b + a * b"),
    "farthest": Fold(_each(_largest), "lambda a, b: rg.maximum(a, b)", lambda dtype: end(dtype, True)),
    "argmax": Fold(_place(1), _first(">"), lambda dtype: f"({end(dtype, True)}, 2**31 - 1)"),
    "argmin": Fold(_place(-1), _first("<"), lambda dtype: f"({end(dtype, False)}, 2**31 - 1)"),
    "sum_and_max": Fold(
        _each(_sum, _largest), "lambda a, b: (a[0] + b[0], rg.maximum(a[1], b[1]))",
        lambda dtype: f"(0, {end(dtype, True)})",
    ),
    "ends": Fold(
        _each(_least, _largest), "lambda a, b: (rg.minimum(a[0], b[0]), rg.maximum(a[1], b[1]))",
        lambda dtype: f"({end(dtype, False)}, {end(dtype, True)})",
    ),
    "moments": Fold(_each(_sum, _sum), "lambda a, b: (a[0] + b[0], a[1] + b[1])", lambda dtype: "(0, 0)"),
    "welford": Fold(_welford, _JOINED, lambda dtype: "(0, 0, 0)"),
    "softmax": Fold(_softmax, _RESCALED, lambda dtype: f"({_LOWEST[dtype]}, 0)"),
}  # fmt: skip
