"""Entries of suites made small enough for one run of a few seconds, with odd remainders on every axis cut."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rollergen.bench.suites import Entry
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype

Places = tuple[tuple[Any, ...], ...]
"""Where an axis' extent stands in the entry's fields: paths of keys and positions."""

_ROLLER: dict[str, tuple[Places, ...]] = {
    "matmul": ((("inputs", 0, "shape", 0),), (("inputs", 0, "shape", 1), ("inputs", 1, "shape", 0)),
               (("inputs", 1, "shape", 1),)),
    "conv2d": ((("inputs", 0, "shape", 0),), (("inputs", 0, "shape", 1), ("inputs", 1, "shape", 1)),
               (("inputs", 1, "shape", 0),)),
    "depthwise_conv2d": ((("inputs", 0, "shape", 0),), (("inputs", 0, "shape", 1), ("inputs", 1, "shape", 0))),
    "avg_pool2d": ((("inputs", 0, "shape", 0),), (("inputs", 0, "shape", 1),)),
    "elementwise": ((("inputs", 0, "shape", 0),), (("inputs", 0, "shape", 1),)),
    "reduce_sum": ((("inputs", 0, "shape", 0),), (("inputs", 0, "shape", 1),)),
}  # fmt: skip
_AXES: dict[str, dict[str, tuple[Places, ...]]] = {
    "roller": _ROLLER,
    "autotvm-resnet18": {"conv2d": ((("input", 1), ("weight", 1)), (("weight", 0),))},
    "pruner-linears": {"linear": ((("M",),), (("K",),), (("N",),))},
    "pruner-attention": {"attention": ((("batch_heads",),), (("keys",),))},
}

_WANTED: dict[str, tuple[int, ...]] = {"conv2d": (3, 33, 65)}
"""Extents of the axes of `_AXES` that have several tiles and a remainder: batch, channels, filters."""


def cut(
    entry: Entry, most_points: int, most_bytes: int, *, images: bool = False, favoured: tuple[int, ...] = ()
) -> Any:
    """The entry's fields with its longest axes halved to odd extents until the work is small enough.

    Axes that image and window share stay as they are, their tails being the operator's own, unless ``images``: then
    they are cut like the others, to no less than three windows, and a convolution's channels are the last to be cut
    below several tiles.  If anything is cut, or ``images``, every axis that may be is made odd.  ``favoured``: the
    positions among the axes of those to be cut last.  Raises `NeverSmallError` where no cutting is enough.
    """
    fields: Any = copy.deepcopy(dict(entry.fields))
    axes = _AXES[entry.suite][entry.kind]
    least: dict[Places, int] = {}
    wanted: dict[Places, float] = {}
    if images:
        least = _image_axes(entry)
        wanted = {**least, **dict(zip(axes, _WANTED.get(entry.kind, ()), strict=False))}
        axes += tuple(least)
    elif _small(entry, fields, most_points, most_bytes):
        return fields
    for number in favoured:
        wanted[axes[number]] = _LAST * wanted.get(axes[number], 1)
    if favoured:
        least = {places: min(3, _get(fields, places[0])) for places in axes} | least
    for places in axes:
        _set(fields, places, _odd(_get(fields, places[0])))
    while not _small(entry, fields, most_points, most_bytes):
        left = [places for places in axes if _get(fields, places[0]) > least.get(places, 1)]
        if not left:
            raise NeverSmallError(entry.name)
        longest = max(left, key=lambda places: _get(fields, places[0]) / wanted.get(places, 1))
        extent = _get(fields, longest[0])
        _set(fields, longest, max(least.get(longest, 1), _odd(extent // 2)))
    return fields


class NeverSmallError(Exception):
    """The axes that may be cut do not make the operator small enough; names the operator."""


_LAST = 1 << 12
"""Above the ratio of any two extents of an operator after the first cuts."""


def cuts(entry: Entry, most_points: int, most_bytes: int) -> Iterator[Any]:
    """The ways of cutting an operator, images too: all axes alike, then favouring each axis and each image whole."""
    yield cut(entry, most_points, most_bytes, images=True)
    count = len(_AXES[entry.suite][entry.kind])
    further = tuple(range(count, count + len(_image_axes(entry))))
    for favoured in dict.fromkeys((further, further[-1:], *((number,) for number in range(count)), further[:1])):
        if favoured:
            with suppress(NeverSmallError):
                yield cut(entry, most_points, most_bytes, images=True, favoured=favoured)


def _image_axes(entry: Entry) -> dict[Places, int]:
    """Height and width of an image of the suite of ROLLER (or the further axes of any other tensor), and the least
    that each may become."""
    assert entry.suite == "roller", f"{entry.name}: nothing is known about images"
    fields: Any = entry.fields
    if entry.kind == "matmul":
        return {}
    first = fields["inputs"][0]["shape"]
    if entry.kind in ("elementwise", "reduce_sum"):
        return {(("inputs", 0, "shape", axis),): 3 for axis in range(2, len(first))}
    taps = [extent for _, extent in fields["axes"]["reduce"]][-2:]
    dilation = fields.get("dilation") or (1, 1)
    return {
        (("inputs", 0, "shape", 2 + axis),): min(first[2 + axis], 3 * (1 + (taps[axis] - 1) * dilation[axis]))
        for axis in range(2)
    }


def _odd(extent: int) -> int:
    """The odd extent at most this one; extents that are no longer than a vector stay as they are."""
    return extent if extent % 2 or extent <= 4 else extent - 1


def _get(fields: Any, path: tuple[Any, ...]) -> int:
    for step in path:
        fields = fields[step]
    return fields


def _set(fields: Any, places: Places, extent: int) -> None:
    for *path, last in places:
        holder = fields
        for step in path:
            holder = holder[step]
        holder[last] = extent


def _small(entry: Entry, fields: Any, most_points: int, most_bytes: int) -> bool:
    graph = canonicalize(entry.build(fields))
    buffers = (*graph.inputs, *graph.temporaries, *graph.outputs)
    size = sum(b.elements * numpy_dtype(b.dtype).itemsize for b in buffers)
    return graph.points <= most_points and size <= most_bytes
