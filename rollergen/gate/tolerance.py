"""How far a right result may lie from the oracle: derived from dtypes and lengths, not chosen.

Every operation in a dtype of unit roundoff u adds a relative error of at most u (its allowance of
units, `Primitive.ulps`, for functions).  Roundings of different operations are nearly independent, so their
errors add in quadrature (Higham and Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019): a sum of n terms has a standard error of at most
sqrt(n) u times the scale of the result, whatever the order of summation.  Where the order is known, n is the length
of its chains (`levels.added_terms`), and equal terms are allowed for, whose roundings all fall on one side: they err by
up to n/2 u (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2).  An element `want`
passes if

    |got - want| <= CONFIDENCE * sqrt(variance) * max(|want|, rms of all wants) + u_out * |want| + tiny + steps

where ``variance`` sums (units * u)^2 over the operations behind one element and u_out, tiny are
those of the output's dtype.  Operations that round nothing (loads, max, min, select, casts to a
wider dtype) contribute nothing, so copies must match exactly.  ``steps`` is not 0 where a rounded
value is made whole (floor, round, a cast to integers) or compared: next to a jump the result may
fall on either side of it.  Each product of a sum may be flushed to zero: ``steps`` then also holds that many of the
smallest normal number.  `differences.py` holds results to it.

Relative to the results' size that is too little where much larger values cancel, and next to jumps it cannot tell
which; what it refuses is held to the errors of its own computation (`perturbed.py`) before it is called wrong.

Where every intermediate value is a whole number that its dtype holds exactly, the tolerance is 0:
`exact_magnitude` finds the largest inputs for which that is so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import ml_dtypes

from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Bounds
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.tensor_op import Reduction, TensorOp, summed_axes
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Take,
    Unary,
    Value,
    Var,
    read_of,
    walk,
)
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES

CONFIDENCE = 8.0
"""Standard errors allowed: beyond 6 even of 10^9 elements none is expected to lie."""



def unit_roundoff(dtype: str) -> float:
    """2^-p for p significant bits; 0 for integers, which do not round."""
    return 2.0 ** -DTYPES[dtype].significant if is_float(dtype) else 0.0


def smallest_normal(dtype: str) -> float:
    """The smallest number that is not denormal; 0 for integers."""
    return float(ml_dtypes.finfo(dtype).tiny) if is_float(dtype) else 0.0


def largest_exact(dtype: str) -> float:
    """The magnitude up to which whole numbers, and so their sums below it, are exact in the dtype."""
    return 2.0 ** DTYPES[dtype].significant - (not is_float(dtype))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """``variance``: squared relative error behind one value; ``magnitude``: the largest absolute
    value if it is certainly a whole number held exactly, else infinity; ``steps``: absolute error by
    which it may have jumped; ``whole``: whether it is a whole number, whatever its size; ``flushed``:
    absolute error of the denormal numbers that may have been taken for zeros on the way, in sums."""

    variance: float
    magnitude: float
    steps: float = 0.0
    whole: bool = False
    flushed: float = 0.0

    @property
    def absolute(self) -> float:
        """Absolute error beside that of roundings."""
        return self.steps + self.flushed

    def held_in(self, dtype: str) -> Accuracy:
        return self if self.magnitude <= largest_exact(dtype) else replace(self, magnitude=math.inf)

    def rounded(self, dtype: str, units: float = 1.0) -> Accuracy:
        return replace(self, variance=self.variance + (units * unit_roundoff(dtype)) ** 2).held_in(dtype)

    def jumped(self) -> Accuracy:
        """The value rounded to a whole number: exact where it was whole before, else off by one where it lay next to a
        jump."""
        return self if self.whole or not self.variance else replace(self, steps=self.steps + 1.0, whole=True)


@dataclass(frozen=True, slots=True)
class _Scope:
    buffers: Mapping[str, Accuracy]
    ranges: Mapping[str, Bounds]
    partials: dict[tuple[str, int], Accuracy]

    def of(self, value: Value) -> Accuracy:
        match value:
            case Const(number):
                whole = float(number).is_integer()
                held = whole or math.isinf(number)
                rounded = 0.0 if held else unit_roundoff(value.dtype) ** 2
                return Accuracy(rounded, abs(number) if whole else math.inf, whole=whole)
            case Load(_, _, guard, fill) if guard and not math.isinf(fill):
                return _widest((self.buffers[value.buffer.name], self.of(Const(fill, value.dtype))))
            case Load() | Take():
                return self.buffers[read_of(value).buffer.name]
            case IndexValue(index):
                return Accuracy(0.0, max(map(abs, index.bounds(self.ranges)))).held_in(value.dtype)
            case Partial(name, _, component):
                return self.partials[name, component]
            case Var():
                return Accuracy(0.0, 0.0)
            case Cast(x):
                inner = _wrapped(self.of(x), value.dtype) if DTYPES[x.dtype].signed else self.of(x)
                if unit_roundoff(x.dtype) and not unit_roundoff(value.dtype) and value.dtype != "bool":
                    return inner.jumped().held_in(value.dtype)
                return inner.rounded(value.dtype) if _narrows(x.dtype, value.dtype) else inner.held_in(value.dtype)
            case Select(condition, a, b):
                return _widest((self.of(a), self.of(b)), self.of(condition).variance)
            case Unary(op, x):
                inner = self.of(x)
                if PRIMITIVES[op].jumps:
                    return inner.jumped()
                units = PRIMITIVES[op].ulps
                inner = _wrapped(inner, value.dtype) if op == "neg" else inner
                return _inexact(inner.variance).rounded(value.dtype, units) if units else inner
            case Binary("mul", a, b):
                return _product(self.of(a), self.of(b), _factor(a), _factor(b), value.dtype)
            case Binary("fmod", a, b):
                return _remainder(self.of(a), self.of(b), _factor(b))
            case Binary(op, a, b):
                found = _binary(op, self.of(a), self.of(b), value.dtype)
                return _wrapped(found, value.dtype) if op == "sub" else found
        raise TypeError(f"no accuracy rule for {type(value).__name__}")


def _wrapped(accuracy: Accuracy, dtype: str) -> Accuracy:
    """Of numbers that may be negative in a dtype that may be unsigned: there they are large."""
    return accuracy if DTYPES[dtype].signed else replace(accuracy, magnitude=largest_exact(dtype))


def _narrows(source: str, target: str) -> bool:
    """Whether a float's conversion may round: to fewer bits, or (bfloat16 to float16) to larger denormal numbers."""
    if not unit_roundoff(target):
        return False
    fewer = unit_roundoff(target) > unit_roundoff(source)
    smallest = lambda dtype: float(ml_dtypes.finfo(dtype).smallest_subnormal)
    return fewer or (unit_roundoff(source) > 0 and smallest(target) > smallest(source))


