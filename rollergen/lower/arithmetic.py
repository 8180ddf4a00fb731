"""Values -> expressions: one element of a tensor as scalar or vector arithmetic.

Nothing is simplified.  A sum of a product stays ``a * b + c`` (contracted to one multiply-add by
the compiler); max and min propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import zip_longest
from math import isnan

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import is_float, is_rounded_from_float64, rounded
from rollergen.expr.index import Index
from rollergen.expr.nibbles import low_bits
from rollergen.expr.places import Put
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.rows import is_below_its_row, is_online_exponent, is_shrinking_exponent
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Partial, Select, Take, Unary, Value, Var
from rollergen.hal.dtypes import DOTS, WORD_OF
from rollergen.lower import maths
from rollergen.lower.expressions import (
    Broadcast,
    Build,
    Call,
    Convert,
    Expr,
    Name,
    Number,
    Operation,
    Position,
    Shared,
    is_narrow,
    register_dtype,
    shared,
    worth_keeping,
)
from rollergen.lower.integers import DIVISIONS, divided, powered, shifted, wrapping
from rollergen.lower.masks import compare, is_mask, select, truth, widen
from rollergen.lower.nest import Nest
from rollergen.lower.place import Scope
from rollergen.lower.takes import read_take
from rollergen.lower.writer import Writer

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_COMMUTING_DOTS = tuple(op for (left, right), op in DOTS.items() if left == right)


def evaluate(out: Writer, scope: Scope, value: Value) -> Expr:
    """`value` as an expression (of one lane where nothing in it depends on the lane)."""
    return _evaluate(out, scope, value, shared(value))


def evaluate_all(out: Writer, scope: Scope, values: tuple[Value, ...]) -> tuple[Expr, ...]:
    """The values as expressions, as `evaluate` writes them; what they have in common is computed once."""
    repeated = shared(*values)
    return tuple(_evaluate(out, scope, value, repeated) for value in values)


def _evaluate(out: Writer, scope: Scope, value: Value, repeated: Shared) -> Expr:
    number = repeated.numbers.get(id(value))
    if number is None or not worth_keeping(value):
        return _computed(out, scope, value, repeated)
    if number not in repeated.made:
        repeated.made[number] = out.atom("shared", _computed(out, scope, value, repeated))
    return repeated.made[number]


def _computed(out: Writer, scope: Scope, value: Value, repeated: Shared) -> Expr:
    of = lambda part: _evaluate(out, scope, part, repeated)
    match value:
        case Const():
            return Number(value.value, register_dtype(value.dtype))
        case Load():
            return truth(scope.load(value))
        case Put():
            return of(value.value)
        case Take():
            return truth(read_take(out, scope, value, lambda inner, part: evaluate(out, inner, part)))
        case Partial():
            return scope.partial(value)
        case Var():
            return scope.variables[value.name]
        case IndexValue():
            return index_number(out, scope, value.index, value.dtype)
        case Unary(op="exp") if _below_its_row(scope.place.nest, value.x):
            return maths.exp_below(out, of(value.x))
        case Unary():
            return _unary(out, value.op, of(value.x), register_dtype(value.dtype))
        case Binary(op="add") if chains := _chains(value):
            return _in_rounds(out, chains, register_dtype(value.dtype), of)
        case Binary():
            a, b = of(value.a), of(value.b)
            a, b = (b, a) if _lanes_share_first(scope, value) else (a, b)
            return _binary(out, value.op, a, b, register_dtype(value.dtype))
        case Select():
            return select(*(of(part) for part in value.children()))
        case Cast():
            nibbles = low_bits(value)
            table = None if nibbles is None else _from_table(of(nibbles[0]), nibbles[1])
            return cast(out, of(value.x), value.dtype) if table is None else table
    raise ProgramError(f"{type(value).__name__} is no value that can be lowered")


_LONG = 4
"""Terms, at least, of a chain of additions that takes turns with others."""


def _chains(value: Binary) -> list[list[Value]] | None:
    """The terms of several long chains of additions that are added up one after the other; None of others."""
    if len(_terms(value.b)) < _LONG:  # asked of each addition of a chain
        return None
    first = _terms(value)
    last = next(n for n, one in enumerate(first) if len(_terms(one)) >= _LONG)  # value.b is one
    rest = [_terms(one) for one in first[last:]]
    return [first[:last], *rest] if last >= _LONG and min(map(len, rest)) >= _LONG else None


def _terms(value: Value) -> list[Value]:
    """Of one chain of additions: its first term, and what each of them adds."""
    terms: list[Value] = []
    while isinstance(value, Binary) and value.op == "add":
        terms.append(value.b)
        value = value.a
    return [value, *reversed(terms)]


def _in_rounds(out: Writer, chains: Sequence[Sequence[Value]], dtype: str, of: Callable[[Value], Expr]) -> Expr:
    """The sum of chains as it is defined, but one term of each after the other: compilers keep that order, and a core,
    which looks ahead a few hundred instructions, finds additions that do not wait for each other.  (A row times 4096 x
    4096 weights of 4 bits on one core of a Zen 5: 259 us, 280 chain after chain.)"""
    added = lambda a, b: _binary(out, "add", a, b, dtype)
    sums: dict[int, Expr] = {}
    for terms in zip_longest(*chains):
        for number, term in enumerate(terms):
            if term is not None:
                sums[number] = out.atom("chain", added(sums[number], of(term)) if number in sums else of(term))
    return reduce(added, sums.values())


def _from_table(word: Expr, less: int) -> Expr | None:
    """The floats of the words' four lowest bits; None where vectors have not so many lanes."""
    if word.lanes != 16:
        return None
    table = Build(tuple(Number(float(number - less), "float32") for number in range(16)))
    return Call("lanes_chosen", (table, word), "float32", 16)


