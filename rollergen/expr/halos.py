"""Tensors that lie inside others which hold zeros around them: what pads them with zeros finds the padding there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollergen.expr.language import Tensor, compute
from rollergen.hal.dataclass import dataclass

Pairs = tuple[tuple[int, int], ...]
"""(elements before, elements after) along each axis."""


@dataclass(frozen=True, eq=False, slots=True)
class Inner(Tensor):
    """The tensor of what ``whole`` holds within its ``halo`` of zeros."""

    whole: Tensor
    halo: Pairs


def inner_part(whole: Tensor, halo: Pairs) -> Inner:
    """The tensor inside a `halo` of ``whole``, which whoever fills ``whole`` fills with zeros."""
    shape = [extent - before - after for extent, (before, after) in zip(whole.shape, halo, strict=True)]
    made = compute(shape, lambda *at: whole[_moved(at, halo)])
    return Inner(made.name, made.shape, made.dtype, made.constant, made.producer, made.buffer, whole, halo)


def with_zeros(x: Tensor, at: Sequence[Any], pads: Pairs) -> Any:
    """The element of `x`, or the zero around it, at places that are no further outside than ``pads``; None where
    nothing is known of what lies there."""
    if not isinstance(x, Inner) or any(a > c or b > d for (a, b), (c, d) in zip(pads, x.halo, strict=True)):
        return None
    return x.whole[_moved(at, x.halo)]


def _moved(at: Sequence[Any], halo: Pairs) -> tuple[Any, ...]:
    return tuple(index + before for index, (before, _) in zip(at, halo, strict=True))
