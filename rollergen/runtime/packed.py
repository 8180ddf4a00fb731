"""The arrays that packed constants were made from, and whether they have changed since."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np
from rollergen.runtime.device_arrays import DeviceView
from rollergen.runtime.interop import is_torch

Seen: TypeAlias = "np.ndarray | DeviceView"
"""An array's memory, as a call sees it (`interop.view`, `device_arrays.device_view`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """``version``: after how many `Kernel.repack`s the constants were packed; -1: never.

    An array counts as unchanged while it is the same object over the same memory and, if it is a torch tensor, torch
    has counted no change in place.  A change in place that nobody counts leaves no trace that a call could look at.
    """

    version: int
    _arrays: tuple[Callable[[], Any], ...] = ()
    _memories: tuple[_Memory, ...] = ()

    @staticmethod
    def of(version: int, arrays: Sequence[Any], seen: Sequence[Seen]) -> Packed:
        """``arrays``: the objects that the caller passed; ``seen``: the memory of each."""
        memories = (_Memory(_place(one), _storage(array)) for array, one in zip(arrays, seen, strict=True))
        return Packed(version, tuple(map(_reference, arrays)), tuple(memories))

    def holds(self, version: int, arrays: Sequence[Any], seen: Sequence[Seen]) -> bool:
        """Whether constants that were packed from these arrays now would be the same."""
        return (
            self.version == version
            and all(known() is one for known, one in zip(self._arrays, arrays, strict=True))
            and all(memory.is_of(*pair) for memory, *pair in zip(self._memories, arrays, seen, strict=True))
        )

    def holds_at(self, version: int, arrays: Sequence[Any], places: Sequence[tuple[Any, ...]]) -> bool:
        """As `holds`, of arrays at these places (`_place`)."""
        return self.version == version and all(
            known() is array and memory.place == place and memory.is_unchanged(array)
            for known, memory, array, place in zip(self._arrays, self._memories, arrays, places, strict=True)
        )


NEVER = Packed(-1)


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """``place``: address and strides; ``storage``: of a torch tensor, see `_storage`."""

    place: tuple[Any, ...]
    storage: tuple[Any, int | None] | None

    def is_of(self, array: Any, seen: Seen) -> bool:
        return self.place == _place(seen) and self.is_unchanged(array)

    def is_unchanged(self, array: Any) -> bool:
        """Whether a torch tensor has the same storage, in which torch has counted no change."""
        if self.storage is None:
            return True
        reference, changes = self.storage
        return reference.cdata == array.untyped_storage()._cdata and changes == _changes(array)


def _place(seen: Seen) -> tuple[Any, ...]:
    if isinstance(seen, DeviceView):
        return seen.address, seen.shape
    return seen.__array_interface__["data"][0], seen.strides


def _storage(array: Any) -> tuple[Any, int | None] | None:
    """(a weak reference to its storage, its changes in place) of a torch tensor, else None.

    The reference tells the storage from a later one at the same address: torch gives no two storages that are
    referred to the same number (``cdata``)."""
    if not is_torch(array):
        return None
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(array.untyped_storage()), _changes(array)


def _changes(tensor: Any) -> int | None:
    """How often torch has changed the values in place; None for an inference tensor, of which it keeps no count."""
    return None if tensor.is_inference() else tensor._version


def _reference(array: Any) -> Callable[[], Any]:
    """What gives the array back; it keeps alive only what cannot be referred to weakly."""
    try:
        return weakref.ref(array)
    except TypeError:
        return lambda: array
