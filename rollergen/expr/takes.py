"""Elements whose place is a number that is read: where they lie, for readers of programs and for the definition.

>>> import numpy as np, rollergen as rg
>>> table, ids = rg.tensor("table", (3, 2)), rg.tensor("ids", (4,), "int64")
>>> rg.take(table, ids, axis=0).evaluate([[0, 1], [2, 3], [4, 5]], [2, 0, -1, 2])
array([[4., 5.],
       [0., 1.],
       [4., 5.],
       [4., 5.]])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import TYPE_CHECKING, Any

from rollergen.errors import ArgumentError, ExpressionError
from rollergen.expr.dtypes import is_integer
from rollergen.expr.index import Bounds
from rollergen.expr.show import show
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
    Value,
    axes_of,
    walk,
)
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.late import np

if TYPE_CHECKING:
    from rollergen.expr.tensor_op import TensorOp


@dataclass(frozen=True, slots=True)
class Bounded(Buffer):
    """One integer that is an argument of the call, from ``low`` to ``high`` (`rg.scalar`)."""

    low: int = 0
    high: int = 0

    def check(self, value: Any) -> None:
        """ArgumentError, which names the argument, for a value outside."""
        if not self.low <= int(value) <= self.high:
            raise ArgumentError(f"{self.name} is {int(value)}; expected {self.low} to {self.high}")


def take_of(row: Load, at: Iterable[tuple[int, Value]], mode: str) -> Take:
    """``row`` with the values for the indices of the dimensions `at`, which are 0 in it."""
    pairs, shape = tuple(at), row.buffer.shape
    return Take(
        row,
        tuple(value for _, value in pairs),
        tuple(shape[dimension] for dimension, _ in pairs),
        tuple(prod(shape[dimension + 1 :]) for dimension, _ in pairs),
        mode,
    )


def axes_of_ids(take: Take, op: TensorOp) -> frozenset[str]:
    """The axes on which the ids of a take of `op` depend, also through results of its reductions: these depend on every
    axis that is not reduced, and running ones on those that are, too."""
    found = frozenset().union(*map(axes_of, take.ids))
    read = {node.name for one in take.ids for node in walk(one) if isinstance(node, Partial)}
    for reduction in op.reductions:
        if reduction.name in read:
            over = () if reduction.running else reduction.axes
            found |= {axis.name for axis in op.axes if axis.role != "inner" and axis.name not in over}
    return found


def positions(take: Take) -> tuple[Value, ...]:
    """Of each of the ids a value from 0 to its extent - 1, whatever the id: nothing outside is ever read.

    ``raise`` counts negative ones from the end; what then is outside, which the host refuses before (`checked_ids`),
    is the nearest.  ``clip``: the nearest; ``wrap``: the remainder.
    """
    try:
        return take._positions
    except AttributeError:
        found = tuple(place_of(one, n, take.mode) for one, n in zip(take.ids, take.extents, strict=True))
        object.__setattr__(take, "_positions", found)
        return found


def widened(value: Value, extent: int) -> Value:
    """An id in a dtype that holds the extent too."""
    signed, bits = DTYPES[value.dtype].signed, DTYPES[value.dtype].bits
    if bits < 32 or (bits == 32 and (not signed or extent > 2**31 - 1)):
        return Cast(value, "int32" if bits < 32 and extent < 2**31 else "int64")
    return value


def place_of(value: Value, extent: int, mode: str) -> Value:
    """An id as a value from 0 to `extent` - 1 (see `positions`)."""
    value = widened(value, extent)
    dtype, signed = value.dtype, DTYPES[value.dtype].signed
    number = lambda n: Const(n, dtype)
    if mode == "wrap":
        return Binary("remainder", value, number(extent), dtype)
    if mode == "raise" and signed:
        counted = Binary("add", value, number(extent), dtype)
        value = Select(Binary("lt", value, number(0), "bool"), counted, value, dtype)
    value = Binary("min", value, number(extent - 1), dtype)
    return Binary("max", value, number(0), dtype) if signed else value


def located(ids: Any, extent: int, mode: str, what: str) -> Any:
    """The definition: an array of ids as numbers from 0 to `extent` - 1.  ArgumentError, which names `what`, for ids
    outside where `mode` is ``raise``."""
    ids = np.asarray(ids)
    if mode == "wrap":
        return ids % ids.dtype.type(extent)
    if mode == "raise":
        if not _AS_KERNELS_READ.get():
            check_ids(np.squeeze(ids), extent, what)
        ids = np.where(ids < 0, ids + extent, ids)
    return np.clip(ids, 0, extent - 1)


@contextmanager
def ids_as_kernels_read_them() -> Iterator[None]:
    """Within it no id is an error: kernels, which cannot refuse one, read the nearest element (`place_of`)."""
    token = _AS_KERNELS_READ.set(True)
    try:
        yield
    finally:
        _AS_KERNELS_READ.reset(token)


_AS_KERNELS_READ = ContextVar("_AS_KERNELS_READ", default=False)


def check_ids(ids: Any, extent: int, what: str) -> None:
    """ArgumentError where one of the array's numbers is outside ``-extent .. extent - 1``."""
    if not ids.size:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < -extent or high >= extent:
        wrong = low if low < -extent else high
        place = tuple(np.argwhere(ids == wrong)[0].tolist())
        raise ArgumentError(
            f"{what} holds {wrong}{f' at {place}' if place else ''}; expected indices from {-extent} to {extent - 1}, "
            'or a take with mode="clip" or "wrap"'
        )


