"""Images (N, C, H, W) that are stored with their channels last, (N, H, W, C)."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.language import Tensor, compute
from rollergen.importers.graph import Value


def is_image(value: Value) -> bool:
    """Whether it has rows, columns and several channels; others lie the same either way."""
    shape = value.shape or ()
    return len(shape) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1


def stored_last(image: Value) -> Value:
    """An image (N, C, H, W) as it is stored: (N, H, W, C)."""
    n, c, h, w = image.shape or ()
    return replace(image, shape=(n, h, w, c))


def channels_last(image: Tensor) -> Tensor:
    """The tensor (N, C, H, W) as (N, H, W, C)."""
    n, c, h, w = image.shape
    return compute((n, h, w, c), lambda i, y, x, f: image[i, f, y, x])


def channels_second(stored: Tensor) -> Tensor:
    """The tensor (N, H, W, C) as (N, C, H, W)."""
    n, h, w, c = stored.shape
    return compute((n, c, h, w), lambda i, f, y, x: stored[i, y, x, f])
