"""Memory of a model's weights and values on the host: arrays in mappings of their own, which Linux can back by pages
of 2 MiB.

Weights that the caches do not hold are read from memory in each call, and pages of 4 KiB limit how fast: one core of a
Zen 4 in a virtual machine reads 1 MiB of 64 in 66 us, with pages of 2 MiB in 33.  NumPy asks for large pages, too, but
malloc gives it what the process freed before, on small ones: the weights of a ResNet-18 lay on these in processes that
had compiled it, and calls took 2 to 4 % longer.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod

import numpy as np

from rollergen.gate.arrays import ALIGNMENT_BYTES, aligned_empty

BLOCK_BYTES = 1 << 25
"""Of a mapping in which smaller arrays lie side by side.  What is never written of it takes no memory, and its ends on
pages of 4 KiB are little."""


class WeightsMemory:
    """Gives arrays side by side; an earlier block is freed with the last of its arrays."""

    def __init__(self) -> None:
        self._block, self._used = np.empty(0, np.uint8), 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A C-contiguous array, contents undefined, whose first element, if it has any, lies at a multiple of
        `ALIGNMENT_BYTES`.  MemoryError where the system has none left."""
        size = prod(shape) * dtype.itemsize
        if size > BLOCK_BYTES:
            return _mapped(size).view(dtype).reshape(shape)
        if self._used + size > self._block.size:
            self._block, self._used = _mapped(BLOCK_BYTES), 0
        part = self._block[self._used : self._used + size]
        self._used += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return part.view(dtype).reshape(shape)


def _mapped(size: int) -> np.ndarray:
    """So many bytes of their own, which Linux is asked to back by large pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned_empty((size,), np.dtype(np.uint8))
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes of a model's weights or values: {error.strerror}") from error
    with suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