def _inexact(variance: float) -> Accuracy:
    return Accuracy(variance, math.inf)


def _widest(parts: Iterable[Accuracy], variance: float = 0.0) -> Accuracy:
    parts = tuple(parts)
    largest, steps = max(p.magnitude for p in parts), max(p.steps for p in parts)
    whole, flushed = all(p.whole for p in parts), max(p.flushed for p in parts)
    return Accuracy(variance + max(p.variance for p in parts), largest, steps, whole, flushed)


def _factor(value: Value) -> float:
    """What a jump of the other factor is multiplied by at most: known of constants and of random inputs."""
    match value:
        case Const(number):
            return abs(number)
        case Load() | Take():
            return 1.0 if unit_roundoff(value.dtype) else 8.0
        case Cast(x):
            return _factor(x)
    return 0.0


def _product(a: Accuracy, b: Accuracy, a_factor: float, b_factor: float, dtype: str) -> Accuracy:
    """Jumps times an operand of unknown size are not allowed for: a false alarm is better than none."""
    largest = 0.0 if 0.0 in (a.magnitude, b.magnitude) else a.magnitude * b.magnitude
    steps = a.steps * b_factor + b.steps * a_factor
    return Accuracy(a.variance + b.variance, largest, steps, a.whole and b.whole).rounded(dtype)


