"""Where the best element of a row stands: reductions of pairs (element, place)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rollergen.expr.dtypes import bounds, is_float
from rollergen.expr.functions import select
from rollergen.expr.reductions import user_combiner
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Combiner, IndexValue, Unary, Value

LAST_PLACE = 2**31 - 1
Better = Callable[[Any, Any], Any]


def better_of(floating: bool, sign: int, last_nan: bool = False) -> Better:
    """The better of two (element, place): NaN before everything, then size, then the smaller place; with ``last_nan``
    the larger one of two NaN."""

    def better(a: Any, b: Any) -> Any:
        first = a[0] > b[0] if sign > 0 else a[0] < b[0]
        equal = a[0] == b[0]
        if floating:
            lost_a, lost_b = a[0] != a[0], b[0] != b[0]
            first = first | (lost_a & ~lost_b)
            if last_nan:
                first = first | (lost_a & lost_b & (a[1] > b[1]))
            else:
                equal = equal | (lost_a & lost_b)
        first = first | (equal & (a[1] < b[1]))
        return select(first, a[0], b[0]), select(first, a[1], b[1])

    return better


def _behind_of(floating: bool, sign: int) -> Better:
    """The same where the second one's place is the larger: the first stays among equals and is not left once NaN."""

    def behind(a: Any, b: Any) -> Any:
        if floating:
            later = ~(a[0] >= b[0] if sign > 0 else a[0] <= b[0]) & (a[0] == a[0])
        else:
            later = a[0] < b[0] if sign > 0 else a[0] > b[0]
        return select(later, b[0], a[0]), select(later, b[1], a[1])

    return behind


def worst(dtype: str, sign: int) -> float | int:
    return bounds(dtype)[0 if sign > 0 else 1]


def combiner_in_order(reduction: Reduction) -> Combiner | None:
    """The combiner of what came before and a term whose place lies behind all of these, where the reduction finds a
    place along one axis; None of others.

    It compares no places.  What came before is a term too: of elements that equal the identity the first one's place
    would be lost.
    """
    if len(reduction.bodies) != 2 or len(reduction.axes) != 1:
        return None
    place, element = reduction.bodies[1], reduction.bodies[0].dtype
    if not isinstance(place, IndexValue) or place.dtype != "int32" or place.index.coefficient(reduction.axes[0]) < 1:
        return None
    return next((behind for one, behind in _known(element) if reduction.combiner == one), None)


@lru_cache(maxsize=64)
def operations_in_a_row(reduction: Reduction) -> int:
    """Operations by which each term of an accumulator waits for the one before: of a place that is found in order a
    comparison, what joins it with another one, and a choice; else one."""
    behind = combiner_in_order(reduction)
    return 1 if behind is None else max(map(_longest, behind.combine))


def _longest(value: Value) -> int:
    """Operations in a row; what negates a condition is part of another one."""
    below = value.children()
    return max(map(_longest, below), default=0) + (bool(below) and not isinstance(value, Unary))


@lru_cache(maxsize=32)
def _known(dtype: str) -> tuple[tuple[Combiner, Combiner], ...]:
    """Combiners of places of elements of a dtype, and what they are where terms come in order."""
    made = lambda of, sign: user_combiner(
        of(is_float(dtype), sign), (worst(dtype, sign), LAST_PLACE), (dtype, "int32"), True
    )
    return tuple((made(better_of, sign), made(_behind_of, sign)) for sign in (1, -1))
