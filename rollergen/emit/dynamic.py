"""CUDA's memory of a block beyond what a kernel may declare: one array whose size the launch gives."""

from __future__ import annotations

from math import prod

from rollergen.lower.expressions import STORAGE_BYTES
from rollergen.lower.ir import LOCAL, Kernel

STATIC_BYTES = 49152
"""Arrays of more in one kernel are a compile error on every architecture."""
DYNAMIC_ALIGNMENT = 128


def dynamic_places(kernel: Kernel) -> dict[str, tuple[int, int]]:
    """(first byte, bytes) of each of the block's arrays in the launch's memory; none where they may be declared.

    Each array starts at a multiple of 16 bytes, the widest access, or of its own alignment.
    """
    own = [one for one in kernel.arrays if one.scope == LOCAL]
    sizes = {one.name: prod(one.shape) * one.lanes * STORAGE_BYTES[one.dtype] for one in own}
    if sum(sizes.values()) <= STATIC_BYTES:
        return {}
    places, at = {}, 0
    for one in own:
        step = max(16, one.alignment)
        size = -(-sizes[one.name] // step) * step
        places[one.name] = (at, size)
        at += size
    return places
