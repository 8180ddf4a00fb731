"""Factors of matrix instructions that threads compute in registers, of narrow elements that are staged as they lie.

``(q - zero) * scale`` of int8, uint8, int4 or uint4 (two to a byte along the sum), or of float8, where ``zero`` and
``scale`` are the same for all neighbours along the sum that one instruction multiplies.  Of a fragment each thread has
`NEIGHBOURS` along the sum instead of two pairs that lie apart: of both factors, so that the terms of a sum change
places and no more.
Of nibbles it may have `EIGHT` of two steps side by side, a word of them: the first step multiplies the pairs (0, 4) and
(1, 5) of these, which a mask leaves of the word, the second one (2, 6) and (3, 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rollergen.expr.dtypes import ITEMSIZE, is_float
from rollergen.expr.index import Bounds, Index
from rollergen.expr.runs import is_same_in_runs, run_along
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Value, loads, walk
from rollergen.expr.views import reduced
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import FLOAT8
from rollergen.hal.spec import Instruction

CONVERTED = "converted"
"""The value of `Compute.factors` for a stage with such factors."""
CONVERTED_EIGHT = "converted_8"
"""The same, where threads have `EIGHT` neighbours of two steps."""
CONVERTING = (CONVERTED, CONVERTED_EIGHT)
NEIGHBOURS = 4
"""Elements along the sum that a thread has of a fragment's row."""
EIGHT = 2 * NEIGHBOURS

_SUM = 16
"""Elements along the sum that the instruction multiplies at once."""
_ARITHMETIC = ("add", "sub", "mul")


@dataclass(frozen=True, slots=True)
class Step:
    """``operation`` of what was computed so far and ``column`` (before it: ``first``), which is the same for all
    neighbours: an element or a number of the factor's dtype, or an integer of 8 bits cast to it."""

    operation: str
    column: Value
    first: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    """A factor: the elements of ``load``, of ``kind`` (their dtype, int4 or uint4), as ``dtype``, then ``steps``."""

    load: Load
    kind: str
    dtype: str
    steps: tuple[Step, ...] = ()

    @property
    def columns(self) -> tuple[Load, ...]:
        """The other loads, each once."""
        return tuple(dict.fromkeys(load for step in self.steps for load in loads(step.column)))

    @property
    def every(self) -> int:
        """Neighbours along the sum in one element of the load."""
        return 2 if self.kind.endswith("int4") else 1

    def bytes_of(self, neighbours: int) -> int:
        """Of the elements that a thread reads at once."""
        return neighbours // self.every * ITEMSIZE[self.load.dtype]


def can_convert(instruction: Instruction) -> bool:
    """Whether threads may compute a factor of the instruction: they know which elements of a fragment are theirs."""
    shape = (instruction.m, instruction.n, instruction.k)
    return instruction.layout == "quads" and shape == (16, 8, _SUM) and is_float(instruction.dtype)


def neighbours_of(factors: str) -> int:
    """Elements that a thread reads at once of stages with these `Compute.factors`."""
    return EIGHT if factors == CONVERTED_EIGHT else NEIGHBOURS


def can_take_eight(op: TensorOp, conversion: Conversion, k: str) -> bool:
    """Whether a thread may have `EIGHT` nibbles: columns are the same for all of two steps."""
    ranges = op.ranges()
    columns = all(_is_same(step.column, k, 2 * _SUM, ranges) for step in conversion.steps)
    return columns and conversion.every == EIGHT // NEIGHBOURS


def conversion_of(op: TensorOp, value: Value, dtype: str, k: str) -> Conversion | None:
    """`value` as a factor of `dtype` that is converted along the axis k; None where it is something else."""
    return _conversion(value, dtype, k, tuple(op.ranges().items()))


@lru_cache(maxsize=256)
def _conversion(value: Value, dtype: str, k: str, extents: tuple[tuple[str, Bounds], ...]) -> Conversion | None:
    ranges = dict(extents)
    found = _converted(value, dtype, k, ranges)
    if found is None or found.load.guard or found.load.fill or k not in found.load.axes():
        return None
    return found if all(not one.guard and not one.fill for one in found.columns) else None


def _converted(value: Value, dtype: str, k: str, ranges: Mapping[str, Bounds]) -> Conversion | None:
    value = _once_rounded(value, dtype)
    if isinstance(value, Load) and value.dtype in FLOAT8:
        return _narrow(value, dtype, k, ranges)
    if isinstance(value, Cast) and value.dtype == dtype:
        inner = _not_widened(value.x)
        return _narrow(inner, dtype, k, ranges) or _shifted(inner, dtype, k, ranges)
    if not isinstance(value, Binary) or value.op not in _ARITHMETIC or value.dtype != dtype:
        return None
    for inner, column, first in ((value.a, value.b, False), (value.b, value.a, True)):
        found = _converted(inner, dtype, k, ranges)
        if found is not None and _is_column(column, dtype, k, ranges):
            return Conversion(found.load, found.kind, dtype, (*found.steps, Step(value.op, column, first)))
    return None


