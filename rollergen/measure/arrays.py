"""Host arrays for checked runs: aligned, poisoned, and with guard zones around them."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import addressof, c_char
from dataclasses import dataclass
from math import prod

import numpy as np

from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.values import Buffer

ALIGNMENT_BYTES = 64
"""A cache line, and the widest vector of today's CPUs."""

GUARD_BYTES = 64 * 8
"""At least 64 elements of the widest dtype."""

CALLER_LEAD_BYTES = 16
"""Large NumPy arrays begin so far behind a cache line: malloc's header stands before them (glibc on x86-64)."""

READ_PATTERN, WRITTEN_PATTERN, WHOLE_PATTERN = 0xFF, 0xFE, 0xA5
"""Bytes of guard zones.  Around floating inputs NaN, so that what is read there shows in the result; around floating
outputs another one, huge or NaN, so that a NaN written there shows as well; around anything else an odd number."""

_POISON_BITS = {
    "float16": (0x7E5A, 0xFE5A),
    "bfloat16": (0x7FDA, 0xFFDA),
    "float32": (0x7FC05A5A, 0xFFC05A5A),
    "float64": (0x7FF85A5A5A5A5A5A, 0xFFF85A5A5A5A5A5A),
    "int8": (0x7F, 0x80),
    "int32": (0x7FFFFFFF, 0x80000000),
    "int64": (0x7FFFFFFFFFFFFFFF, 0x8000000000000000),
    "bool": (0xA5, 0x5A),
}


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def aligned_empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A C-contiguous array, contents undefined, whose first element lies at a multiple of `ALIGNMENT_BYTES`."""
    kind = numpy_dtype(dtype)
    whole = np.empty(prod(shape) * kind.itemsize + ALIGNMENT_BYTES, np.uint8)
    address = addressof(c_char.from_buffer(whole))  # type: ignore[arg-type]  # four times as fast as whole.ctypes.data
    return np.ndarray(shape, kind, whole, -address % ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True)
class Guarded:
    """``array`` with a zone of `GUARD_BYTES` before and one after it, filled with the byte ``pattern``."""

    array: np.ndarray
    before: np.ndarray
    after: np.ndarray
    pattern: int

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, lead_bytes: int = 0, *, given: bool = False) -> Guarded:
        """Contents undefined; the first element lies `lead_bytes` behind a multiple of `ALIGNMENT_BYTES`.

        ``given``: it is an input.
        """
        kind = numpy_dtype(dtype)
        end = GUARD_BYTES + prod(shape) * kind.itemsize
        whole = aligned_empty((lead_bytes + end + GUARD_BYTES,), "int8").view(np.uint8)[lead_bytes:]
        inside = whole[GUARD_BYTES:end].view(kind).reshape(shape)
        pattern = (READ_PATTERN if given else WRITTEN_PATTERN) if is_float(dtype) else WHOLE_PATTERN
        made = Guarded(inside, whole[:GUARD_BYTES], whole[end:], pattern)
        made.reset()
        return made

    def restore(self, contents: np.ndarray) -> None:
        """The array's contents as given, both zones as they were made."""
        self.array[...] = contents
        self.reset()

    def reset(self) -> None:
        """Both zones as they were made."""
        self.before[...] = self.after[...] = self.pattern

    def damage(self) -> str | None:
        """Where the zones were written to, or None if they are as they were made."""
        for zone, where in ((self.before[::-1], "before the first"), (self.after, "after the last")):
            touched = np.flatnonzero(zone != self.pattern)
            if touched.size:
                return f"{touched.size} bytes written {where} element, the nearest {touched[0]} bytes away"
        return None


def guarded(buffers: Iterable[Buffer], lead_bytes: int = CALLER_LEAD_BYTES) -> dict[str, Guarded]:
    """One guarded array for each buffer, contents undefined; inputs and outputs begin where a caller's do, or
    `lead_bytes` behind a multiple of `ALIGNMENT_BYTES`; temporaries, which are ours, at one."""
    leads = lambda buffer: 0 if buffer.kind == "temporary" else lead_bytes
    return {b.name: Guarded.empty(b.shape, b.dtype, leads(b), given=b.kind == "input") for b in buffers}


def poison(array: np.ndarray, dtype: str, variant: int) -> None:
    """Fills with a value no kernel is likely to compute: a NaN with a payload, an extreme integer, no truth value.

    The two variants differ, so an element that holds its poison after both of two runs was not written.
    """
    _bits(array)[...] = _POISON_BITS[dtype][variant]


def poisoned(array: np.ndarray, dtype: str, variant: int) -> np.ndarray:
    """Where the array still holds exactly its poison (bool, same shape)."""
    return _bits(array) == _POISON_BITS[dtype][variant]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two contiguous arrays of one dtype hold the same bytes (NaN payloads included)."""
    return np.array_equal(_bits(a), _bits(b))


def unequal_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two contiguous arrays of one dtype and shape hold different bytes (bool, same shape)."""
    return np.asarray(_bits(a) != _bits(b))


def random_array(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Uniform in [-1, 1) (floats), in -8 ... 7 (integers), or true and false."""
    kind = numpy_dtype(dtype)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind == "i":
        return rng.integers(-8, 8, shape).astype(kind)
    if kind == np.float64:
        return rng.random(shape) * 2 - 1
    values = rng.random(shape, dtype=np.float32)
    values *= 2
    values -= 1
    return values.astype(kind, copy=False)


def integer_array(shape: tuple[int, ...], dtype: str, magnitude: int, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers from ``-magnitude`` to ``magnitude``; true and false where the dtype is bool."""
    kind = numpy_dtype(dtype)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(kind)
    return rng.integers(-magnitude, magnitude, shape, dtype=np.int8, endpoint=True).astype(kind)


def ramp_array(shape: tuple[int, ...], dtype: str, magnitude: int) -> np.ndarray:
    """Whole numbers that count the elements, from ``-magnitude`` to ``magnitude`` and again: neighbours, rows and
    columns all differ, so an element taken from another place shows."""
    kind = numpy_dtype(dtype)
    if kind == np.bool_:
        period = np.arange(7) * 5 % 7 < 3
    else:
        most = min(magnitude, 127) if kind == np.int8 else magnitude
        period = np.arange(-most, min(most + 1, prod(shape) - most)).astype(kind)
    return np.resize(period, shape)
