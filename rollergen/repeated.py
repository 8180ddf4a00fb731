"""Calls with the very same arrays again: their checks and their buffers are those of the call before.

A small operator is computed in two or three microseconds, and checking and wrapping its arrays takes twice as long.  A
caller that repeats a call (a loop over a network's layers, a benchmark) passes the same array objects, so what was
found out about them still holds while the objects, and what they say of their memory, are unchanged.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rollergen.measure.executor import Session

_HEADER_BYTES = object.__basicsize__
"""Of an object's header, behind which NumPy's arrays keep the address of their first element."""


class _Header(ctypes.Structure):
    """What NumPy's arrays (``PyArrayObject_fields`` of its C API) begin with, behind the header of every object."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("dimensions_count", ctypes.c_int), ("dimensions", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("base", ctypes.c_void_p), ("descr", ctypes.c_void_p), ("flags", ctypes.c_int),
    )  # fmt: skip


_BYTES = _Header.flags.offset + _Header.flags.size
_INTEGER = ctypes.sizeof(ctypes.c_ssize_t)
_WRITEABLE = 0x400
"""NPY_ARRAY_WRITEABLE."""


@lru_cache
def _bytes(count: int) -> Any:
    """The type of so many bytes: ctypes makes a class of it each time, which only the collector of cycles frees."""
    return ctypes.c_char * count


class _Known:
    """What an array whose header is laid out as expected was when it was checked.  It refers to the array weakly, and
    owns none of its memory.

    The header's bytes tell address, dtype and flags, those that it points to shape and strides: two comparisons in
    place of one for each of these, of which NumPy makes an object each time.
    """

    __slots__ = ("dtype", "extents", "header", "reference", "shape_bytes", "was")

    def __init__(self, array: np.ndarray) -> None:
        self.reference, self.dtype = weakref.ref(array), array.dtype  # kept: its address tells it from others
        start = id(array) + _HEADER_BYTES
        self.header = _bytes(_BYTES).from_address(start)
        self.was = self.header.raw
        self.extents = _bytes(2 * array.ndim * _INTEGER).from_address(_Header.from_address(start).dimensions or start)
        self.shape_bytes = self.extents.raw

    def facts(self) -> tuple[Any, ...]:
        """All in one tuple, which is the quickest to take apart."""
        return self.reference, self.header, self.was, self.extents, self.shape_bytes, self.dtype


def _is_header_of(array: np.ndarray, found: _Header) -> bool:
    """Whether the array's header is laid out as expected: strides behind the shape, both where it says."""
    count = array.ndim
    if found.dimensions_count != count or (found.data or 0) != array.ctypes.data:
        return False
    if found.descr != id(array.dtype) or bool(found.flags & _WRITEABLE) != array.flags.writeable:
        return False
    if not count:
        return True
    if not found.dimensions or found.strides != found.dimensions + count * _INTEGER:
        return False
    values = _bytes(2 * count * _INTEGER).from_address(found.dimensions).raw
    return struct.unpack(f"{2 * count}n", values) == (*array.shape, *array.strides)


Again = Callable[[Sequence[Any], Any], bool]
"""``again(inputs, out)``: whether the call is the one it was made from; then it has been made again."""


def _again(inputs: Sequence[tuple[Any, ...]], written: tuple[Any, ...], run: Callable[[], None]) -> Again:
    """For the thread that made it, and while the temporaries hold constants packed from these inputs.  The same call
    is one with the same objects over the same memory, read in the same way, and an output still to be written."""
    count = len(inputs)
    out_reference, out_header, out_was, out_extents, out_shape, _ = written

    def again(arrays: Sequence[Any], out: Any) -> bool:
        if out is None or len(arrays) != count or out_reference() is not out:
            return False
        if out_header.raw != out_was or out_extents.raw != out_shape:
            return False
        for array, (reference, header, was, extents, shape, _) in zip(arrays, inputs, strict=False):
            if array is None or reference() is not array or header.raw != was or extents.raw != shape:
                return False
        run()
        return True

    return again


class LastCall:
    """The arrays of a thread's last call, referred to weakly."""

    __slots__ = ("_references",)

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._references = tuple(map(weakref.ref, arrays))

    def was(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether these are its arrays."""
        references = self._references
        return len(references) == len(arrays) and all(r() is a for r, a in zip(references, arrays, strict=True))


def repeated(session: Session, arrays: Mapping[str, np.ndarray], outputs: int) -> Again | None:
    """The call over checked ``arrays`` (by name, the inputs' first and the ``outputs`` outputs' last) made repeatable.

    None where it cannot be: more than one output, memory that is copied to a device, or an interpreter whose arrays
    are laid out otherwise.
    """
    if outputs != 1 or sys.implementation.name != "cpython":
        return None
    if not all(_is_header_of(array, _Header.from_address(id(array) + _HEADER_BYTES)) for array in arrays.values()):
        return None
    known = [_Known(array) for array in arrays.values()]
    run = session.repeat(arrays)
    return None if run is None else _again([one.facts() for one in known[:-1]], known[-1].facts(), run)