def _once_rounded(value: Value, dtype: str) -> Value:
    """An operation on two numbers of `dtype` in float32, rounded to `dtype`, as one of `dtype`: float32 has more than
    twice the bits, so that rounding twice gives what rounding once does (Figueroa, 1995)."""
    if not (isinstance(value, Cast) and value.dtype == dtype and isinstance(value.x, Binary)):
        return value
    inner = value.x
    if inner.dtype != "float32" or inner.op not in _ARITHMETIC:
        return value
    a, b = _of_dtype(inner.a, dtype), _of_dtype(inner.b, dtype)
    return value if a is None or b is None else Binary(inner.op, a, b, dtype)


def _of_dtype(value: Value, dtype: str) -> Value | None:
    """A float32 whose values are all numbers of `dtype`, in `dtype`."""
    if isinstance(value, Cast) and value.dtype == "float32":
        if value.x.dtype == dtype:
            return value.x
        inner = _not_widened(value.x)
        return Cast(inner, dtype) if inner.dtype in FLOAT8 or _within_8_bits(inner) else None
    return None


def _not_widened(value: Value) -> Value:
    """The integer of 8 bits that `value` is in more of them; else `value` itself."""
    if isinstance(value, Cast) and value.dtype in ("int16", "int32", "int64") and value.x.dtype in ("int8", "uint8"):
        return value.x
    return value


def _within_8_bits(value: Value) -> bool:
    """Whether an integer has no more than 8 bits and a sign, which both float16 and bfloat16 hold."""
    if value.dtype in ("int8", "uint8"):
        return True
    parts = (value.a, value.b) if isinstance(value, Binary) and value.op == "sub" else ()
    return bool(parts) and all(isinstance(one, Cast) and one.x.dtype in ("int8", "uint8") for one in parts)


def _shifted(value: Value, dtype: str, k: str, ranges: Mapping[str, Bounds]) -> Conversion | None:
    """A difference of two integers of 8 bits, which is exact in `dtype` as well."""
    if not isinstance(value, Binary) or ITEMSIZE.get(value.dtype, 0) < 2 or not _within_8_bits(value):
        return None
    narrow = [Cast(part.x, dtype) for part in (value.a, value.b) if isinstance(part, Cast)]
    # Both of one sign, or the difference takes 9 bits.
    if len(narrow) != 2 or narrow[0].x.dtype != narrow[1].x.dtype:
        return None
    return _converted(Binary("sub", narrow[0], narrow[1], dtype), dtype, k, ranges)


def _is_column(value: Value, dtype: str, k: str, ranges: Mapping[str, Bounds]) -> bool:
    """Whether it is the same for all neighbours that an instruction multiplies, and simple (see `Step`)."""
    inner = value.x if isinstance(value, Cast) and value.dtype == dtype else value
    plain = isinstance(inner, (Load, Const)) and inner.dtype == dtype and inner is value
    if not plain and (inner is value or inner.dtype not in ("int8", "uint8")):
        return False
    return len(loads(inner)) <= 1 and _is_same(inner, k, _SUM, ranges)


def _is_same(value: Value, k: str, run: int, ranges: Mapping[str, Bounds]) -> bool:
    """Whether it is the same for all of so many neighbours along k."""
    places = [node.index for node in walk(value) if isinstance(node, IndexValue)]
    places += [index for load in loads(value) for index in load.indices]
    return all(is_same_in_runs(index, k, run, ranges) for index in places)


def _narrow(value: Value, dtype: str, k: str, ranges: Mapping[str, Bounds]) -> Conversion | None:
    """The narrow elements themselves."""
    if isinstance(value, Load) and value.dtype in ("int8", "uint8", *FLOAT8):
        one_each = k in value.axes() and run_along(value, k, ranges) == 1
        return Conversion(value, value.dtype, dtype) if one_each else None
    signed = _extended(value)
    low = value if signed is None else signed
    shift = low.a if isinstance(low, Binary) and low.op == "bitand" and _is_number(low.b, 15) else None
    shift = shift.x if isinstance(shift, Cast) and shift.dtype in ("int8", "uint8") else shift
    if not isinstance(shift, Binary) or shift.op != "shr" or shift.dtype != "uint8":
        return None
    load, by = shift.a, shift.b.x if isinstance(shift.b, Cast) else shift.b
    if not isinstance(load, Load) or load.dtype != "uint8" or not isinstance(by, IndexValue):
        return None
    if k not in load.axes() or run_along(load, k, ranges) != 2 or not _is_place(by.index, k, ranges):
        return None
    return Conversion(load, "uint4" if signed is None else "int4", dtype)


def _extended(value: Value) -> Value | None:
    """The four bits of which ``(bits ^ 8) - 8`` is the signed number."""
    if not (isinstance(value, Binary) and value.op == "sub" and _is_number(value.b, 8)):
        return None
    mixed = value.a
    return mixed.a if isinstance(mixed, Binary) and mixed.op == "xor" and _is_number(mixed.b, 8) else None


def _is_number(value: Value, number: int) -> bool:
    return isinstance(value, Const) and value.value == number


def _is_place(index: Index, k: str, ranges: Mapping[str, Bounds]) -> bool:
    """Whether the index is 0 for the first of two neighbours along k and 4 for the second."""
    known = {**ranges, k: (0, ranges[k][1] // 2), "second": (0, 1)}
    place = {k: Index.axis(k) * 2 + Index.axis("second")}
    return reduced(index.substitute(place), known) == Index.axis("second") * 4

