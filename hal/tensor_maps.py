"""Tensor maps: how the copy engine of a GPU (TMA, from sm_90 on) is told of a tensor, as 128 bytes.

The layout is not documented.  It is what NVRTC 12.9 makes of PTX's ``tensormap.replace``, each of which writes one
field of a map, in a map of zeros (PTX ISA, "tensormap.replace").  In words of 32 bits:

    0, 1    address of the first element
    2       dimensions - 1 at bit 4, element type at bit 7 (u8 0, u16 1, u32 2), swizzle at bit 13 (of 128 bytes: 3)
    3 to 6  strides of the second to the fifth dimension, in units of 16 bytes; their bits from 32 on, four of each,
            in word 7
    8 to 12 extents - 1
    13      the box' first side - 1 at bit 24
    14      its other sides - 1, a byte each
"""

from __future__ import annotations

from rollergen.hal.dataclass import dataclass

MOST_DIMENSIONS = 5
STRIDE_BYTES, MOST_STRIDE_BYTES = 16, 1 << 40
"""Strides are multiples of the one, and less than the other (CUDA driver API, "cuTensorMapEncodeTiled")."""
MOST_EXTENT = 1 << 32
WORDS = 16
"""Of 64 bits."""

_TYPES = {1: 0, 2: 1, 4: 2}
"""Unsigned integers by their bytes: elements are moved, not computed with."""
_SWIZZLE_128 = 3


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Elements of ``itemsize`` bytes along up to `MOST_DIMENSIONS` dimensions, the first of them side by side, which
    are brought in boxes.

    ``extents`` of the tensor and ``box`` of what one copy brings, in elements along each dimension.  ``strides``: bytes
    from one element to the next, along each dimension but the first.  In local memory a box has rows of 128 bytes,
    swizzled over 8 rows; what lies outside the tensor is 0.
    """

    itemsize: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def words(self) -> tuple[int, ...]:
        """The map of a tensor at address 0, in `WORDS` words of 64 bits; the first one is the address."""
        halves = [0] * (2 * WORDS)
        halves[2] = (len(self.extents) - 1) << 4 | _TYPES[self.itemsize] << 7 | _SWIZZLE_128 << 13
        for at, stride in enumerate(self.strides):
            units = stride // STRIDE_BYTES
            halves[3 + at] = units & 0xFFFFFFFF
            halves[7] |= units >> 32 << 4 * at
        for at, extent in enumerate(self.extents):
            halves[8 + at] = extent - 1
        halves[13] = (self.box[0] - 1) << 24
        for at, side in enumerate(self.box[1:]):
            halves[14] |= (side - 1) << 8 * at
        return tuple(low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True))
