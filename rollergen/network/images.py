"""Images (N, C, H, W) stored with their channels last, (N, H, W, C), and within zeros where readers pad them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.halos import inner_part
from rollergen.expr.language import Tensor, compute
from rollergen.expr.operators.borders import pad
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.importers.graph import Value

Halo = tuple[int, int, int, int, int]
"""Lines of zeros above and below an image, columns of zeros to its left and right, and channels of zeros behind those
of each pixel."""
BARE: Halo = (0, 0, 0, 0, 0)

FEW_SETS = 4
"""In which pixels begin, so that dozens of them do not stay in a cache; pixels of 1024 bytes where it has 64."""


def widest(one: Halo, other: Halo) -> Halo:
    """What both lie in."""
    top, bottom, left, right, behind = map(max, one, other)
    return top, bottom, left, right, behind


def spread(halo: Halo, image: Tensor, device: Device) -> Halo:
    """The halo of an image (N, H, W, C), with one line more behind each pixel where pixels begin in few sets of the
    first cache: a convolution reads some dozens of them in turn, which drive each other out.

    (3 x 3, 512 channels at 7 x 7, one core of a Zen 5 within ResNet-18: 1120 us without, 1094 with it.)
    """
    first = next(iter(device.caches), None)
    if first is None or not first.sets:
        return halo
    lines, rest = divmod(image.shape[-1] * ITEMSIZE[image.dtype], first.transaction_bytes)
    crowded = not rest and first.sets // gcd(lines, first.sets) <= FEW_SETS
    return (*halo[:-1], first.transaction_bytes // ITEMSIZE[image.dtype]) if crowded else halo


def is_image(value: Value) -> bool:
    """Whether it has rows, columns and several channels; others lie the same either way."""
    shape = value.shape or ()
    return len(shape) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1


def stored_last(image: Value, halo: Halo) -> Value:
    """An image (N, C, H, W) as it is stored: (N, H, W, C), within the halo."""
    n, c, h, w = image.shape or ()
    top, bottom, left, right, behind = halo
    return replace(image, shape=(n, top + h + bottom, left + w + right, c + behind))


def channels_last(image: Tensor, halo: Halo) -> Tensor:
    """The tensor (N, C, H, W) as (N, H, W, C), within the halo."""
    top, bottom, left, right, behind = halo
    whole = pad(image, (left, right, top, bottom, 0, behind)) if any(halo) else image
    n, c, h, w = whole.shape
    return compute((n, h, w, c), lambda i, y, x, f: whole[i, f, y, x])


def channels_second(stored: Tensor, halo: Halo) -> Tensor:
    """The tensor (N, H, W, C) as (N, C, H, W), without the halo."""
    n, h, w, c = stored.shape
    whole = compute((n, c, h, w), lambda i, f, y, x: stored[i, y, x, f])
    return inner_part(whole, ((0, 0), (0, halo[4]), halo[:2], halo[2:4])) if any(halo) else whole


def copied_halo(copy: TensorOp, shape: Sequence[int]) -> Halo | None:
    """The halo into which ``copy`` puts an image of shape (N, H, W, C); None where it does something else."""
    load = copy.result
    if len(shape) != 4 or copy.reductions or not isinstance(load, Load) or not load.guard or load.fill != 0:
        return None
    sides = {}
    for index, extent, size in zip(load.indices, load.buffer.shape, _sizes(load.buffer.shape), strict=True):
        low, high = index.bounds(copy.ranges())
        dim = next((d for d in (1, 2) if _sizes(shape)[d] == size and shape[d] == extent), None)
        if dim is None and (low < 0 or high >= extent):
            return None
        sides[dim] = max(0, -low), max(0, high - extent + 1)
    return *sides.get(1, (0, 0)), *sides.get(2, (0, 0)), 0


def _sizes(shape: Sequence[int]) -> list[int]:
    """Elements behind each dimension's next one."""
    return [prod(shape[d + 1 :]) for d in range(len(shape))]
