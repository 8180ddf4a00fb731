"""The sizes at which programs are constructed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

from rollergen.expr.dims import Dim

_SMALL = 16
"""Below, each size has tiles of its own."""
_LARGE = 256
"""From here on there are several waves of blocks, and the last one may be nearly empty: sizes lie closer."""
_MOST = 80
"""Counts at which programs are constructed: the time of a build is theirs."""


def samples(low: int, high: int) -> list[int]:
    """Sizes from `low` to `high`: the small ones, powers of 2 and 1.5 of them, one more of each, and odd ones.

    Tiles change with the size's order of magnitude, with what divides it, and with how full the last wave of blocks is.

    >>> samples(1, 40)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 21, 24, 25, 31, 32, 33, 39, 40]
    """
    wanted = {low, high, high - 1, *range(1, _SMALL + 1)}
    power = _SMALL
    while power <= high:
        wanted |= {power, power + 1, power * 3 // 2, power * 3 // 2 + 1, 2 * power - 1, (power * 5 // 4) | 1}
        if power >= _LARGE:
            wanted |= {power * 9 // 8, power * 7 // 4}
        power *= 2
    return sorted(size for size in wanted if low <= size <= high)


def sampled_sizes(
    dims: Mapping[str, Dim], extra: Mapping[str, Iterable[int]] | None = None
) -> list[dict[str, int]]:
    """Sizes of all dims, none with the same product as another, and those of `extra` among them."""
    of_each = {name: samples(one.low, one.high) for name, one in dims.items()}
    if len(dims) > 1:
        of_each = {name: _spread(some, 12) for name, some in of_each.items()}
    for name, own in (extra or {}).items():
        of_each[name] = sorted({*of_each[name], *own})
    found: dict[int, dict[str, int]] = {}
    for sizes in product(*of_each.values()):
        found.setdefault(prod(sizes), dict(zip(of_each, sizes, strict=True)))
    counts = sorted(found)
    wanted = {prod(sizes) for sizes in product(*(tuple(own) for own in (extra or {}).values()))} if extra else set()
    kept = counts if len(counts) <= _MOST else sorted({*_spread(counts, _MOST), *(wanted & {*counts})})
    return [found[count] for count in kept]


def _spread(some: Sequence[int], count: int) -> list[int]:
    """So many of a list, its ends among them."""
    if len(some) <= count:
        return list(some)
    return sorted({some[round(n * (len(some) - 1) / (count - 1))] for n in range(count)})
