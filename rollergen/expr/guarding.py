"""Conditions on indices moved from `Select` into the guards of the loads they protect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rollergen.expr import guards
from rollergen.expr.dtypes import is_float, rounded
from rollergen.expr.index import Bounds, Within
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.values import Binary, Cast, Const, Load, Select, Unary, Value, loads, transform
from rollergen.hal.dtypes import DTYPES

Ranges = Mapping[str, Bounds]


def push_guards(value: Value, ranges: Ranges) -> Value:
    """`value` with ``select(index predicate, load, constant)`` as a guarded load with that fill.

    Before: ``select((y >= 0) & (y < 56), X[y], 0)``.  After: ``X[y] if 0 <= y < 56 else 0``.  A
    predicate also moves through arithmetic that turns fills into the constant (``relu(0) = 0``).
    A load that may be out of range under a condition of another form gets its own range as guard.
    """

    def change(node: Value) -> Value | None:
        if isinstance(node, Select):
            return _pushed(node, ranges)
        return secured(node, ranges) if isinstance(node, Load) else None

    # Selects first: a load's range is judged under the guards that it got.
    value = transform(value, lambda node: _pushed(node, ranges) if isinstance(node, Select) else None)
    return transform(value, change)


def _pushed(node: Select, ranges: Ranges) -> Value | None:
    """The select without its condition, or None where the condition has to stay."""
    if isinstance(node.b, Const):
        chosen, constant, bounds = node.a, node.b, guards.bounds_of(node.cond)
    elif isinstance(node.a, Const):
        chosen, constant, bounds = node.b, node.a, guards.negated_bounds(node.cond)
    else:
        return None
    if bounds is None:
        return None
    needed = tuple(guards.finite(b, ranges) for b in bounds if not b.always(ranges))
    if not needed:
        return chosen
    if any(bound.low >= bound.high for bound in needed):
        return constant
    for fill in dict.fromkeys((constant.value, 0)):
        guarded = _with_guards(chosen, needed, fill)
        if guarded is not None and _same(_constant(guarded), _held(constant.value, constant.dtype)):
            return guarded
    return None


def _with_guards(value: Value, bounds: tuple[Within, ...], fill: float | int) -> Value | None:
    """Every load in `value` guarded by `bounds`, unguarded ones filled with `fill`; None without loads."""
    if not loads(value):
        return None

    def change(node: Value) -> Value | None:
        if not isinstance(node, Load):
            return None
        joined = guards.relative_to(guards.merged(node.guard + bounds), node.indices)
        return replace(node, guard=joined, fill=node.fill if node.guard else fill)

    return transform(value, change)


def secured(load: Load, ranges: Ranges) -> Load | None:
    """`load` with its own range as guard along dimensions where it may be out of range."""
    own = tuple(
        Within(index, 0, extent)
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
        if not guards.within_extent(index, extent, ranges, load.guard)
    )
    kept = tuple(bound for bound in load.guard if not bound.always(ranges))
    if not own and len(kept) == len(load.guard):
        return None
    return replace(load, guard=guards.relative_to(guards.merged(kept + own), load.indices))


def _same(a: float | int | bool | None, b: float | int | bool | None) -> bool:
    return a is not None and b is not None and a == b and math.copysign(1, a) == math.copysign(1, b)


def _held(number: float | int | bool | None, dtype: str) -> float | int | bool | None:
    """`number` as a value of the dtype, a float rounded; None where the dtype has none: no int32 is 0.25."""
    if number is None or dtype == "bool" or isinstance(number, bool):
        return number if isinstance(number, bool) or number in (0, 1) else None
    if is_float(dtype):
        with np.errstate(over="ignore"):
            return float(rounded(number, dtype))
    half = 1 << DTYPES[dtype].significant
    return int(number) if float(number).is_integer() and -half <= number < half else None


def _constant(value: Value) -> float | int | bool | None:
    """What `value` is where all guards fail; None where that is not a constant."""
    match value:
        case Const():
            return _held(value.value, value.dtype)
        case Load():
            return _held(value.fill, value.dtype)
        case Cast(x=x, dtype=dtype):
            inner = _constant(x)
            if inner is None or isinstance(inner, bool) or dtype == "bool":
                return None
            if is_float(dtype):
                return _held(float(inner), dtype)
            return _held(int(inner), dtype) if math.isfinite(inner) else None
        case Unary(op=op, x=x):
            inner = _constant(x)
            return None if inner is None else _unary(op, inner)
        case Binary(op=op, a=a, b=b):
            left, right = _constant(a), _constant(b)
            return None if left is None or right is None else _held(_binary(op, left, right), value.dtype)
    return None


def _unary(op: str, x: float) -> float | None:
    if op in ("neg", "abs"):
        return -x if op == "neg" else abs(x)
    return x if PRIMITIVES[op].keeps_zero and x == 0 else None


def _binary(op: str, a: float, b: float) -> float | None:
    if not (math.isfinite(a) and math.isfinite(b)):
        return None
    return {"add": a + b, "sub": a - b, "mul": a * b, "max": max(a, b), "min": min(a, b)}.get(op)
