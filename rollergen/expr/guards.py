"""Conditions on indices as bounds, and what indices can be where these hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rollergen.expr.index import Bounds, FloorDiv, Index, Within
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Unary, Value

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
