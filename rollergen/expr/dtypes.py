"""Element types and the rules between them.

float16 and bfloat16 accumulate in float32, int8, uint8 and int16 in int32, uint16 in uint32; a reduction's result has
the dtype of its operands (of integers: the accumulator's) unless told otherwise.  Python scalars are weak: they take
the dtype of what they meet.  Nothing else is promoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, isfinite
from typing import Any

from rollergen.errors import DtypeError, shown
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.late import np

_TENSORS = tuple(row for row in DTYPES.values() if not row.matrix_only and not row.packed)
PACKED = tuple(row.name for row in DTYPES.values() if row.packed)
"""Dtypes of two elements in a byte: of arguments, and what values may be cut to, while expressions have others."""
ITEMSIZE = {row.name: row.itemsize for row in _TENSORS}
"""Bytes of an element, by the names of the dtypes that tensors may have."""
FLOATS = tuple(row.name for row in _TENSORS if row.kind == "float")
INTEGERS = tuple(row.name for row in _TENSORS if row.kind == "integer")


def dtype_name(dtype: Any, where: str = "dtype", more: tuple[str, ...] = ()) -> str:
    """The name of `dtype`: one of `ITEMSIZE`, torch's dtype of that name, or anything NumPy reads as one of these;
    or one of `more`.

    >>> dtype_name("float32"), dtype_name(float)
    ('float32', 'float64')

    Raises DtypeError, beginning with `where`, for any other.
    """
    if isinstance(dtype, str) and (dtype in ITEMSIZE or dtype in more):
        return dtype
    kind = type(dtype)
    name = str(dtype).removeprefix("torch.") if (kind.__module__, kind.__name__) == ("torch", "dtype") else None
    if dtype is not None and name is None:
        import numpy

        try:
            read = numpy.dtype(dtype)
        except (TypeError, ValueError, SyntaxError):
            read = None
        if read is not None and not read.isnative:
            raise DtypeError(
                f"{where} is {shown(dtype)}, of foreign byte order; expected {read.name!r}, and x.astype of it"
            )
        name = None if read is None else read.name
    if name not in ITEMSIZE and name not in more:
        raise DtypeError(f"{where} is {shown(dtype)}; expected one of {', '.join((*ITEMSIZE, *more))}")
    return name


@lru_cache(maxsize=64)
def numpy_dtype(dtype: str) -> Any:
    """The NumPy dtype (of those that NumPy lacks, ml_dtypes')."""
    if dtype not in np.sctypeDict:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
    return np.dtype(dtype)


def is_builtin(dtype: Any) -> bool:
    """Whether the NumPy dtype is NumPy's own."""
    return bool(dtype.isbuiltin == 1)


def rounded(array: Any, dtype: str) -> Any:
    """`array` as NumPy's own of `dtype`, each element rounded once.

    ml_dtypes converts float64 and integers to its floats by way of float32, which rounds twice: here what float32 does
    not hold goes to its neighbour with an odd last bit instead, which lies on the same side of every narrower float and
    of every middle between two (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).

    >>> rounded(1 + 2**-8 + 2**-40, "bfloat16").item()
    1.0078125
    """
    array = np.asarray(array)
    if is_builtin(numpy_dtype(dtype)) or array.dtype.itemsize < 4 or array.dtype == np.float32:
        return array.astype(numpy_dtype(dtype), copy=False)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        array = _within_float64(array)
    exact = array.astype(np.float64)
    single = np.atleast_1d(exact.astype(np.float32))
    back, bits = single.astype(np.float64), single.view(np.uint32)
    bits = bits - (np.abs(back) > np.abs(exact)) | (back != exact)
    return bits.view(np.float32).reshape(array.shape).astype(numpy_dtype(dtype))


def _within_float64(whole: Any) -> Any:
    """Integers of 64 bits that float64 holds, on the same side of every multiple of 4096 beyond 2**53."""
    low = whole & 2047
    middle = whole - low + (low != 0).astype(whole.dtype) * 1024
    return np.where(np.abs(whole.astype(np.float64)) < 2.0**53, whole, middle)


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_rounded_from_float64(x: str, dtype: str) -> bool:
    """Whether a cast of `x` to `dtype`, narrower than float32, starts from float64: float32 does not hold `x`, and
    would round first.  (It holds what integers float16 holds.)"""
    return DTYPES[x].significant > DTYPES["float32"].significant and (is_float(x) or dtype == "bfloat16")


def is_integer(dtype: str) -> bool:
    return dtype in INTEGERS


def bounds(dtype: str) -> tuple[float, float]:
    """The least and the largest value of `dtype`: infinities, of a float."""
    return (-inf, inf) if is_float(dtype) else DTYPES[dtype].limits


def finite_bounds(dtype: str) -> tuple[float, float]:
    """The least and the largest number of `dtype`."""
    if not is_float(dtype):
        return DTYPES[dtype].limits
    row = DTYPES[dtype]
    exponent, fraction = divmod(row.above - 1, 1 << row.fraction)
    largest = (1 + fraction / (1 << row.fraction)) * 2.0 ** (exponent - row.bias)
    return -largest, largest


def largest_float(dtype: str, most: int) -> float:
    """The largest number of the floating `dtype` that does not exceed the positive integer `most`."""
    most = min(most, int(finite_bounds(dtype)[1]))
    unit = 1 << max(0, most.bit_length() - DTYPES[dtype].significant)
    return float(most // unit * unit)


def spacing(dtype: str) -> float:
    """Of a floating dtype the distance from 1 to the next number."""
    return 2.0 ** (1 - DTYPES[dtype].significant)


def accumulator_dtype(dtype: str) -> str:
    """What a reduction over values of `dtype` accumulates in."""
    if dtype == "bool":
        raise DtypeError('a reduction over bool values; cast them first, e.g. rg.cast(x, "int32")')
    return DTYPES[dtype].accumulator


def reduced_dtype(dtype: str) -> str:
    """Dtype of a reduction's result over values of `dtype`."""
    return DTYPES[dtype].accumulator if is_integer(dtype) else dtype


def common_dtype(a: str, b: str, operation: str) -> str:
    """The dtype that both operands have; DtypeError if they differ."""
    if a != b:
        raise DtypeError(
            f"{operation} of {a} and {b}; dtypes are not promoted: cast one operand, e.g. rg.cast(x, {_wider(a, b)!r})"
        )
    return a


def scalar_dtype(scalar: float | int | bool) -> str:
    """Dtype of a Python scalar that meets nothing else: of integers int32, or int64 where that is too narrow."""
    if isinstance(scalar, bool):
        return "bool"
    if isinstance(scalar, float):
        return "float32"
    return "int32" if -(2**31) <= scalar < 2**31 else "int64"


def check_scalar(scalar: float | int | bool, dtype: str, operation: str) -> float | int | bool:
    """The weak `scalar` as a literal of `dtype`; DtypeError where it does not fit."""
    if dtype == "bool" or isinstance(scalar, bool):
        if dtype == "bool" and isinstance(scalar, bool):
            return scalar
        raise DtypeError(f"{operation} of {dtype} values and {shown(scalar)}; expected {_expected(dtype)}")
    if is_float(dtype):
        try:
            value = float(scalar)
        except OverflowError:
            text = f"{_shown(int(scalar))} does not fit {dtype}"
            raise DtypeError(f"{operation}: {text}; expected a number that a double holds") from None
        if isfinite(value) and _overflows(value, dtype):
            raise DtypeError(
                f"{operation}: {shown(value)} does not fit {dtype}; expected a number that it holds, or inf"
            )
        return value
    if isinstance(scalar, float):
        raise DtypeError(
            f"{operation} of {dtype} values and {shown(scalar)}; expected {_expected(dtype)}, or a cast first"
        )
    low, high = DTYPES[dtype].limits
    if not low <= scalar <= high:
        raise DtypeError(f"{operation}: {_shown(scalar)} does not fit {dtype}; expected {low} to {high}")
    return scalar


def _overflows(value: float, dtype: str) -> bool:
    if abs(value) <= finite_bounds(dtype)[1]:
        return False
    with np.errstate(over="ignore"):
        return not np.isfinite(np.float64(numpy_dtype(dtype).type(value)))


def _shown(number: int) -> str:
    """The digits, unless they are too many to read (Python itself refuses to write thousands)."""
    return str(number) if number.bit_length() <= 256 else f"an integer of {number.bit_length()} bits"


def _expected(dtype: str) -> str:
    if dtype == "bool":
        return "True or False"
    return "a Python number" if is_float(dtype) else "a Python integer"


def _wider(a: str, b: str) -> str:
    """The dtype that advice names: floating before integer, then the larger."""
    return max(a, b, key=lambda d: (is_float(d), ITEMSIZE[d], d == "float32"))


def described(dtype: str, shape: Sequence[int]) -> str:
    """A tensor's dtype and shape in words, as in `Buffer.packs`.

    >>> described("int4", (4, 5))
    'int4[4, 5]'
    """
    return f"{dtype}[{', '.join(map(str, shape))}]"
