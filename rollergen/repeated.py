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


class Repeated:
    """Launches over the arrays of one call; ``run()`` repeats it.  For the thread that made it, and while the
    temporaries hold constants packed from these arrays."""

    __slots__ = ("_inputs", "_out", "run")

    def __init__(self, inputs: Sequence[_Known], out: _Known, run: Callable[[], None]) -> None:
        self._inputs = [one.facts() for one in inputs]
        self._out = out.facts()
        self.run = run

    def fits(self, arrays: Sequence[Any], out: Any) -> bool:
        """Whether a call with these arrays is the same call: the same objects over the same memory, read in the same
        way, and the output still to be written."""
        if out is None or len(arrays) != len(self._inputs):
            return False
        reference, shape, strides, dtype, pointer, address = self._out
        if reference() is not out or not out.flags.writeable or pointer.value != address:
            return False
        if out.shape != shape or out.strides != strides or out.dtype is not dtype:
            return False
        for array, (reference, shape, strides, dtype, pointer, address) in zip(arrays, self._inputs, strict=True):
            if array is None or reference() is not array or pointer.value != address:
                return False
            if array.shape != shape or array.strides != strides or array.dtype is not dtype:
                return False
        return True


class LastCall:
    """The arrays of a thread's last call, referred to weakly."""

    __slots__ = ("_references",)

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._references = tuple(map(weakref.ref, arrays))

    def was(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether these are its arrays."""
        references = self._references
        return len(references) == len(arrays) and all(r() is a for r, a in zip(references, arrays, strict=True))


def repeated(session: Session, arrays: Mapping[str, np.ndarray], outputs: int) -> Repeated | None:
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
    return None if run is None else Repeated(known[:-1], known[-1], run)
