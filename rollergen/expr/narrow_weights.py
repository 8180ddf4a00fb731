"""Products of activations with constant weights of whole numbers: what is multiplied, and who shares a scale.

``sum(x[i, k] * (q[j, k] - z) * s)``: q of int4, uint4, int8 or uint8, a zero point z and factors s that are the same
for a group of neighbours along the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from rollergen.expr.index import Bounds, Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import (
    Binary,
    Cast,
    Const,
    Load,
    Value,
    axes_of,
    loads,
    multiplied,
    named_combiner,
    takes,
)
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES

_F32, _I32, _I8 = "float32", "int32", "int8"
GROUPS = (64, 32, 16, 8)
"""Neighbours along the sum that may share a scale, the most first: longer sums of whole numbers cost fewer conversions,
and more registers of words."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Integers from ``low`` to ``high``."""

    low: int
    high: int

    @property
    def shift(self) -> int:
        """What makes all of them no less than 0."""
        return -self.low if self.low < 0 else 0

    @property
    def nibble(self) -> bool:
        return self.high - self.low < 16


@dataclass(frozen=True, slots=True)
class Product:
    """``activation * (number - zero) * scales`` summed along ``along``; ``n``: the axis of the lanes.

    ``whole``: the range of the number, ``zeros``: that of the zero point; ``group``: activations of one scale."""

    op: TensorOp
    activation: Value
    number: Value
    whole: Whole
    zero: Value | None
    zeros: Whole
    scales: tuple[Value, ...]
    along: Axis
    n: Axis
    group: int

    @property
    def shared(self) -> bool:
        """Whether several rows of activations are multiplied with the same weights."""
        rows = axes_of(self.activation) - axes_of(self.number)
        return any(axis.extent > 1 for axis in self.op.of_role("spatial") if axis.name in rows)


def product_of(op: TensorOp, most: int = GROUPS[0]) -> Product | None:
    """The tensor op as such a product, of no more than ``most`` in a group; None where it is none."""
    reduced = op.of_role("reduce")
    if len(op.reductions) != 1 or len(reduced) != 1 or op.of_role("row", "inner") or op.where:
        return None
    (reduction,), (along,) = op.reductions, reduced
    if reduction.combiner != named_combiner("sum", _F32) or takes(*reduction.bodies):
        return None
    factors = list(multiplied(reduction.bodies[0]))
    known = [one for one in factors if all(load.buffer.constant for load in loads(one))]
    others = [one for one in factors if one not in known]
    weights = [one for one in known if _integer(one) is not None and along.name in axes_of(one)]
    if len(weights) != 1 or not others or any(load.guard for load in op.body_loads()):
        return None
    integer = _integer(weights[0])
    n = _last_axis(op)
    activation = times(others)
    if integer is None or n is None or n.name in axes_of(activation) or activation.dtype != _F32:
        return None
    number, zero = integer
    whole, zeros = _range(number), Whole(0, 0) if zero is None else _range(zero)
    scales = tuple(one for one in known if one is not weights[0])
    if whole is None or zeros is None or not {n.name, along.name} <= axes_of(number):
        return None
    same = (*scales, *(() if zero is None else (zero,)))
    group = _group(along, same, 8 if whole.nibble else 4, most)
    if group is None:
        return None
    return Product(op, activation, number, whole, zero, zeros, scales, along, n, group)


def times(factors: Sequence[Value]) -> Value:
    """The product of floats."""
    return reduce(lambda a, b: Binary("mul", a, b, _F32), factors)


def _last_axis(op: TensorOp) -> Axis | None:
    """The axis along which results are neighbours in memory."""
    last = op.target[-1] if op.target else Index()
    return next((axis for axis in op.of_role("spatial") if last == Index.axis(axis.name)), None)


def _integer(value: Value) -> tuple[Value, Value | None] | None:
    """(number, zero point) of which it is the difference as a float; None where it is none."""
    if not (isinstance(value, Cast) and value.dtype == _F32):
        return None
    whole = _without_casts(value.x)
    if isinstance(whole, Binary) and whole.op == "sub" and whole.dtype == _I32:
        number, zero = _without_casts(whole.a), _without_casts(whole.b)
        return (number, zero) if _range(number) is not None else None
    return (whole, None) if _range(whole) is not None else None


def _without_casts(value: Value) -> Value:
    """The value without casts to integers that hold every one of its numbers."""
    while isinstance(value, Cast) and value.dtype == _I32 and value.x.dtype in (_I8, "uint8", _I32):
        value = value.x
    return value


def _range(value: Value) -> Whole | None:
    """The numbers that it may be; None where they are not known to fit bytes."""
    value = _without_casts(value)
    match value:
        case Const(int(number)) if -128 <= number <= 255:
            return Whole(number, number)
        case Load() if value.dtype in (_I8, "uint8"):
            return Whole(*DTYPES[value.dtype].limits)
        case Binary("bitand", _, Const(15)):
            return Whole(0, 15)
        case Binary("sub", Binary("xor", Binary("bitand", _, Const(15)), Const(8)), Const(8)):
            return Whole(-8, 7)
    return None


def _group(along: Axis, same: tuple[Value, ...], least: int, most: int) -> int | None:
    """The most neighbours along the axis, ``most`` or fewer, for which the values are the same; None where that is not
    even ``least``."""
    for size in GROUPS:
        if size > min(along.extent, most) or along.extent % size or size % least:
            continue
        place = {along.name: Index.axis("g") * size + Index.axis("e")}
        ranges = {"g": (0, along.extent // size - 1), "e": (0, size - 1)}
        if all("e" not in axes_at(one, place, ranges) for one in same):
            return size
    return None


_ANY = (0, 1 << 20)
"""Bounds of an axis that does not matter."""


def axes_at(value: Value, place: Mapping[str, Index], ranges: Mapping[str, Bounds]) -> set[str]:
    """The axes of loads of the value at the place; other axes are left out."""
    found: set[str] = set()
    for load in loads(value):
        for index in load.indices:
            moved = index.substitute(place)
            others = dict.fromkeys(moved.names(), _ANY)
            found |= moved.simplify({**others, **ranges}).axes()
    return found
