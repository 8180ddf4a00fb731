"""Memory for new results: of large ones it comes back when a result dies and is used again.

The operating system hands out zeroed pages one by one: writing 64 MB of new memory takes more than twice as long as
writing 64 MB that the process already has.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from ctypes import addressof, c_char
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rollergen.gate.arrays import aligned_empty

SMALLEST_BYTES = 1 << 20
"""Smaller results come from NumPy: malloc keeps what they leave."""

UNALIGNED_BYTES = 1 << 16
"""Smaller results begin where NumPy lets them: to begin on a cache line saves a relu of 64 KB .4 us, and takes .5."""

MOST_BYTES = 1 << 29
"""What the pool holds at most, in blocks that nobody uses; the oldest go first."""

_PAGE = mmap.PAGESIZE
_LINE = 64


class ResultPool:
    """Blocks of whole pages.  Thread-safe; blocks may come back at any point of any thread (`_Block.__del__`)."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._free: list[mmap.mmap] = []
        self._lock = threading.RLock()  # the collector may run `give` within `take`

    def array(self, shape: tuple[int, ...], dtype: np.dtype, beside: int = 0) -> np.ndarray:
        """A C-contiguous array, contents undefined, on a cache line of its own.

        It begins half a page away from the address ``beside`` modulo pages: loads that follow stores to addresses
        that agree in their last 12 bits wait for these (Intel's optimization manual, "4K aliasing").
        """
        size = prod(shape) * dtype.itemsize
        pages = self.take(-(-(size + _PAGE) // _PAGE) * _PAGE)
        block = np.ndarray.__new__(_Block, (len(pages),), np.uint8, pages)
        block.pool = self
        start = addressof(c_char.from_buffer(pages))
        offset = (beside + _PAGE // 2 - start) % _PAGE // _LINE * _LINE
        return np.ndarray(shape, dtype, block, offset)

    def take(self, size: int) -> mmap.mmap:
        """A free block of so many bytes, or a new one."""
        with self._lock:
            for position in reversed(range(len(self._free))):
                if len(self._free[position]) == size:
                    return self._free.pop(position)
        if hasattr(mmap, "MAP_PRIVATE"):
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, size)

    def give(self, block: mmap.mmap) -> None:
        """Marks `block` as free again."""
        with self._lock:
            self._free.append(block)
            while self._free and self.free_bytes > self._most:
                self._free.pop(0)

    def clear(self) -> None:
        """Returns all free blocks to the operating system."""
        with self._lock:
            self._free.clear()

    @property
    def free_bytes(self) -> int:
        with self._lock:
            return sum(map(len, self._free))


class _Block(np.ndarray):
    """What a result and its views keep alive: NumPy refers views to the owner that is of another class than theirs."""

    pool: ResultPool | None = None

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.give(self.base)  # type: ignore[arg-type]

    def __array_finalize__(self, made_from: Any) -> None:
        self.pool = None  # a view of a block gives nothing back


POOL = ResultPool()


def new_result(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[int], np.ndarray]:
    """What makes C-contiguous arrays, contents undefined, given the address of the call's first input, from which large
    ones keep half a page (`ResultPool.array`)."""
    size = prod(shape) * dtype.itemsize
    if size >= SMALLEST_BYTES:
        return partial(POOL.array, shape, dtype)
    if size < UNALIGNED_BYTES:
        return lambda _: np.empty(shape, dtype)
    return lambda _: aligned_empty(shape, dtype)


def clear_pool() -> None:
    """Gives the memory of results that nobody uses any more back to the operating system.

    Results of a megabyte and more that a kernel makes (a call without ``out=``, in host memory) come from a pool, which
    keeps up to 512 MiB for the next ones.
    """
    POOL.clear()
