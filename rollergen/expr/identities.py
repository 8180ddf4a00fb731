"""Whether a combiner's identity is one: tried on elements that the reduction may meet.

A reduction may start from the identity, or from its first element: the two must not differ.  Elements come about as
in the reduction itself: what is given is any number, a constant is that constant, an index lies within its axis, and
everything else follows from these (the count of a Welford tuple is 1, never 0; what `ops.relu` made is never
negative).  Infinities and NaN are not tried: an identity may be one among the finite numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollergen.expr.arithmetic import applied, combined, converted, wide
from rollergen.expr.dtypes import bounds, is_float
from rollergen.expr.values import Binary, Cast, Combiner, Const, IndexValue, Load, Select, Unary, Value
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np

_FLOATS = (0.0, 1.0, -1.0, 0.5, -0.25, 3.0, -7.5, 100.0, -1000.0)
_INTEGERS = (0, 1, -1, 2, -3, 7, -50, 100)
_TRIED = 64
_FARTHEST = 3
"""Of so many tensors computed one from another the values are known; those further behind may be anything."""
_CLOSE = 1e-6
"""Relative error of what an identity leaves unchanged: an update by a quotient rounds."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """``combine(identity, element)``, or with the two swapped (``behind``), is ``made`` instead of ``element``."""

    element: tuple[Any, ...]
    made: tuple[Any, ...]
    behind: bool


def counterexample(
    combiner: Combiner, bodies: tuple[Value, ...], extents: Mapping[str, int]
) -> Counterexample | None:
    """An element, or two combined, that the combiner's identity changes; None if none is found.

    ``bodies`` are the reduced components in the accumulators' dtypes, ``extents`` those of their axes.
    """
    with np.errstate(all="ignore"):
        drawn = _Elements(extents)
        single = tuple(np.broadcast_to(drawn.of(body), _TRIED) for body in bodies)
        pairs = _combine(combiner, single, tuple(np.roll(part, 1) for part in single))
        identity = tuple(np.full(_TRIED, one.value, wide(one.dtype)) for one in combiner.identity)
        for elements in (single, pairs):
            for behind in (False, True):
                operands = (elements, identity) if behind else (identity, elements)
                found = _changed(elements, _combine(combiner, *operands), behind)
                if found is not None:
                    return found
    return None


def _combine(combiner: Combiner, lhs: tuple[Any, ...], rhs: tuple[Any, ...]) -> tuple[Any, ...]:
    operands = {f"lhs{c}": part for c, part in enumerate(lhs)} | {f"rhs{c}": part for c, part in enumerate(rhs)}
    return tuple(np.broadcast_to(combined(value, operands), _TRIED) for value in combiner.combine)


def _changed(elements: tuple[Any, ...], made: tuple[Any, ...], behind: bool) -> Counterexample | None:
    """The first element that is not what was made of it; those that are not finite are passed over."""
    usual = np.logical_and.reduce([np.isfinite(part) for part in elements])
    pairs = list(zip(elements, made, strict=True))
    differ = np.logical_or.reduce([~np.isclose(new, old, rtol=_CLOSE, atol=_CLOSE) for old, new in pairs])
    places = np.flatnonzero(usual & differ)
    if not places.size:
        return None
    at = int(places[0])
    return Counterexample(tuple(part[at].item() for part in elements), tuple(part[at].item() for part in made), behind)


class _Elements:
    """Values of the language on `_TRIED` draws of everything they read; equal reads are drawn once."""

    def __init__(self, extents: Mapping[str, int], behind: int = 0) -> None:
        """``behind``: of so many tensors computed one from another."""
        self._random = np.random.default_rng(behind)
        self._axes = {name: self._random.integers(0, max(extent, 1), _TRIED) for name, extent in extents.items()}
        self._known: dict[Value, Any] = {}
        self._behind = behind

    def of(self, value: Value) -> Any:
        match value:
            case Const():
                return np.asarray(value.value, wide(value.dtype))
            case IndexValue():
                return np.asarray(value.index.evaluate(self._axes))
            case Cast():
                return converted(self.of(value.x), value.dtype)
            case Select():
                return np.where(*(self.of(part) for part in value.children()))
            case Unary() | Binary():
                return applied(value, *(self.of(part) for part in value.children()))
        if value not in self._known:
            self._known[value] = self._drawn(value)
        return self._known[value]

    def _drawn(self, value: Value) -> Any:
        """Any numbers; of a computed tensor (not of what it reduces) those that it computes, each read in an order of
        its own."""
        producer = value.source.producer if isinstance(value, Load) and value.source is not None else None
        if producer is not None and self._behind < _FARTHEST:
            computed = _Elements(dict(producer.axes), self._behind + 1).of(producer.body)
            return self._random.permutation(np.broadcast_to(computed, _TRIED))
        low, high = bounds(value.dtype)
        tried = (False, True) if value.dtype == "bool" else (_FLOATS if is_float(value.dtype) else _INTEGERS)
        numbers = [number for number in tried if low <= number <= high]
        return np.asarray(numbers, wide(value.dtype))[self._random.integers(0, len(numbers), _TRIED)]
