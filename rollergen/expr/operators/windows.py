"""What convolutions and poolings have in common: windows that slide over the last axes of a tensor."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rollergen.errors import ShapeError, shown
from rollergen.expr.halos import with_zeros
from rollergen.expr.language import Tensor, compute_named, select
from rollergen.expr.operators.arguments import Setting, integers, setting
from rollergen.hal.dataclass import dataclass

_COUNT = {1: "one", 2: "two", 3: "three"}
IMAGE = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}
_OUTPUTS = {1: ("ox",), 2: ("oy", "ox"), 3: ("oz", "oy", "ox")}


def over_images(
    x: Tensor, rank: int, channel: str, channels: int, outs: Sequence[int], element: Callable[..., Any],
    name: str | None,
) -> Tensor:  # fmt: skip
    """The tensor (N, `channels`, *outs), without N where `x` has none, of ``element((n,) or (), channel, outputs)``."""
    lead = x.shape[: -rank - 1]
    names = (*("n" for _ in lead), channel, *_OUTPUTS[rank])
    axes = tuple(zip(names, (*lead, channels, *outs), strict=True))
    return compute_named(axes, lambda *i: element(i[: len(lead)], i[len(lead)], i[len(lead) + 1 :]), name)


def every(conditions: Iterable[Any]) -> Any:
    """All of several conditions, at least one."""
    return functools.reduce(lambda a, b: a & b, conditions)


@dataclass(frozen=True, slots=True)
class Window:
    """How a window slides along one axis of `size` elements.

    Tap ``t`` of output ``o`` reads element ``o * stride + t * dilation - before``; ``out`` is the number
    of outputs; ``before`` and ``after`` count the elements of padding.
    """

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int
    out: int

    def position(self, output: Any, tap: Any) -> Any:
        """The element read; outside 0 to ``size - 1`` in the padding."""
        return output * self.stride + tap * self.dilation - self.before

    @property
    def stays_inside(self) -> bool:
        """Whether no window reaches into padding."""
        return self.padding == (0, 0)

    @property
    def padding(self) -> tuple[int, int]:
        """Elements read before the first and behind the last one."""
        return self.before, builtins.max(0, self.last - self.size + 1)

    @property
    def last(self) -> int:
        """The largest position read."""
        return (self.out - 1) * self.stride + (self.taps - 1) * self.dilation - self.before


def inside(windows: Sequence[Window], at: Sequence[Any]) -> Any:
    """The condition that the positions `at` are no padding; None where none is."""
    condition = None
    for window, position in zip(windows, at, strict=True):
        if window.stays_inside:
            continue
        here = (position >= 0) & (position < window.size)
        condition = here if condition is None else condition & here
    return condition


def padded_with_zeros(
    x: Tensor, lead: Sequence[Any], windows: Sequence[Window], at: Sequence[Any], zero: int | bool = 0
) -> Any:
    """The element of `x` at ``(*lead, *at)``; ``zero`` where the positions `at` are padding."""
    pads = (*((0, 0) for _ in lead), *(window.padding for window in windows))
    if (known := with_zeros(x, (*lead, *at), pads)) is not None:
        return known
    condition, element = inside(windows, at), x[(*lead, *at)]
    return element if condition is None else select(condition, element, zero)


def sliding(
    operation: str, size: Sequence[int], taps: Sequence[int], stride: Setting, padding: Setting | str,
    dilation: Setting, *, what: str = "kernel", ceil_mode: bool = False,
) -> tuple[Window, ...]:  # fmt: skip
    """The windows along all axes.

    `padding` may be "valid" (none), "same" (outputs: ceil(size / stride), the odd element at the end,
    TensorFlow's rule), "same_lower" (the odd element at the beginning), or (before, after) for each axis.
    ``ceil_mode`` lets the last window reach beyond the padding, as long as it begins before it (PyTorch's
    rule).  Raises ShapeError for a window larger than the padded axis, with ``ceil_mode`` by its stride or more.
    """
    count = len(size)
    if isinstance(padding, str) and padding not in ("same", "same_lower", "valid"):
        raise ShapeError(
            f"{operation}: padding is {shown(padding)}; "
            f'expected an integer, {_COUNT[count]}, "same", "same_lower" or "valid"'
        )
    steps = setting(stride, operation, "stride", count, 1)
    spread = setting(dilation, operation, "dilation", count, 1)
    pads = ((0, 0),) * count if isinstance(padding, str) else _pads(operation, padding, count)
    windows = []
    for h, k, s, d, (before, after) in zip(size, taps, steps, spread, pads, strict=True):
        reach = (k - 1) * d + 1
        if padding in ("same", "same_lower"):
            out = -(-h // s)
            total = builtins.max((out - 1) * s + reach - h, 0)
            before = (total + (padding == "same_lower")) // 2
            after = total - before
        else:
            out = outputs(h, reach, s, before, after, ceil_mode)
        if out < 1:
            raise ShapeError(
                f"{operation}: a {what} of {k} (dilation {d}) reaches over {reach}; "
                f"the padded image has {h + before + after}"
            )
        windows.append(Window(h, k, s, d, before, after, out))
    return tuple(windows)


def _pads(operation: str, padding: Any, count: int) -> tuple[tuple[int, int], ...]:
    """(before, after) of each axis."""
    pairs = [integers(pair) for pair in padding] if isinstance(padding, (tuple, list)) else []
    if len(pairs) == count and all(pair is not None and len(pair) == 2 and min(pair) >= 0 for pair in pairs):
        return tuple((pair[0], pair[1]) for pair in pairs if pair is not None)
    return tuple((one, one) for one in setting(padding, operation, "padding", count, 0))


def outputs(size: int, reach: int, stride: int, before: int, after: int, ceil_mode: bool = False) -> int:
    """How many windows fit."""
    room = size + before + after - reach
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= size + before else count