def _remainder(a: Accuracy, b: Accuracy, divisor: float) -> Accuracy:
    """Exact of exact numbers; else it may lie on the other side of a multiple of the divisor (`_factor`)."""
    if a.variance or b.variance or a.steps or b.steps:
        return replace(_inexact(a.variance + b.variance), steps=a.steps + b.steps + divisor)
    return Accuracy(0.0, a.magnitude, whole=a.whole and b.whole)


def _binary(op: str, a: Accuracy, b: Accuracy, dtype: str) -> Accuracy:
    both = a.variance + b.variance
    if op in ("max", "min"):
        return _widest((a, b))
    if PRIMITIVES[op].truth:
        return Accuracy(both, 1.0, 1.0 if both else 0.0, True)
    if PRIMITIVES[op].takes == "integer":
        most = largest_exact(dtype)
        return Accuracy(both, most, most if both or a.steps or b.steps else 0.0, True)
    if op in ("add", "sub"):
        flushed, whole = a.flushed + b.flushed, a.whole and b.whole
        return Accuracy(both, a.magnitude + b.magnitude, a.steps + b.steps, whole, flushed).rounded(dtype)
    return _inexact(both).rounded(dtype, PRIMITIVES[op].ulps)


def _counted(body: Value, neutral: Const) -> Value:
    """What a body adds to its reduction: not the identity, which it is where the point lies beyond the end."""
    return body.a if isinstance(body, Select) and body.b == neutral else body


def _of_sum(length: int, terms: int) -> float:
    """Squared units by which a sum of so many terms errs, added up in chains of so many (0: in any order)."""
    chain = min(terms, length)
    return max(chain, (chain / (2 * CONFIDENCE)) ** 2) if terms else length


def _reduce(reduction: Reduction, length: int, scope: _Scope, terms: int) -> tuple[Accuracy, ...]:
    neutral = reduction.combiner.identity
    bodies = tuple(scope.of(_counted(body, one)) for body, one in zip(reduction.bodies, neutral, strict=True))
    if reduction.combiner.name == "sum":
        dtype = reduction.bodies[0].dtype
        added = _of_sum(length, terms) * unit_roundoff(dtype) ** 2
        root = math.sqrt(length)  # jumps are as independent as roundings
        tiny = smallest_normal(dtype)
        return tuple(
            Accuracy(
                one.variance + added, length * one.magnitude, root * one.steps, one.whole,
                length * (one.flushed + tiny) if one.variance else 0.0,
            ).held_in(dtype)
            for one in bodies
        )  # fmt: skip
    step = tuple(scope.of(value) for value in reduction.combiner.combine)
    if all(part.variance == 0 for part in step):
        return tuple(_widest(bodies) for _ in step)
    worst = _widest(bodies).variance + max(part.variance for part in step)
    return tuple(_inexact(length * worst) for _ in step)


def _scoped(op: TensorOp, buffers: Mapping[str, Accuracy], terms: int = 0) -> tuple[_Scope, Accuracy]:
    """What is known of the values within a tensor op, and of what it makes; ``terms``: see `accuracies`."""
    scope = _Scope(buffers, op.ranges(), {})
    for reduction in op.reductions:
        length = math.prod(op.axis(name).extent for name in reduction.axes)
        for component, accuracy in enumerate(_reduce(reduction, length, scope, terms)):
            scope.partials[reduction.name, component] = accuracy
    result, dtype = op.result, op.output.dtype
    if isinstance(result, Cast) and result.dtype == dtype and unit_roundoff(dtype):
        # The output's own rounding is u_out, not variance.
        return scope, scope.of(result.x).held_in(dtype)
    return scope, _added_up(op, scope.of(result))


def _added_up(op: TensorOp, one: Accuracy) -> Accuracy:
    """Of results that are added up in the output, along the axes that it does not have."""
    times, dtype = math.prod(axis.extent for axis in summed_axes(op)), op.output.dtype
    if times == 1:
        return one
    variance = one.variance + times * unit_roundoff(dtype) ** 2
    return Accuracy(variance, times * one.magnitude, math.sqrt(times) * one.steps, one.whole).held_in(dtype)