def check_different(ids: Any, extent: int, what: str) -> None:
    """ArgumentError where two of an array's numbers are one place, negative ones counted from the end."""
    count = np.bincount((ids % extent).reshape(-1).astype(np.int64), minlength=1)
    if count.max() > 1:
        raise ArgumentError(
            f"{what} names place {int(count.argmax())} {int(count.max())} times; expected places that are all different"
        )


def id_bounds(value: Value, ranges: Mapping[str, Bounds]) -> Bounds:
    """Inclusive bounds of an integer value, of what is read those of its dtype."""
    most = DTYPES[value.dtype].limits
    of = lambda part: id_bounds(part, ranges)
    match value:
        case Const():
            found = int(value.value), int(value.value)
        case IndexValue():
            found = value.index.bounds(ranges)
        case Load(buffer=Bounded(low=low, high=high)):
            found = low, high
        case Cast() if is_integer(value.x.dtype):
            found = of(value.x)
        case Select():
            (a, b), (c, d) = of(value.a), of(value.b)
            found = min(a, c), max(b, d)
        case Binary(op="min" | "max" as op):
            pick, (a, b), (c, d) = min if op == "min" else max, of(value.a), of(value.b)
            found = pick(a, c), pick(b, d)
        case Binary(op="add"):
            (a, b), (c, d) = of(value.a), of(value.b)
            found = a + c, b + d
        case Binary(op="sub"):
            (a, b), (c, d) = of(value.a), of(value.b)
            found = a - d, b - c
        case Binary(op="mul"):
            (a, b), (c, d) = of(value.a), of(value.b)
            ends = a * c, a * d, b * c, b * d
            found = min(ends), max(ends)
        case Binary(op="remainder", b=Const(value=int() as divisor)) if divisor > 0:
            found = 0, divisor - 1
        case _:
            return most
    return found if most[0] <= found[0] and found[1] <= most[1] else most  # it may wrap around


@dataclass(frozen=True, slots=True)
class CheckedIds:
    """Elements of an input that a call checks: all those of ``load`` lie in ``-extent .. extent - 1``."""

    load: Load
    extent: int
    extents: tuple[tuple[str, int], ...]

    def elements(self) -> Any:
        """Their row-major numbers in the input, each once; None: all of it."""
        axes = self.load.axes()
        own = [(name, extent) for name, extent in self.extents if name in axes]
        mesh = np.ogrid[tuple(slice(0, extent) for _, extent in own)]
        at = dict(zip((name for name, _ in own), mesh, strict=True))
        inside = np.ones((1,) * len(own), bool)
        for bound in self.load.guard:
            inside = inside & bound.evaluate(at)
        numbers, inside = np.broadcast_arrays(np.asarray(self.load.offset().evaluate(at)), inside)
        found = np.unique(numbers[inside])
        return None if found.size == self.load.buffer.elements else found


def checked_ids(op: TensorOp) -> Iterator[CheckedIds]:
    """What the host checks before a call of the tensor op: ids of mode ``raise`` that may be outside.

    Raises ExpressionError where these are computed, so that they are not there before the call.
    """
    for take in op.takes():
        for value, extent in zip(take.ids, take.extents, strict=True) if take.mode == "raise" else ():
            low, high = id_bounds(value, op.ranges())
            if -extent <= low and high < extent:
                continue
            given = value
            while isinstance(given, Cast) and is_integer(given.x.dtype):
                given = given.x
            if not isinstance(given, Load) or given.buffer.kind != "input":
                raise ExpressionError(
                    f"{show(take)}: the indices {show(value)} are computed, so that no call can refuse those outside "
                    f'{-extent} to {extent - 1}; expected a given tensor, or mode="clip" or "wrap" of rg.take'
                )
            yield CheckedIds(given, extent, tuple(op.extents().items()))
