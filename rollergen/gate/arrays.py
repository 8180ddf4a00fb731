"""Host arrays for checked runs: aligned, poisoned, and with guard zones around them."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import addressof, c_char
from math import prod

from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.late import np

ALIGNMENT_BYTES = 64
"""A cache line, and the widest vector of today's CPUs."""

PAGE_BYTES, MOST_ZONE_BYTES = 4096, 1 << 18
"""Of a guard zone: at least a page, at most so much."""

CALLER_LEAD_BYTES = 16
"""Large NumPy arrays begin so far behind a cache line: malloc's header stands before them (glibc on x86-64)."""

READ_PATTERNS, WRITTEN_PATTERNS, WHOLE_PATTERNS = (0xFF, 0x7B, 0xFB), (0xFE, 0x7D, 0xFD), (0xA5, 0x5A, 0xA5)
"""Bytes of guard zones in different runs.  Around floating inputs NaN, then numbers near both ends of every floating
dtype, so that what is read there shows in the result, maxima and minima included; around floating outputs and
temporaries other such bytes, so that a value copied from there shows as well; around anything else odd numbers of
either sign."""


def zone_bytes(nbytes: int) -> int:
    """Of a guard zone beside an array of ``nbytes``: whole pages, as long as the array, which no tile exceeds, up to a
    limit: a tile that overhangs begins beside the array."""
    return min(max(1, -(-nbytes // PAGE_BYTES)) * PAGE_BYTES, MOST_ZONE_BYTES)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def aligned_empty(shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """A C-contiguous array, contents undefined, whose first element lies at a multiple of `ALIGNMENT_BYTES`."""
    kind = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    whole = np.empty(prod(shape) * kind.itemsize + ALIGNMENT_BYTES, np.uint8)
    address = addressof(c_char.from_buffer(whole))  # type: ignore[arg-type]  # four times as fast as whole.ctypes.data
    return np.ndarray(shape, kind, whole, -address % ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True)
class Guarded:
    """``array`` between two zones of `zone_bytes` that are filled with the byte ``pattern``."""

    array: np.ndarray
    before: np.ndarray
    after: np.ndarray
    pattern: int

    @staticmethod
    def empty(
        shape: tuple[int, ...], dtype: str, lead_bytes: int = 0, *, given: bool = False, variant: int = 0
    ) -> Guarded:
        """Contents undefined; the first element lies `lead_bytes` behind a multiple of `ALIGNMENT_BYTES`.

        ``given``: it is an input.  ``variant``: which of the patterns.
        """
        kind = numpy_dtype(dtype)
        size = prod(shape) * kind.itemsize
        zone = zone_bytes(size)
        whole = aligned_empty((lead_bytes + size + 2 * zone,), "int8").view(np.uint8)[lead_bytes:]
        inside = whole[zone : zone + size].view(kind).reshape(shape)
        made = Guarded(inside, whole[:zone], whole[zone + size :], pattern_of(dtype, given, variant))
        made.reset()
        return made

    def reset(self) -> None:
        """Both zones as they were made."""
        self.before[...] = self.after[...] = self.pattern

    def damage(self) -> str | None:
        """Places where the zones were written to, or None if they are as they were made."""
        return touched(self.before, self.after, self.pattern)


def pattern_of(dtype: str, given: bool, variant: int) -> int:
    """The byte of guard zones around an array; ``given``: it is an input."""
    patterns = (READ_PATTERNS if given else WRITTEN_PATTERNS) if is_float(dtype) else WHOLE_PATTERNS
    return patterns[variant]


def touched(before: np.ndarray, after: np.ndarray, pattern: int) -> str | None:
    """Places where two zones (uint8, whole pages) were written to, or None if they hold the pattern only."""
    for zone, where, order in ((before, "before the first", -1), (after, "after the last", 1)):
        if np.any(zone.view(np.uint64) != pattern * 0x0101010101010101):  # words: a sixth of the time of bytes
            hit = np.flatnonzero(zone[::order] != pattern)
            return f"{hit.size} bytes written {where} element, the nearest {hit[0]} bytes away"
    return None


def guarded(buffers: Iterable[Buffer], lead_bytes: int = CALLER_LEAD_BYTES, variant: int = 0) -> dict[str, Guarded]:
    """One guarded array for each buffer, contents undefined; inputs and outputs begin where a caller's do, or
    `lead_bytes` behind a multiple of `ALIGNMENT_BYTES`; temporaries, which are ours, at one."""
    leads = lambda buffer: 0 if buffer.kind == "temporary" else lead_bytes
    return {
        b.name: Guarded.empty(b.shape, b.dtype, leads(b), given=b.kind == "input", variant=variant) for b in buffers
    }


def poison(array: np.ndarray, dtype: str, variant: int) -> None:
    """Fills with a value no kernel is likely to compute: a NaN with a payload, numbers near both ends of the dtype, no
    truth value.

    An element that holds its poison after two runs with different variants was not written.  What is read from there
    shows in the result of at least one of three: a maximum ignores the smallest numbers, a minimum the largest.
    """
    _bits(array)[...] = poison_bits(dtype, variant)


def poison_bits(dtype: str, variant: int) -> int:
    """The bits of an element that `poison` filled."""
    row = DTYPES[dtype]
    if row.kind == "bool":
        return (0xA5, 0x5A, 0xA5)[variant]
    pattern = int.from_bytes(b"\x5a" * row.itemsize, "big")
    if row.kind == "integer":
        low, high = row.limits
        return (high, low % (1 << row.bits), pattern)[variant]
    nan, top = row.nan | pattern & (1 << row.significant - 2) - 1, row.bits - 8
    return (nan, pattern % (1 << top) | 0xFB << top, pattern % (1 << top) | 0x7B << top)[variant]


def poisoned(array: np.ndarray, dtype: str, variant: int) -> np.ndarray:
    """The mask of elements that still hold exactly their poison (bool, same shape)."""
    return _bits(array) == poison_bits(dtype, variant)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two contiguous arrays of one dtype hold the same bytes (NaN payloads included)."""
    return np.array_equal(_bits(a), _bits(b))


def unequal_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The mask of elements whose bytes differ between two contiguous arrays of one dtype and shape (bool, same
    shape)."""
    return np.asarray(_bits(a) != _bits(b))


def fill_random(array: np.ndarray, rng: np.random.Generator) -> None:
    """Uniform in [-1, 1) (floats), in -8 ... 7 (integers; unsigned: 0 ... 15), or true and false."""
    kind = array.dtype
    if kind == np.bool_:
        array[...] = rng.integers(0, 2, array.shape)
    elif kind.kind in "iu":
        low = -8 if kind.kind == "i" else 0
        array[...] = rng.integers(low, low + 16, array.shape)
    else:
        values = array if kind in (np.float32, np.float64) else np.empty(array.shape, np.float32)
        rng.random(out=values, dtype=values.dtype)
        values *= 2
        values -= 1
        if values is not array:
            array[...] = values


def random_array(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """An array as `fill_random` makes it."""
    array = np.empty(shape, numpy_dtype(dtype))
    fill_random(array, rng)
    return array


def fill_whole(array: np.ndarray, low: int, high: int, rng: np.random.Generator) -> None:
    """Whole numbers from ``low`` (unsigned: 0) to ``high``; true and false where the dtype is bool."""
    low, high = (0, 1) if array.dtype == np.bool_ else (0 if array.dtype.kind == "u" else low, high)
    array[...] = rng.integers(low, high, array.shape, dtype=np.int8, endpoint=True)


def fill_ramp(array: np.ndarray, magnitude: int) -> None:
    """Whole numbers that count the elements, from ``-magnitude`` (unsigned: 0) to ``magnitude`` and again: neighbours,
    rows and columns all differ, so an element taken from another place shows."""
    kind, flat = array.dtype, array.reshape(-1)
    if kind == np.bool_:
        period = np.arange(7) * 5 % 7 < 3
    else:
        most = min(magnitude, np.iinfo(kind).max) if kind.kind in "iu" else magnitude
        least = 0 if kind.kind == "u" else -most
        period = np.arange(least, min(most + 1, flat.size + least), dtype=np.int32).astype(kind)
    for start in range(0, flat.size, period.size):
        part = flat[start : start + period.size]
        part[...] = period[: part.size]
