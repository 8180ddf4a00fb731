"""The sizes at which programs are constructed first, and those at which they are priced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from rollergen.expr.dims import Dim

_SMALL = 6
"""Up to here, each size has tiles of its own."""
_FIRST = 24
"""Counts of several dims at which programs are constructed first."""
_BETWEEN = 1024
"""Sizes at which plans are priced: steps of the best one's time, which are as wide as a wave of blocks, are seen."""


def samples(low: int, high: int) -> list[int]:
    """Sizes from `low` to `high`: small ones, powers of 2, and what lies between two of these where it is small.

    Few: where else programs are constructed follows from the prices of these.

    >>> samples(1, 40)
    [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 40]
    """
    wanted = {low, high, *range(1, _SMALL + 1)}
    power = 8
    while power <= high:
        wanted |= {power, power * 3 // 2} if power < 64 else {power}
        power *= 2
    return sorted(size for size in wanted if low <= size <= high)


def sampled_sizes(
    dims: Mapping[str, Dim], extra: Mapping[str, Iterable[int]] | None = None
) -> list[dict[str, int]]:
    """Sizes of all dims, none with the same product as another, and those of `extra` among them."""
    of_each = {name: samples(one.low, one.high) for name, one in dims.items()}
    for name, own in (extra or {}).items():
        of_each[name] = sorted({*of_each[name], *own})
    found: dict[int, dict[str, int]] = {}
    for sizes in product(*of_each.values()):
        found.setdefault(prod(sizes), dict(zip(of_each, sizes, strict=True)))
    counts = sorted(found)
    wanted = {prod(sizes) for sizes in product(*(tuple(own) for own in (extra or {}).values()))} if extra else set()
    kept = counts if len(dims) == 1 else sorted({*_spread(counts, _FIRST), *(wanted & {*counts})})
    return [found[count] for count in kept]


def few_sizes(dims: Mapping[str, Dim]) -> list[dict[str, int]]:
    """Powers of 2 and the ends of each dim, none with the same product as another, by ascending products.

    >>> from rollergen.expr.dims import dim
    >>> few_sizes({"S": dim("S", 3, 20)})
    [{'S': 3}, {'S': 4}, {'S': 8}, {'S': 16}, {'S': 20}]
    """
    powers = [2**n for n in range(31)]
    each = [sorted({one.low, one.high, *(n for n in powers if one.low < n < one.high)}) for one in dims.values()]
    found = {prod(sizes): dict(zip(dims, sizes, strict=True)) for sizes in product(*each)}
    return [found[count] for count in sorted(found)]


class Between(NamedTuple):
    """Sizes of a count, and the share of all sizes that have it or one near it."""

    sizes: Mapping[str, int]
    weight: float


def sizes_between(dims: Mapping[str, Dim]) -> dict[int, Between]:
    """Sizes that lie evenly in the range of each dim, by their ascending counts."""
    spread, left = dict[str, list[int]](), _BETWEEN
    for number, (name, one) in enumerate(sorted(dims.items(), key=lambda item: item[1].high - item[1].low)):
        each = np.linspace(one.low, one.high, round(left ** (1 / (len(dims) - number)))).round().astype(int)
        spread[name] = sorted({*each.tolist()})
        left = max(1, left // len(spread[name]))
    found: dict[int, Between] = {}
    for sizes in product(*spread.values()):
        count = prod(sizes)
        before = found.get(count)
        named = dict(zip(spread, sizes, strict=True)) if before is None else before.sizes
        found[count] = Between(named, 1.0 if before is None else before.weight + 1.0)
    return dict(sorted(found.items()))


def _spread(some: Sequence[int], count: int) -> list[int]:
    """So many of a list, its ends among them."""
    if len(some) <= count:
        return list(some)
    return sorted({some[round(n * (len(some) - 1) / (count - 1))] for n in range(count)})
