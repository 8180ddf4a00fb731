"""Pooling over as many parts of each channel as are wanted: part o of an axis is from floor(o size / outs) to
ceil((o + 1) size / outs), as torch has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ShapeError
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import require_float, require_tensor, setting
from rollergen.expr.operators.pooling import TAPS, largest
from rollergen.expr.operators.windows import IMAGE, every, over_images
from rollergen.hal.dataclass import dataclass


def adaptive_avg_pool1d(input: Tensor, output_size: Any, *, name: str | None = None) -> Tensor:
    """The mean of each of `output_size` parts of `input` (N, C, L); unequal parts overlap, None keeps an axis.

    >>> import rollergen as rg
    >>> rg.ops.adaptive_avg_pool1d(rg.tensor("x", (1, 1, 4)), 2).shape
    (1, 1, 2)
    """
    return averages("adaptive_avg_pool1d", 1, input, output_size, name)


def adaptive_avg_pool2d(input: Tensor, output_size: Any, *, name: str | None = None) -> Tensor:
    """The mean of each of `output_size` parts of `input` (N, C, H, W); unequal parts overlap, None keeps an axis.

    >>> import rollergen as rg
    >>> rg.ops.adaptive_avg_pool2d(rg.tensor("x", (1, 64, 9, 7)), (3, 2)).shape
    (1, 64, 3, 2)
    """
    return averages("adaptive_avg_pool2d", 2, input, output_size, name)


def adaptive_avg_pool3d(input: Tensor, output_size: Any, *, name: str | None = None) -> Tensor:
    """The mean of each of `output_size` parts of `input` (N, C, D, H, W); unequal parts overlap, None keeps an axis.

    >>> import rollergen as rg
    >>> rg.ops.adaptive_avg_pool3d(rg.tensor("x", (1, 4, 8, 9, 7)), (2, 3, 1)).shape
    (1, 4, 2, 3, 1)
    """
    return averages("adaptive_avg_pool3d", 3, input, output_size, name)


def adaptive_max_pool1d(
    input: Tensor, output_size: Any, return_indices: bool = False, *, name: str | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each of `output_size` parts of `input` (N, C, L); parts may overlap, None keeps an axis.

    >>> import rollergen as rg
    >>> rg.ops.adaptive_max_pool1d(rg.tensor("x", (1, 1, 4)), 2).shape
    (1, 1, 2)
    """
    return _largest("adaptive_max_pool1d", 1, input, output_size, return_indices, name)


def adaptive_max_pool2d(
    input: Tensor, output_size: Any, return_indices: bool = False, *, name: str | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each of `output_size` parts of `input` (N, C, H, W); None keeps an axis.

    >>> import rollergen as rg
    >>> rg.ops.adaptive_max_pool2d(rg.tensor("x", (1, 64, 9, 7)), (3, 2)).shape
    (1, 64, 3, 2)
    """
    return _largest("adaptive_max_pool2d", 2, input, output_size, return_indices, name)


def adaptive_max_pool3d(
    input: Tensor, output_size: Any, return_indices: bool = False, *, name: str | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each of `output_size` parts of `input` (N, C, D, H, W); None keeps an axis.

    >>> import rollergen as rg
    >>> rg.ops.adaptive_max_pool3d(rg.tensor("x", (1, 4, 8, 9, 7)), (2, 3, 1)).shape
    (1, 4, 2, 3, 1)
    """
    return _largest("adaptive_max_pool3d", 3, input, output_size, return_indices, name)


def averages(operation: str, rank: int, x: Tensor, output_size: Any, name: str | None) -> Tensor:
    """The mean of each of `output_size` parts of the last `rank` axes."""
    require_float(x, operation)
    parts = _parts(operation, rank, x, output_size)
    taps, wide = _taps(parts), accumulator_dtype(x.dtype)

    def element(n: Any, c: Any, o: Any) -> Any:
        pixel, _, condition = _read(x, parts, taps, n, c, o)
        pixel = pixel if condition is None else rg.select(condition, pixel, 0)
        count: Any = 1
        for part, one in zip(parts, o, strict=True):
            count = rg.cast(part.end(one) - part.start(one), wide) * count if part.uneven else count * part.longest
        return rg.cast(rg.sum(pixel, axis=tuple(taps), dtype=wide) / count, x.dtype)

    return over_images(x, rank, "c", x.shape[-rank - 1], [part.outs for part in parts], element, name)


def _largest(
    operation: str, rank: int, x: Tensor, output_size: Any, return_indices: bool, name: str | None
) -> Tensor | tuple[Tensor, Tensor]:
    require_tensor(x, operation)
    parts = _parts(operation, rank, x, output_size)
    taps = _taps(parts)
    read = lambda n, c, o: _read(x, parts, taps, n, c, o)
    return largest(operation, x, [part.outs for part in parts], taps, read, return_indices, name)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An axis of `size` elements in `outs` parts."""

    size: int
    outs: int

    def start(self, output: Any) -> Any:
        """The first element of a part."""
        return output * self.size // self.outs

    def end(self, output: Any) -> Any:
        """The element behind a part."""
        return ((output + 1) * self.size + (self.outs - 1)) // self.outs

    @property
    def uneven(self) -> bool:
        """Whether parts may differ in length."""
        return self.size % self.outs != 0

    @property
    def longest(self) -> int:
        """Elements of the longest part."""
        return max(self.end(o) - self.start(o) for o in range(self.outs))


def _parts(operation: str, rank: int, x: Tensor, output_size: Any) -> tuple[_Parts, ...]:
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{operation}: {x.label} has shape {x.shape}; expected {IMAGE[rank]}")
    size = x.shape[-rank:]
    given = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    wanted = tuple(e if one is None else one for e, one in zip(size, given, strict=False))
    outs = setting(wanted if len(given) == rank else output_size, operation, "output_size", rank, 1)
    return tuple(map(_Parts, size, outs))


def _taps(parts: Sequence[_Parts]) -> list[Any]:
    return [rg.reduce_axis(name, part.longest) for name, part in zip(TAPS[len(parts)], parts, strict=True)]


def _read(
    x: Tensor, parts: Sequence[_Parts], taps: Sequence[Any], n: Any, c: Any, o: Any
) -> tuple[Any, list[Any], Any]:
    """An element of a part, its position, and the condition that it lies within the part."""
    at = [part.start(one) + tap for part, one, tap in zip(parts, o, taps, strict=True)]
    within = [place < part.end(one) for part, one, place in zip(parts, o, at, strict=True) if part.uneven]
    return x[(*n, c, *at)], at, every(within) if within else None
