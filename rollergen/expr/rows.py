"""What a tensor op says of a row: values known from the reductions over it, and two reductions made one."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.dtypes import is_float
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.tensor_op import Reduction, TensorOp
from rollergen.expr.values import Binary, Cast, Combiner, Const, Partial, Select, Unary, Value, Var, named_combiner

_LEAST = {"float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}


def is_below_its_row(op: TensorOp, value: Value) -> bool:
    """Whether the value is an element of a row less the largest one of that row: never above 0, and 0 at least once."""
    if not (isinstance(value, Binary) and value.op == "sub" and isinstance(value.b, Partial)):
        return False
    row = next((one for one in op.reductions if one.name == value.b.name), None)
    if row is None or value.b.component or value.a != row.bodies[0]:
        return False
    dtype = value.a.dtype
    return row.combiner == named_combiner("max", dtype) or (dtype in _LEAST and row.combiner == online_combiner(dtype))


def without_nan_checks(op: TensorOp, reduction: Reduction) -> Reduction:
    """The reduction, where it is a maximum that may lose a NaN of its row, with a combiner that does.

    So it is where a later sum of the same row adds up the exponentials of the differences to it, which is NaN as soon
    as one element is, and where the result is computed from that sum in a way that keeps NaN: softmax, its logarithm.
    """
    dtype, without = reduction.bodies[0].dtype, losing_nan(reduction)
    if dtype not in _LEAST or without is None or reduction.combiner != named_combiner("max", dtype):
        return reduction
    below = Binary("sub", reduction.bodies[0], Partial(reduction.name, dtype), dtype)
    total, term = named_combiner("sum", dtype), Unary("exp", below, dtype)
    alike = [one for one in op.reductions if one.axes == reduction.axes and one.combiner == total]
    sums = [one for one in alike if one.bodies == (term,)]
    if not any(_keeps_nan(op.result, Partial(one.name, dtype)) for one in sums):
        return reduction
    return replace(reduction, combiner=without)


def losing_nan(reduction: Reduction) -> Combiner | None:
    """The combiner of a maximum or minimum of floats, but for NaN: of one and a number it is any of the two.  None of
    other reductions."""
    dtype = reduction.bodies[0].dtype
    for name, order in (("max", "gt"), ("min", "lt")):
        if is_float(dtype) and reduction.combiner == named_combiner(name, dtype):
            left, right = Var("lhs0", dtype), Var("rhs0", dtype)
            chosen = Select(Binary(order, left, right, "bool"), left, right, dtype)
            return replace(reduction.combiner, combine=(chosen,))
    return None


def _keeps_nan(value: Value, source: Value) -> bool:
    """Whether `value` is NaN wherever `source` is, by the operations between them."""
    if value == source:
        return True
    match value:
        case Unary():
            return PRIMITIVES[value.op].keeps_nan and _keeps_nan(value.x, source)
        case Binary():
            kept = _keeps_nan(value.a, source) or _keeps_nan(value.b, source)
            return PRIMITIVES[value.op].keeps_nan and kept
        case Cast(dtype="float16" | "bfloat16" | "float32" | "float64"):
            return _keeps_nan(value.x, source)
    return False


def online(op: TensorOp) -> TensorOp | None:
    """The largest of a row and the sum of exponentials of the differences to it (softmax) as one reduction of pairs,
    for which the row is read once; None where these are not the tensor op's reductions.

    M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, arXiv 1805.02867 (2018).
    """
    if len(op.reductions) != 2:
        return None
    largest, total = op.reductions
    element, dtype = largest.bodies[0], largest.bodies[0].dtype
    below = Binary("sub", element, Partial(largest.name, dtype), dtype)
    term = Unary("exp", below, dtype)
    if largest.combiner != named_combiner("max", dtype) or not is_below_its_row(op, below):
        return None
    if total.combiner != named_combiner("sum", dtype) or total.bodies != (term,) or dtype not in _LEAST:
        return None
    both = Reduction(largest.name, online_combiner(dtype), largest.axes, (element, Const(1.0, dtype)))
    most = Partial(largest.name, dtype)
    # An infinite largest element makes the sum NaN, as exp(inf - inf) would have done.
    new = Binary("add", Partial(largest.name, dtype, 1), Binary("sub", most, most, dtype), dtype)
    result = _replaced(op.result, Partial(total.name, dtype), new)
    return replace(op, reductions=(both,), result=result)


def online_combiner(dtype: str) -> Combiner:
    """(largest m, sum s of exp(x - m)): of two, the sum with the smaller m shrinks by exp(-|m - m'|).

    The least m is the least finite number: differences of equal infinities, NaN, do not arise from the identity.
    """
    m, s, n, t = Var("lhs0", dtype), Var("lhs1", dtype), Var("rhs0", dtype), Var("rhs1", dtype)
    shrink = Unary("exp", _exponent(m, n), dtype)
    plus = lambda a, b: Binary("add", a, b, dtype)
    less = lambda a: Binary("mul", a, shrink, dtype)
    total = Select(Binary("ge", m, n, "bool"), plus(s, less(t)), plus(t, less(s)), dtype)
    least = Const(_LEAST[dtype], dtype)
    return Combiner("online", (least, Const(0.0, dtype)), (Binary("max", m, n, dtype), total))


def is_online_exponent(value: Value) -> bool:
    """Whether it is the exponent by which `online_combiner` shrinks the smaller sum: never above 0, and what it is the
    exponent of is a part of the larger one."""
    return value == _exponent(Var("lhs0", value.dtype), Var("rhs0", value.dtype))


PART, WHOLE = "part", "whole"


def shrinking(dtype: str) -> Value:
    """By how much the sum of a `PART` shrinks in a `WHOLE` whose largest element is none of the part's below: the
    names stand for the largest elements of both."""
    return Unary("exp", Binary("sub", Var(PART, dtype), Var(WHOLE, dtype), dtype), dtype)


def is_shrinking_exponent(value: Value) -> bool:
    """Whether it is the exponent of `shrinking`: never above 0."""
    return value == shrinking(value.dtype).x  # type: ignore[attr-defined]


def is_gathered(op: TensorOp) -> bool:
    """Whether points may go into the tensor op's online pair together: a NaN among them makes the sum NaN, but need
    not be found as the largest, so the result must be NaN wherever the sum is."""
    if len(op.reductions) != 1:
        return False
    (pair,) = op.reductions
    dtype = pair.bodies[0].dtype
    if dtype not in _LEAST or pair.combiner != online_combiner(dtype) or pair.bodies[1] != Const(1.0, dtype):
        return False
    return _keeps_nan(op.result, Partial(pair.name, dtype, 1))


def _exponent(m: Var, n: Var) -> Value:
    return Unary("neg", Unary("abs", Binary("sub", m, n, m.dtype), m.dtype), m.dtype)


def _replaced(value: Value, old: Value, new: Value) -> Value:
    if value == old:
        return new
    children = value.children()
    return value.with_children(tuple(_replaced(child, old, new) for child in children)) if children else value
