"""Calls with the very same arrays again: their checks and their buffers are those of the call before.

A small operator is computed in two or three microseconds, and checking and wrapping its arrays takes twice as long.  A
caller that repeats a call (a loop over a network's layers, a benchmark) passes the same array objects, so what was
found out about them still holds while the objects, and what they say of their memory, are unchanged.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.measure.executor import Session

_HEADER_BYTES = object.__basicsize__
"""Of an object's header, behind which NumPy's arrays keep the address of their first element."""


class _Known:
    """What an array was when it was checked.  It refers to the array weakly, and owns none of its memory."""

    __slots__ = ("address", "dtype", "pointer", "reference", "shape", "strides")

    def __init__(self, array: np.ndarray) -> None:
        self.reference = weakref.ref(array)
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.address = array.ctypes.data
        self.pointer = ctypes.c_void_p.from_address(id(array) + _HEADER_BYTES)

    def facts(self) -> tuple[Any, ...]:
        """All in one tuple, which is the quickest to take apart."""
        return self.reference, self.shape, self.strides, self.dtype, self.pointer, self.address

    @property
    def is_readable(self) -> bool:
        """Whether the array's header is laid out as expected."""
        return (self.pointer.value or 0) == self.address


Again = Callable[[Sequence[Any], Any], bool]
"""``again(inputs, out)``: whether the call is the one it was made from; then it has been made again."""


def _again(inputs: Sequence[tuple[Any, ...]], written: tuple[Any, ...], run: Callable[[], None]) -> Again:
    """For the thread that made it, and while the temporaries hold constants packed from these inputs.  The same call
    is one with the same objects over the same memory, read in the same way, and an output still to be written."""
    count = len(inputs)
    out_reference, out_shape, out_strides, out_dtype, out_pointer, out_address = written

    def again(arrays: Sequence[Any], out: Any) -> bool:
        if out is None or len(arrays) != count or out_reference() is not out or out_pointer.value != out_address:
            return False
        if not out.flags.writeable or out.shape != out_shape or out.strides != out_strides:
            return False
        if out.dtype is not out_dtype:
            return False
        for array, (reference, shape, strides, dtype, pointer, address) in zip(arrays, inputs, strict=True):
            if array is None or reference() is not array or pointer.value != address:
                return False
            if array.shape != shape or array.strides != strides or array.dtype is not dtype:
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
    known = [_Known(array) for array in arrays.values()]
    if not all(one.is_readable for one in known):
        return None
    run = session.repeat(arrays)
    return None if run is None else _again([one.facts() for one in known[:-1]], known[-1].facts(), run)