def accuracies(
    tensor_ops: Iterable[TensorOp], inputs: Iterable[Buffer], magnitude: float = math.inf,
    terms: Sequence[int] = (), growths: Sequence[float] = (),
) -> dict[str, Accuracy]:  # fmt: skip
    """Accuracy of every buffer, for exact inputs that are whole numbers up to `magnitude`.  ``terms``: for each
    definition, the length of the chains in which its sums are added up; none: in any order.  ``growths``: of each, by
    how much squared relative errors of what it reads grow as it cancels; none: not at all."""
    known = {buffer.name: Accuracy(0.0, 1.0 if buffer.dtype == "bool" else magnitude) for buffer in inputs}
    stored = dict(known)
    every = tuple(tensor_ops)
    count = len(every)
    for op, chain, grown in zip(every, terms or (0,) * count, growths or (1.0,) * count, strict=True):
        (_, made), name = _scoped(op, stored, chain), op.output.name
        made = replace(made, variance=made.variance * grown)
        known[name] = _widest((made, known[name])) if name in known else made
        stored[name] = _as_stored(op, known[name])
    return known


def _as_stored(op: TensorOp, accuracy: Accuracy) -> Accuracy:
    """What later tensor ops read: the rounding to a narrower dtype, u_out where a value is the last one, is an error
    of theirs."""
    result, dtype = op.result, op.output.dtype
    narrowed = isinstance(result, Cast) and _narrows(result.x.dtype, dtype)
    return accuracy.rounded(dtype) if narrowed and not _is_held(result, dtype) else accuracy


def _is_held(value: Value, dtype: str) -> bool:
    """Whether a dtype certainly holds the value without rounding it: copies, choices and signs of what it held."""
    match value:
        case Cast(x):
            return _is_held(x, dtype)
        case Load() | Take() | Const():
            return value.dtype == dtype
        case Select(_, a, b):
            return _is_held(a, dtype) and _is_held(b, dtype)
        case Unary(op, x):
            return not PRIMITIVES[op].ulps and _is_held(x, dtype)
        case Binary(op, a, b):
            return op in ("max", "min") and _is_held(a, dtype) and _is_held(b, dtype)
    return False


def order_decides(tensor_ops: Iterable[TensorOp], inputs: Iterable[Buffer]) -> bool:
    """Whether what comes out may hang on the order of two rounded values: one that is compared, or one whose place is
    told (argmax).  The definition in float64 orders values that rounding makes equal."""
    stored = {buffer.name: Accuracy(0.0, math.inf) for buffer in inputs}
    for op in tensor_ops:
        scope, made = _scoped(op, stored)
        values = [op.result, *(body for r in op.reductions for body in r.bodies)]
        compared = (n for value in values for n in walk(value) if isinstance(n, Binary) and PRIMITIVES[n.op].truth)
        if any(scope.of(n).variance for n in compared):
            return True
        told = (r.bodies for r in op.reductions if any(not unit_roundoff(b.dtype) for b in r.bodies[1:]))
        if any(scope.of(bodies[0]).variance for bodies in told):
            return True
        stored[op.output.name] = _as_stored(op, made)
    return False


SMALL = (4, 2, 1)
RAMPS = (2**20, 2**14, 2**10)
"""Sizes of whole numbers, the largest first: those drawn at random, and those that can count elements."""


def exact_magnitude(
    tensor_ops: tuple[TensorOp, ...], inputs: tuple[Buffer, ...], choices: tuple[int, ...] = SMALL
) -> int | None:
    """The first of `choices` for which inputs up to that magnitude keep every value exact; None if none does.

    An input whose dtype does not hold the magnitude is taken to stay within what it holds.
    """
    for magnitude in choices:
        held = all(magnitude <= largest_exact(b.dtype) or not unit_roundoff(b.dtype) for b in inputs)
        made = accuracies(tensor_ops, inputs, magnitude)
        if held and all(math.isfinite(accuracy.magnitude) and not accuracy.steps for accuracy in made.values()):
            return magnitude
    return None
