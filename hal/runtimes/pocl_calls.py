"""Functions of NumPy arrays in machine code: they look at their arrays and make launches with them.

To look at three arrays and to reach a function through `ctypes` takes Python 2 us, in which a core adds up 100 KB.
CPython calls functions of extension modules in a tenth of a microsecond; `pocl_pool.cl` has one, PoCL compiles it.  It
reads arrays as extension modules do, by the layouts of CPython's ``object.h`` and NumPy's ``ndarraytypes.h``; where
objects are laid out otherwise, such as in builds without the interpreter's lock, there are no such functions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

Made = Callable[..., bool]
"""``made(*arrays)``: True where the launches were made with these arrays, False where one is not what is wanted."""


class Wanted(NamedTuple):
    """A C-contiguous, aligned and writeable plain NumPy array of this shape and dtype.  ``written``: it may share no
    byte with those before it; ``places``: (addresses, position) of all arguments that it is."""

    shape: tuple[int, ...]
    dtype: np.dtype
    written: bool
    places: Sequence[tuple[ctypes.Array[ctypes.c_void_p], int]]


class _Array(ctypes.Structure):
    """``struct array`` of the text."""

    _fields_ = (
        ("references", ctypes.c_ssize_t), ("type", ctypes.c_size_t), ("data", ctypes.c_size_t), ("axes", ctypes.c_int),
        ("extents", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.c_void_p), ("base", ctypes.c_void_p),
        ("dtype", ctypes.c_size_t), ("flags", ctypes.c_int),
    )  # fmt: skip


class _Dtype(ctypes.Structure):
    """``struct dtype`` of the text."""

    _fields_ = (
        ("references", ctypes.c_ssize_t), ("type", ctypes.c_size_t), ("scalar", ctypes.c_size_t),
        ("kind", ctypes.c_char), ("code", ctypes.c_char), ("order", ctypes.c_char),
    )  # fmt: skip


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


_FASTCALL = 0x80
"""METH_FASTCALL of ``methodobject.h``."""


def layout_known() -> bool:
    """Whether objects of this Python and arrays of this NumPy are laid out as the text says."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != _Array.data.offset:
        return False
    one = np.zeros((2, 3), np.int16)
    array, dtype = _Array.from_address(id(one)), _Dtype.from_address(id(one.dtype))
    said = array.type, array.data, array.axes, array.dtype, array.flags, dtype.scalar, dtype.kind, dtype.order
    kind, order = one.dtype.kind.encode(), one.dtype.byteorder.encode()
    known = id(np.ndarray), one.ctypes.data, one.ndim, id(one.dtype), one.flags.num, id(np.int16), kind, order
    return said == known and tuple(array.extents[:2]) == one.shape


class _Call(np.ndarray):
    """``struct call`` of the text, and what it refers to."""

    held: Any


class Calls:
    """Makes functions of arrays; ``function`` is the address of ``call_with`` of the text."""

    def __init__(self, function: int) -> None:
        self._method = _Method(b"launches", function, _FASTCALL, None)
        api = ctypes.pythonapi
        self._new = api.PyCFunction_NewEx
        self._new.restype, self._new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        asked = (api.PyEval_SaveThread, api.PyEval_RestoreThread, api.PyBool_FromLong)
        self._asked = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in asked]

    def function(self, pool: ctypes.Structure, job: ctypes.Array[Any], wanted: Sequence[Wanted], held: Any) -> Made:
        """What does the job with arrays of a call, and keeps ``held`` meanwhile."""
        at = ctypes.addressof
        words = [at(pool), at(job), id(np.ndarray), *self._asked, len(wanted)]
        for one in wanted:
            order, size = ord(one.dtype.byteorder), prod(one.shape) * one.dtype.itemsize
            places = [at(addresses) + place * ctypes.sizeof(ctypes.c_void_p) for addresses, place in one.places]
            words += [id(one.dtype.type), order, size, one.written, len(one.shape), len(places), 0, *one.shape, *places]
        call = np.array(words, np.uint64).view(_Call)
        call.held = self._method, pool, job, held
        made: Made = self._new(at(self._method), call, None)
        return made
