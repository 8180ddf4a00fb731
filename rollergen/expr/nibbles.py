"""Integers of four bits, two to a byte: what is stored of int4 and uint4, and how expressions read it.

Each row (the last dimension) begins with a byte of its own; of two neighbours the first has the low bits, as ONNX
and PyTorch order them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollergen.errors import ArgumentError, DtypeError
from rollergen.expr.dtypes import PACKED, described
from rollergen.expr.functions import cast
from rollergen.expr.scalars import Expr
from rollergen.expr.values import Binary, Cast, Const, Value
from rollergen.hal.late import np


def packed_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the bytes that hold a tensor of `shape`.

    >>> packed_shape((4, 8)), packed_shape((4, 5)), packed_shape(())
    ((4, 4), (4, 3), (1,))
    """
    return (*shape[:-1], (shape[-1] + 1) // 2) if shape else (1,)


def pack(array: Any) -> Any:
    """Packs integers from -8 to 15, of any dtype, into uint8, two to a byte, in the shape `packed_shape`.

    The weights of ``rg.tensor("w", (K, N), "int4")``, packed once.

    >>> pack(np.array([1, -2, 3])).tolist()
    [225, 3]

    Raises DtypeError for what is no array of integers, ArgumentError for one that four bits do not hold.
    """
    given = np.atleast_1d(np.asarray(array))
    if given.dtype.kind not in "iu" and given.dtype.name not in PACKED:
        raise DtypeError(f"rg.pack: array has dtype {given.dtype}; expected integers, such as ml_dtypes' int4")
    wide = given if given.dtype.kind in "iu" else given.astype(np.int8)
    if wide.size and not (wide.min() >= -8 and wide.max() <= 15):
        raise ArgumentError(f"rg.pack: array has {wide.min()} to {wide.max()}; expected integers from -8 to 15")
    bits = wide.astype(np.int8).view(np.uint8) & 15
    even = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, bits.shape[-1] % 2)])
    return even[..., ::2] | even[..., 1::2] << 4


def as_stored(array: Any, packs: str) -> Any:
    """An array that a call brings for a buffer that ``packs`` int4 or uint4: packed if it holds just these."""
    dtype = getattr(array, "dtype", None)
    if packs and dtype is not None and dtype.name in PACKED and described(dtype.name, array.shape) == packs:
        return pack(array)
    return array


def element(stored: Any, dtype: str, at: Sequence[Any]) -> Expr:
    """Element `at` of the tensor of `dtype` whose bytes are the tensor `stored`: int8, or of uint4 uint8."""
    if not at:
        return cast(stored[0], dtype)
    *row, column = at
    return cast(stored[(*row, column // 2)] >> cast(column % 2 * 4, "uint8"), dtype)


def low_bits(value: Value) -> tuple[Value, int] | None:
    """(word, less) of which it is the four lowest bits of the word, an int32, less a number, as a float32; else None.

    A vector of as many floats as these bits have values is a table of them, which an instruction looks up."""
    match value:
        case Cast(Binary("sub", Binary("bitand", word, Const(15), "int32"), Const(int(less))), "float32"):
            return word, less
        case Cast(Binary("bitand", word, Const(15), "int32"), "float32"):
            return word, 0
    return None
