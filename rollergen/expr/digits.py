"""Bounds on a number that follow from bounds on its digits.

The place of a pixel in a flat image is the number of its row and column: where a guard keeps both within the image, the
place is within it as well, wherever the tile lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations
from math import prod

from rollergen.expr.dims import HIGHEST
from rollergen.expr.guards import guarded_ranges, within_extent
from rollergen.expr.index import Bounds, Index, Mod, linear
from rollergen.expr.tensor_op import Axis
from rollergen.expr.values import Load, Within
from rollergen.expr.views import reduced

_MOST_DIGITS = 3
"""Axes of an image that are guarded together."""


def follows(bound: Within, others: Iterable[Within], ranges: Mapping[str, Bounds]) -> bool:
    """Whether the bound holds wherever `others` do.

    True if its index is ``scale * number + rest``, ``number`` being the row-major number of some of the others' indices
    (their bounds begin at 0), and stays below the bound's end for the largest of both.

    >>> x = Index.axis("x")
    >>> row, column = Within(x // 8 - 1, 0, 8), Within(x % 8 + 1, 0, 8)
    >>> follows(Within(x * 2 - 14, 0, 128), (row, column), {"x": (0, 999)})
    True
    >>> follows(Within(x * 2 - 14, 0, 126), (row, column), {"x": (0, 999)})
    False
    """
    every = tuple(others)
    digits = [other for other in every if other.low == 0]
    if bound.low > 0 or len(digits) < 2:
        return False
    within = guarded_ranges(ranges, every)
    target = reduced(bound.index, ranges)
    scales = sorted({coefficient for _, coefficient in target.terms if coefficient > 0})
    for count in range(2, min(len(digits), _MOST_DIGITS) + 1):
        for chosen in permutations(digits, count):
            extents = tuple(one.high for one in chosen)
            number = reduced(linear(tuple(one.index for one in chosen), extents), ranges)
            for scale in scales:
                low, high = _without_negative_digits(target - number * scale).simplify(within).bounds(within)
                if low >= 0 and high + (prod(extents) - 1) * scale < bound.high:
                    return True
    return False


def kept_axes(load: Load, axes: Iterable[Axis]) -> frozenset[str]:
    """Spatial axes of the load beyond whose ends its guard keeps it within its buffer still."""
    if not load.guard:
        return frozenset()
    ranges = {axis.name: (0, HIGHEST if axis.role == "spatial" else axis.extent - 1) for axis in axes}
    open_axes = {name for name, (_, high) in ranges.items() if high == HIGHEST}
    left: set[str] = set()
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        own = index.axes() & open_axes
        inside = own and within_extent(index, extent, ranges, load.guard)
        if own and not inside and not follows(Within(index, 0, extent), load.guard, ranges):
            left |= own
    return load.axes() & open_axes - left


def _without_negative_digits(index: Index) -> Index:
    """The same index without negative quotients and remainders: ``x - (x // d) * d`` is ``x % d``, ``x - x % d`` is
    ``x // d * d``."""
    for atom, coefficient in index.terms:
        if isinstance(atom, str) or coefficient > 0:
            continue
        x, d, each = atom.index, atom.divisor, Index(((atom, 1),))
        if isinstance(atom, Mod):
            index = index + (x - x // d * d - each) * coefficient
        elif coefficient % d == 0:
            index = index + (x - x % d - each * d) * (coefficient // d)
    return index