def _lanes_share_first(scope: Scope, value: Binary) -> bool:
    """Whether all lanes share the first factor of a dot product that commutes.  It then stands last: an instruction
    can broadcast its last operand as it loads it, and compilers do not exchange the factors.  (bfloat16 300 x 300 x 300
    by tiles of 12 rows x one vector, on a Zen 4: 332 us with broadcasts of their own, 251 without.)"""
    lane = scope.place.nest.lane_position
    if scope.lane is None or lane is None or value.op not in _COMMUTING_DOTS or not isinstance(value.a, Load):
        return False
    return scope.place.nest.loops[lane].axis not in value.a.axes()


def _below_its_row(nest: Nest, value: Value) -> bool:
    """See `is_below_its_row`, where the element may be a kept one, `is_online_exponent` and `is_shrinking_exponent`."""
    if is_online_exponent(value) or is_shrinking_exponent(value):
        return True
    if isinstance(value, Binary) and isinstance(value.a, Var):
        kept = {kept_row.name: kept_row.value for kept_row in nest.stage.kept_rows}
        value = replace(value, a=kept.get(value.a.name, value.a))
    return is_below_its_row(nest.op, value)


def index_number(out: Writer, scope: Scope, index: Index, dtype: str) -> Expr:
    """An index as a number: a start plus multiples of the lane, or built lane by lane."""
    at = index.substitute(scope.place.axes).simplify(out.ranges)
    if scope.lane is None or scope.lane.variable not in at.axes():
        return Position(at, dtype)
    step = at.coefficient(scope.lane.variable)
    start = at - Index.axis(scope.lane.variable) * step
    if scope.lane.variable in start.axes():
        lanes = [at.substitute({scope.lane.variable: Index.of(e)}) for e in range(scope.lane.width)]
        return Build(tuple(Position(one.simplify(out.ranges), dtype) for one in lanes))
    steps = Build(tuple(Number(e * step, dtype) for e in range(scope.lane.width)))
    return Operation("add", (Broadcast(Position(start, dtype), scope.lane.width), steps), dtype, scope.lane.width)


def inside_lanes(out: Writer, scope: Scope, axis_index: Index, extent: int) -> Expr:
    """Whether an axis is below `extent`: a scalar condition or a mask."""
    dtype = "int32" if extent < 2**31 else "int64"
    return compare("lt", index_number(out, scope, axis_index, dtype), Number(extent, dtype))


def cast(out: Writer, x: Expr, dtype: str) -> Expr:
    """`x` converted to the dtype. Narrowing to float16 or bfloat16 rounds, though the register is a float32."""
    if isinstance(x, Number) and not is_mask(x):
        return _number(x, dtype)
    if is_narrow(dtype):
        return maths.call(out, f"round_{dtype}", _single(out, x, dtype))
    if x.dtype == dtype:
        return x
    if is_mask(x):
        return select(x, Number(1, dtype), Number(0, dtype))
    if dtype == "bool":
        return compare("ne", x, Number(0, x.dtype))
    return Convert(x, dtype)


def _number(x: Number, dtype: str) -> Number:
    """The literal as one of `dtype`; of floats that an integer dtype does not hold, what NumPy makes of them."""
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.asarray(x.value, x.dtype)
        found = value != 0 if dtype == "bool" else rounded(value, dtype)
    literal = found.astype(register_dtype(dtype))
    return Number(literal.item(), register_dtype(dtype), x.lanes)


def _single(out: Writer, x: Expr, dtype: str) -> Expr:
    """`x` as a float32 that `dtype` rounds as it would `x` itself."""
    if not is_mask(x) and is_rounded_from_float64(x.dtype, dtype):
        return maths.call(out, "to_odd", x)
    return cast(out, x, "float32")


def stored(value: Expr, dtype: str) -> Expr:
    """`value` as an element of memory dtype `dtype`: a mask becomes zeros and ones."""
    if not is_mask(value):
        return value
    return select(value, Number(1, dtype, value.lanes), Number(0, dtype, value.lanes))


