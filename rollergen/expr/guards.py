"""Conditions on indices as bounds: what indices can be where these hold, and guards of loads made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rollergen.expr.dtypes import is_float, rounded
from rollergen.expr.index import Bounds, FloorDiv, Index
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.values import (
    Binary,
    Cast,
    Const,
    IndexValue,
    Load,
    Select,
    Take,
    Unary,
    Value,
    Within,
    loads,
    transform,
)
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.late import np

_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "ne": "eq"}
_UNBOUNDED = 1 << 62


def index_side(value: Value) -> Index | None:
    """The index that `value` is, if it is one (through casts between integers, a sign, sums)."""
    match value:
        case IndexValue():
            return value.index
        case Const(value=int() as constant, dtype=dtype) if dtype != "bool":
            return Index((), constant)
        case Cast(x=x, dtype="int32" | "int64"):
            return index_side(x)
        case Unary(op="neg", x=x):
            inner = index_side(x)
            return None if inner is None else -inner
        case Binary(op="add" | "sub" as op, a=a, b=b):
            left, right = index_side(a), index_side(b)
            if left is None or right is None:
                return None
            return left + right if op == "add" else left - right
    return None


def bounds_of(condition: Value) -> tuple[Within, ...] | None:
    """`condition` as bounds that hold together exactly when it does; None if it is not of that form.

    >>> i = IndexValue(Index.axis("i"))
    >>> [str(b) for b in bounds_of(Binary("lt", i, Const(4, "int32"), "bool"))]
    ['-4611686018427387904 <= i < 4']
    """
    match condition:
        case Const(value=True):
            return ()
        case Const(value=False):
            return (Within(Index(), 1, 1),)
        case Binary(op="and", a=a, b=b):
            left, right = bounds_of(a), bounds_of(b)
            return None if left is None or right is None else merged(left + right)
        case Unary(op="not", x=x):
            return negated_bounds(x)
        case Binary(op=op, a=a, b=b):
            return _comparison(op, a, b)
    return None


def negated_bounds(condition: Value) -> tuple[Within, ...] | None:
    """Bounds that hold exactly where `condition` does not; None if there is no such form."""
    match condition:
        case Const(value=bool() as truth):
            return bounds_of(Const(not truth, "bool"))
        case Unary(op="not", x=x):
            return bounds_of(x)
        case Binary(op="or", a=a, b=b):
            left, right = negated_bounds(a), negated_bounds(b)
            return None if left is None or right is None else merged(left + right)
        case Binary(op=op, a=a, b=b) if op in _NEGATED:
            return _comparison(_NEGATED[op], a, b)
    return None


def implied_bounds(condition: Value, truth: bool = True) -> tuple[Within, ...]:
    """Bounds that hold wherever `condition` is `truth`: all of them if it has that form, else some."""
    exact = bounds_of(condition) if truth else negated_bounds(condition)
    if exact is not None:
        return exact
    match condition:
        case Unary(op="not", x=x):
            return implied_bounds(x, not truth)
        case Binary(op="and" | "or" as op, a=a, b=b) if (op == "and") == truth:
            return merged(implied_bounds(a, truth) + implied_bounds(b, truth))
    return ()


def _comparison(op: str, a: Value, b: Value) -> tuple[Within, ...] | None:
    left, right = index_side(a), index_side(b)
    if left is None or right is None:
        return None
    difference = left - right
    base, const = Index(difference.terms), difference.const
    limits = {
        "ge": (-const, _UNBOUNDED),
        "gt": (1 - const, _UNBOUNDED),
        "le": (-_UNBOUNDED, 1 - const),
        "lt": (-_UNBOUNDED, -const),
        "eq": (-const, 1 - const),
    }.get(op)
    if limits is None:
        return None
    low, high = limits
    if base.terms and base.terms[0][1] < 0:  # one sign for one bound, so that both sides of a range meet
        base, low, high = -base, 1 - high, 1 - low
    return (Within(base, low, high),)


def merged(bounds: Iterable[Within]) -> tuple[Within, ...]:
    """Bounds on indices that differ in a constant at most, joined into one."""
    joined: dict[tuple[object, ...], Within] = {}
    for bound in bounds:
        known = joined.get(bound.index.terms)
        if known is not None:
            shift = known.index.const - bound.index.const
            bound = Within(known.index, max(known.low, bound.low + shift), min(known.high, bound.high + shift))
        joined[bound.index.terms] = bound
    return tuple(joined.values())


def finite(bound: Within, ranges: Mapping[str, Bounds]) -> Within:
    """`bound` with an open side closed at what its index can be."""
    if bound.low > -_UNBOUNDED // 2 and bound.high < _UNBOUNDED // 2:
        return bound
    low, high = bound.index.bounds(ranges)
    return Within(bound.index, max(bound.low, low), min(bound.high, high + 1))


def relative_to(bounds: Iterable[Within], indices: Iterable[Index]) -> tuple[Within, ...]:
    """Bounds restated on that one of `indices` from which they differ by a constant only."""
    known = {index.terms: index for index in indices if index.terms}
    restated = []
    for bound in bounds:
        index = known.get(bound.index.terms)
        if index is not None:
            shift = index.const - bound.index.const
            bound = Within(index, bound.low + shift, bound.high + shift)
        restated.append(bound)
    return tuple(restated)


def guarded_ranges(ranges: Mapping[str, Bounds], bounds: Iterable[Within]) -> dict[str, Bounds]:
    """`ranges` narrowed by the bounds on single axes."""
    narrowed = dict(ranges)
    for bound in bounds:
        if len(bound.index.terms) != 1:
            continue
        atom, c = bound.index.terms[0]
        if not isinstance(atom, str) or c < 1 or atom not in narrowed:
            continue
        low, high = narrowed[atom]
        first, last = -((bound.index.const - bound.low) // c), (bound.high - 1 - bound.index.const) // c
        narrowed[atom] = (max(low, first), min(high, last))
    return narrowed


def guarded_bounds(index: Index, ranges: Mapping[str, Bounds], bounds: tuple[Within, ...]) -> Bounds:
    """Inclusive (low, high) of `index` where `bounds` hold; `ranges` are `guarded_ranges` already."""
    low, high = _atom_bounds(index, ranges, bounds) if not index.is_affine else index.bounds(ranges)
    for bound in bounds:
        if bound.index.terms == index.terms:
            shift = index.const - bound.index.const
            low, high = max(low, bound.low + shift), min(high, bound.high - 1 + shift)
    return low, high


def _atom_bounds(index: Index, ranges: Mapping[str, Bounds], bounds: tuple[Within, ...]) -> Bounds:
    """As `Index.bounds`, with `bounds` applied inside divisions and remainders too."""
    stand_in = dict(ranges)
    terms = []
    for position, (atom, coefficient) in enumerate(index.terms):
        if isinstance(atom, str):
            terms.append((atom, coefficient))
            continue
        a, b = guarded_bounds(atom.index, ranges, bounds)
        d = atom.divisor
        name = f"#{position}"
        if isinstance(atom, FloorDiv):
            stand_in[name] = (a // d, b // d)
        else:
            stand_in[name] = (a % d, b % d) if a // d == b // d else (0, d - 1)
        terms.append((name, coefficient))
    return Index(tuple(terms), index.const).bounds(stand_in)


def within_extent(index: Index, extent: int, ranges: Mapping[str, Bounds], bounds: tuple[Within, ...]) -> bool:
    """Whether ``0 <= index < extent`` is proven wherever `bounds` hold."""
    low, high = guarded_bounds(index, guarded_ranges(ranges, bounds), bounds)
    return (low >= 0 and high < extent) or low > high


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
        if isinstance(node, Take):
            row = secured(node.row, ranges)
            return None if row is None else replace(node, row=row)
        return secured(node, ranges) if isinstance(node, Load) else None

    # Selects first: a load's range is judged under the guards that it got.
    value = transform(value, lambda node: _pushed(node, ranges) if isinstance(node, Select) else None)
    return transform(value, change)


def _pushed(node: Select, ranges: Ranges) -> Value | None:
    """The select without its condition, or None where the condition has to stay."""
    if isinstance(node.b, Const):
        chosen, constant, bounds = node.a, node.b, bounds_of(node.cond)
    elif isinstance(node.a, Const):
        chosen, constant, bounds = node.b, node.a, negated_bounds(node.cond)
    else:
        return None
    if bounds is None:
        return None
    needed = tuple(finite(b, ranges) for b in bounds if not b.always(ranges))
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
        joined = relative_to(merged(node.guard + bounds), node.indices)
        return replace(node, guard=joined, fill=node.fill if node.guard else fill)

    return transform(value, change)


def secured(load: Load, ranges: Ranges) -> Load | None:
    """`load` with its own range as guard along dimensions where it may be out of range."""
    own = tuple(
        Within(index, 0, extent)
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
        if not within_extent(index, extent, ranges, load.guard)
    )
    kept = tuple(bound for bound in load.guard if not bound.always(ranges))
    if not own and len(kept) == len(load.guard):
        return None
    return replace(load, guard=relative_to(merged(kept + own), load.indices))


def _same(a: float | int | bool | None, b: float | int | bool | None) -> bool:
    return a is not None and b is not None and a == b and math.copysign(1, a) == math.copysign(1, b)


def _held(number: float | int | bool | None, dtype: str) -> float | int | bool | None:
    """`number` as a value of the dtype, a float rounded; None where the dtype has none: no int32 is 0.25."""
    if number is None or dtype == "bool" or isinstance(number, bool):
        return number if isinstance(number, bool) or number in (0, 1) else None
    if is_float(dtype):
        if float(number).is_integer() and abs(number) <= 1 << DTYPES[dtype].significant:
            return float(number)  # as most are, and no NumPy is imported for it
        with np.errstate(over="ignore"):
            return float(rounded(number, dtype))
    low, high = DTYPES[dtype].limits
    return int(number) if float(number).is_integer() and low <= number <= high else None


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
