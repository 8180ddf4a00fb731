"""Where the arrays of a check lie, and what the gate asks of them there.

Arrays in host memory are compared in place.  Those of a GPU stay there (`cuda_memory.py`): kernels compare them, and
sampled elements and counts are all that is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.values import Buffer
from rollergen.gate.arrays import (
    CALLER_LEAD_BYTES,
    aligned_empty,
    guarded,
    poison,
    poisoned,
    same_bits,
    unequal_bits,
)
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np

Array = Any
"""An array of one memory, with shape, dtype, ndim, size and nbytes: `numpy.ndarray` in the host's."""

Points: TypeAlias = "tuple[np.ndarray, ...]"

SUSPECTS = 256
"""Elements at most about which the oracle decides where two candidates disagree."""


class Zone(Protocol):
    """An array between two guard zones."""

    @property
    def array(self) -> Array: ...


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much two results of one dtype may differ (`differences.differences`).

    ``variance``: squared relative error of their difference; ``exact``: they may not differ at all.  ``everywhere``:
    errors lie on the scale of all elements, else on that of those whose bits differ.
    """

    variance: float
    exact: bool = False
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """``count`` elements that were found, and the row-major offsets of at most `SUSPECTS` of them: the first, the last
    and others at equal distances."""

    count: int
    some: np.ndarray

    @staticmethod
    def of(offsets: np.ndarray) -> Places:
        return Places(offsets.size, offsets[chosen_ranks(offsets.size)])

    def points(self, shape: tuple[int, ...]) -> Points:
        """Coordinates of `some` in an array of this shape."""
        return np.unravel_index(self.some, shape) if shape else ()


def chosen_ranks(count: int) -> np.ndarray:
    """Ranks (int64, ascending) of the elements looked at, of so many found ones."""
    return np.unique(np.linspace(0, count - 1, min(count, SUSPECTS)).astype(np.int64))


@dataclass(slots=True)
class Traffic:
    """Bytes copied to and from the device's memory since it was last taken."""

    to_device: int = 0
    from_device: int = 0

    def taken(self) -> tuple[int, int]:
        """Bytes (to, from) the device since the last call; both begin again at 0."""
        found = self.to_device, self.from_device
        self.to_device = self.from_device = 0
        return found


class Memory(Protocol):
    """The memory in which a device's sessions use arrays in place."""

    @property
    def name(self) -> str:
        """``host memory``, or that of which device."""

    @property
    def traffic(self) -> Traffic: ...

    @property
    def leads(self) -> tuple[int, int]:
        """Bytes behind a multiple of `arrays.ALIGNMENT_BYTES` at which the arrays of a call begin: as callers' arrays
        do, in the runs of the first kind, which are also timed; and the other way that programs are written for."""

    def free_bytes(self) -> int | None:
        """Bytes that can be allocated now; None where nobody tells."""

    def guarded(
        self, buffers: Iterable[Buffer], lead_bytes: int = 0, variant: int = 0
    ) -> Mapping[str, Zone]:
        """See `arrays.guarded`."""

    def empty(self, buffer: Buffer) -> Array:
        """An array as callers make them, contents undefined; temporaries are aligned."""

    def write(self, array: Array, values: np.ndarray) -> None:
        """All elements of an input."""

    def scatter(self, array: Array, offsets: np.ndarray, values: np.ndarray) -> None:
        """Elements of an input at row-major offsets, all different; values are converted to its dtype."""

    def gather(self, array: Array, where: Points) -> np.ndarray:
        """The elements at points that broadcast together, of one dimension."""

    def copy(self, array: Array) -> Array: ...

    def poison(self, array: Array, variant: int) -> None:
        """See `arrays.poison`."""

    def unequal(self, a: Array, b: Array, tolerance: Tolerance | None = None, unless: int | None = None) -> Places:
        """Places where bits differ, beyond the tolerance if there is one, but for those where `a` holds poison of
        variant ``unless``."""

    def unwritten(self, a: Array, b: Array, variants: tuple[int, int]) -> Places:
        """Places where both arrays hold their poison."""

    def damages(self, zones: Mapping[str, Zone]) -> Iterator[tuple[str, str]]:
        """(name, what was written) of guard zones that are not as they were made; made good again."""

    def changed(self, zones: Mapping[str, Zone], pristine: Mapping[str, np.ndarray]) -> list[str]:
        """Names of inputs that no longer hold what was written there, which is ``pristine``."""


class HostMemory:
    """NumPy's arrays."""

    name = "host memory"
    leads = CALLER_LEAD_BYTES, 0

    def __init__(self) -> None:
        self.traffic = Traffic()

    def free_bytes(self) -> int | None:
        return available_bytes()

    def guarded(
        self, buffers: Iterable[Buffer], lead_bytes: int = 0, variant: int = 0
    ) -> Mapping[str, Zone]:
        return guarded(buffers, lead_bytes, variant)

    def empty(self, buffer: Buffer) -> np.ndarray:
        if buffer.kind == "temporary":
            return aligned_empty(buffer.shape, buffer.dtype)
        return np.empty(buffer.shape, numpy_dtype(buffer.dtype))

    def write(self, array: np.ndarray, values: np.ndarray) -> None:
        array[...] = values

    def scatter(self, array: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> None:
        array.reshape(-1)[offsets] = values

    def gather(self, array: np.ndarray, where: Points) -> np.ndarray:
        return np.reshape(array[where], -1)

    def copy(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def poison(self, array: np.ndarray, variant: int) -> None:
        poison(array, array.dtype.name, variant)

    def unequal(
        self, a: np.ndarray, b: np.ndarray, tolerance: Tolerance | None = None, unless: int | None = None
    ) -> Places:
        dtype, offsets = a.dtype.name, np.flatnonzero(unequal_bits(a, b))
        if unless is not None and offsets.size:
            offsets = offsets[~poisoned(a.reshape(-1)[offsets], dtype, unless)]
        if tolerance is not None and offsets.size:
            from rollergen.gate.differences import differences, root_mean_square, sizes  # ml_dtypes with it

            got, want = a.reshape(-1)[offsets], b.reshape(-1)[offsets]
            want = want.astype(np.float64) if is_float(dtype) else want
            scale = None
            if tolerance.everywhere:
                scale = np.maximum(sizes(want), root_mean_square(b.astype(np.float64)))
            offsets = offsets[differences(got, want, tolerance.variance, dtype, tolerance.exact, scale=scale)]
        return Places.of(offsets)

    def unwritten(self, a: np.ndarray, b: np.ndarray, variants: tuple[int, int]) -> Places:
        blank = poisoned(a, a.dtype.name, variants[0])
        blank &= poisoned(b, b.dtype.name, variants[1])
        return Places.of(np.flatnonzero(blank))

    def damages(self, zones: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, zone in zones.items():
            if damage := zone.damage():
                zone.reset()
                yield name, damage

    def changed(self, zones: Mapping[str, Zone], pristine: Mapping[str, np.ndarray]) -> list[str]:
        return [name for name, original in pristine.items() if not same_bits(zones[name].array, original)]


def available_bytes() -> int | None:
    """Host memory that can be had without swapping; None where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            found = dict(line.split(":", 1) for line in file)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


HOST = HostMemory()
