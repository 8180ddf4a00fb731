"""Memory of a model's weights on the host: arrays in blocks of their own, which Linux can back by pages of 2 MiB.

Weights that the caches do not hold are read from memory in each call, and pages of 4 KiB limit how fast: one core of a
Zen 4 in a virtual machine reads 1 MiB of 64 in 66 us, with pages of 2 MiB in 33.  NumPy asks for these where an array
has 4 MiB or more (unless ``NUMPY_MADVISE_HUGEPAGE`` is 0), so that smaller ones are laid side by side.  Larger ones
are, too: below 32 MiB malloc would give them what the process freed before, on small pages.
"""

from __future__ import annotations

from math import prod

import numpy as np

from rollergen.gate.arrays import ALIGNMENT_BYTES, aligned_empty

BLOCK_BYTES = 1 << 25
"""Of a block, which with its header is beyond what malloc takes of its own heap at most (32 MiB with glibc).  What is
never written of it takes no memory, and what its ends share with pages of 4 KiB is little."""


class WeightsMemory:
    """Gives arrays side by side; an earlier block is freed with the last of its arrays."""

    def __init__(self) -> None:
        self._block, self._used = np.empty(0, np.uint8), 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A C-contiguous array, contents undefined, whose first element, if it has any, lies at a multiple of
        `ALIGNMENT_BYTES`."""
        size = prod(shape) * dtype.itemsize
        if size > BLOCK_BYTES:
            return aligned_empty(shape, dtype)
        if self._used + size > self._block.size:
            self._block, self._used = aligned_empty((BLOCK_BYTES,), np.dtype(np.uint8)), 0
        part = self._block[self._used : self._used + size]
        self._used += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return part.view(dtype).reshape(shape)
