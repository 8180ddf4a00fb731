"""Borders around tensors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import is_float
from rollergen.expr.halos import Pairs, with_zeros
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Number, integers, number, require_tensor


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: Number | None = None, *, name: str | None = None
) -> Tensor:
    """`input` with a border: `pad` is (before, after) of the last axis, then of the one before it, and so on.

    `mode` is "constant" (`value`, or 0 where it is None), "replicate" (the outermost element), "reflect" (mirrored at
    the outermost element, which is not repeated) or "circular".  A tensor may have any number of axes.  Negative
    widths cut elements away.

    >>> import rollergen as rg
    >>> rg.ops.pad(rg.tensor("x", (3,)), (2, 1), "reflect").evaluate([1.0, 2.0, 3.0])
    array([3., 2., 1., 2., 3., 2.])

    Raises ShapeError for widths that leave less than nothing, or that need an element twice ("reflect", "circular"),
    ExpressionError for another mode.
    """
    require_tensor(input, "pad")
    pairs = _pairs(input, pad)
    fill = _fill(input, 0 if value is None else value)
    if not isinstance(mode, str) or (mode not in _SOURCE and mode != "constant"):
        hint = f" ({_NUMPYS[mode]!r} is what {mode!r} was)" if isinstance(mode, str) and mode in _NUMPYS else ""
        raise ExpressionError(
            f'pad: mode is {shown(mode)}; expected "constant", "replicate", "reflect" or "circular"{hint}'
        )
    wanted = tuple(before + extent + after for extent, (before, after) in zip(input.shape, pairs, strict=True))
    if builtins.min(wanted, default=0) < 0:
        raise ShapeError(f"pad: pad is {shown(pad)}; it leaves {wanted} of {input.label} {input.shape}")
    if mode == "constant":
        return rg.compute(wanted, lambda *i: _filled(input, i, pairs, fill), name)
    if mode == "circular":  # goes around what negative widths leave
        input, pairs = _cut(input, pairs)
    _check_reach(input, pairs, mode)
    axes = [d for d, pair in enumerate(pairs) if pair != (0, 0)]
    current = input
    for d in axes:
        current = _padded_along(current, d, pairs[d], mode, name if d == axes[-1] else None)
    return current if axes else rg.compute(input.shape, lambda *i: input[i], name)


_NUMPYS = {"edge": "replicate", "wrap": "circular"}


def _pairs(x: Tensor, given: Any) -> Pairs:
    """(before, after) of every axis, from the first."""
    widths = integers(given) if isinstance(given, (tuple, list)) else None
    if widths is None or len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ShapeError(
            f"pad: pad is {shown(given)}; expected (before, after) of the last axis, then of the one before it, "
            f"...: at most {2 * x.ndim} integers for {x.label} {x.shape}"
        )
    last_first = list(zip(widths[::2], widths[1::2], strict=True))
    return ((0, 0),) * (x.ndim - len(last_first)) + tuple(reversed(last_first))


def _fill(x: Tensor, value: Number) -> Number:
    """`value` as an element of `x`: of conditions whether it is not 0, of integers a whole number."""
    if x.dtype == "bool":
        return bool(value)
    fill = number(value, "pad", "value")
    return int(fill) if not is_float(x.dtype) and fill == fill // 1 else fill


_ZEROS = ("0", "0.0", "False")
"""The fills that are what lies around an `halos.Inner`, as text: -0.0 equals these, but is another one."""


def _filled(x: Tensor, i: Sequence[Any], pairs: Pairs, fill: Number) -> Any:
    at = tuple(index - before for index, (before, _) in zip(i, pairs, strict=True))
    if str(fill) in _ZEROS and (known := with_zeros(x, at, pairs)) is not None:
        return known
    condition = None
    for index, extent, pair in zip(at, x.shape, pairs, strict=True):
        if pair != (0, 0):
            here = (index >= 0) & (index < extent)
            condition = here if condition is None else condition & here
    return x[at] if condition is None else rg.select(condition, x[at], fill)


def _cut(x: Tensor, pairs: Pairs) -> tuple[Tensor, Pairs]:
    """What negative widths leave of `x`, and the widths that are left."""
    lost = tuple((builtins.min(before, 0), builtins.min(after, 0)) for before, after in pairs)
    shape = tuple(builtins.sum(pair) + extent for extent, pair in zip(x.shape, lost, strict=True))
    left = tuple((builtins.max(before, 0), builtins.max(after, 0)) for before, after in pairs)
    return (rg.compute(shape, lambda *i: _filled(x, i, lost, 0)), left) if shape != x.shape else (x, left)


_SOURCE = {
    "replicate": (lambda at, extent: 0, lambda at, extent: extent - 1),
    "reflect": (lambda at, extent: -at, lambda at, extent: 2 * extent - 2 - at),
    "circular": (lambda at, extent: at + extent, lambda at, extent: at - extent),
}
"""Which element stands before the first and after the last, by position."""


def _check_reach(x: Tensor, pairs: Pairs, mode: str) -> None:
    for extent, pair in zip(x.shape, pairs, strict=True):
        most = {"reflect": builtins.max(extent - 1, 0), "circular": extent}.get(mode, 0 if not extent else None)
        if most is not None and builtins.max(pair) > most:
            raise ShapeError(f"pad: widths {pair} of an axis of {extent}; mode {shown(mode)} fills at most {most}")


def _padded_along(x: Tensor, axis: int, pair: tuple[int, int], mode: str, name: str | None) -> Tensor:
    extent, (before, after) = x.shape[axis], pair
    first, last = _SOURCE[mode]

    def element(*i: Any) -> Any:
        at = i[axis] - before
        read = lambda place: x[(*i[:axis], place, *i[axis + 1 :])]
        value = read(at)
        if after > 0:
            value = rg.select(at < extent, value, read(last(at, extent)))
        return rg.select(at < 0, read(first(at, extent)), value) if before > 0 else value

    return rg.compute((*x.shape[:axis], before + extent + after, *x.shape[axis + 1 :]), element, name)