def _unary(out: Writer, op: str, x: Expr, dtype: str) -> Expr:
    if op == "not":
        return Operation("not", (x,), x.dtype, x.lanes)
    if op == "neg":
        return wrapping("neg", (x,), dtype)
    if op == "abs":
        if dtype == "float32" and "abs" in out.native:
            return Call(out.native["abs"], (x,), dtype, x.lanes)
        x = out.atom("x", x)
        zero = Number(0, dtype, x.lanes)
        return select(compare("gt", x, zero), x, wrapping("sub", (zero, x), dtype))
    return maths.call(out, op, x)


def _binary(out: Writer, op: str, a: Expr, b: Expr, dtype: str) -> Expr:
    if op in _COMPARISONS:
        return compare(op, a, b)
    if op in ("and", "or"):
        a, b = widen(a, b)
        return Operation(op, (a, b), a.dtype, a.lanes)
    if op in ("max", "min"):
        return extreme(out, op, a, b, dtype)
    if op in DIVISIONS:
        return divided(out, op, a, b, dtype)
    if op in ("shl", "shr"):
        return shifted(out, op, a, b, dtype)
    a, b = widen(a, b)
    if op == "pow" and not is_float(dtype):
        return powered(out, a, b, dtype)
    if op in ("pow", "atan2", "fmod", *WORD_OF.values()):
        return maths.call(out, op, a, b)
    return wrapping(op, (a, b), dtype)


def extreme(out: Writer, op: str, a: Expr, b: Expr, dtype: str) -> Expr:
    """max or min; NaN if either operand is.

    Of vectors ``a != a ? a : (a > b ? a : b)``: the inner select keeps a NaN in b (one machine instruction), the outer
    one that in a.  Of scalars ``a <= b || b != b ? b : a``: over 32 nested pairs of selects on float16 Intel's compiler
    (2026.2, for CPUs that compute in float16) does not end, for these it takes 3 s.  Of integers, and beside a number,
    one select of two.
    """
    order, opposite = ("gt", "le") if op == "max" else ("lt", "ge")
    if isinstance(a, Number):
        a, b = b, a
    a, b = widen(a, b)
    a = out.atom("a", a)
    if isinstance(b, Number) and not isnan(b.value):
        return select(compare(order, b, a), b, a)
    b = out.atom("b", b)
    if register_dtype(dtype) == "float32" and op in out.native:
        return Call(out.native[op], (a, b), a.dtype, a.lanes)
    if is_float(dtype) and a.lanes == 1:
        return select(Operation("or", (compare(opposite, a, b), compare("ne", b, b)), "bool"), b, a)
    larger = select(compare(order, a, b), a, b)
    return select(compare("ne", a, a), a, larger) if is_float(dtype) else larger


def combine(
    out: Writer,
    scope: Scope,
    combiner,
    lhs: tuple[Expr, ...],
    rhs: tuple[Expr, ...],  # type: ignore[no-untyped-def]
) -> tuple[Expr, ...]:
    """The combiner applied to two tuples, every component from the old ones."""
    if _uses_of_right(combiner.combine) > len(rhs):
        rhs = tuple(out.atom("x", value) for value in rhs)
    names = {f"lhs{c}": value for c, value in enumerate(lhs)} | {f"rhs{c}": value for c, value in enumerate(rhs)}
    inner = Scope(scope.place, scope.lane, scope.load, scope.partial, names)
    new = evaluate_all(out, inner, combiner.combine)
    return new if len(new) == 1 else tuple(out.let("next", value) if not _is_leaf(value) else value for value in new)


@lru_cache(maxsize=256)
def _uses_of_right(combined: tuple[Value, ...]) -> int:
    """How often a combiner reads its right operands."""
    return sum(isinstance(node, Var) and node.name.startswith("rhs") for value in combined for node in _nodes(value))


def _is_leaf(value: Expr) -> bool:
    return isinstance(value, (Number, Name))


def _nodes(value: Value):  # type: ignore[no-untyped-def]
    yield value
    for child in value.children():
        yield from _nodes(child)


def zero_when_masked(value: Value, axis: str) -> bool:
    """Whether `value` is certainly 0 where every load that varies along `axis` gives 0."""
    zero = lambda part: zero_when_masked(part, axis)
    match value:
        case Load():
            return axis in value.axes() and value.fill == 0
        case Const():
            return value.value == 0
        case Cast():
            return zero(value.x)
        case Unary():
            return PRIMITIVES[value.op].keeps_zero and zero(value.x)
        case Binary(op="mul"):
            return (zero(value.a) and _finite(value.b, axis)) or (zero(value.b) and _finite(value.a, axis))
        case Binary():
            return PRIMITIVES[value.op].keeps_zero and zero(value.a) and zero(value.b)
        case Select():
            return zero(value.a) and zero(value.b)
    return False


def _finite(value: Value, axis: str) -> bool:
    """Whether `value` is certainly finite where loads along `axis` give 0: 0 times it is then 0."""
    if isinstance(value, Const):
        return abs(value.value) != float("inf") and value.value == value.value
    return zero_when_masked(value, axis) or isinstance(value, IndexValue)
