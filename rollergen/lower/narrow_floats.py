"""Floats that exist in memory only: their values as float32, and float32 rounded to them.

float16 is the language's own; it rounds when it stores.  Others are their bits: a function for each number of lanes
reads them, one writes them.  Numbers are rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rollergen.expr.index import Index
from rollergen.hal.dtypes import DTYPES, Dtype
from rollergen.lower.expressions import Convert, Expr, Number, Operation, Pointer, Read
from rollergen.lower.function_bodies import Body, use
from rollergen.lower.ir import PRIVATE, Allocate, Function, Write

_SINGLE = DTYPES["float32"]


def value(functions: dict[str, Function], dtype: str, bits: Expr) -> Expr:
    """The float32 of each of the `bits`, which are words of `dtype`."""
    if dtype != "bfloat16":
        return use(functions, partial(_value, DTYPES[dtype]), f"value_of_{dtype}", bits)
    lanes = bits.lanes
    word = Operation("shl", (Convert(bits, "uint32"), Number(16, "uint32", lanes)), "uint32", lanes)
    return Convert(word, "float32", bits=True)


def _value(row: Dtype, b: Body, x: Expr) -> Expr:
    """Of the magnitude, shifted to where float32 has its fraction, the exponent is mended; numbers below the smallest
    normal one, whose exponent is 0, are their fraction times the smallest."""
    shift = _SINGLE.fraction - row.fraction
    word = b.let("w", Convert(x, "uint32"))
    size = b.let("m", _bits(b, "bitand", word, (1 << row.bits - 1) - 1))
    mended = b.add(_bits(b, "shl", size, shift), _SINGLE.bias - row.bias << _SINGLE.fraction)
    tiny = b.mul(Convert(size, "float32"), Number(_smallest(row), "float32", b.lanes))
    number = b.where("lt", size, 1 << row.fraction, tiny, Convert(mended, "float32", bits=True))
    made = b.let("v", number)
    beyond = _float(b, "inf" if row.infinite else "nan")
    made = b.let("o", b.where("eq", size, row.above, beyond, made))
    if row.infinite:
        made = b.let("p", b.where("gt", size, row.above, _float(b, "nan"), made))
    sign = _bits(b, "shl", _bits(b, "shr", word, row.bits - 1), 31)
    signed = Operation("bitor", (Convert(made, "uint32", bits=True), sign), "uint32", b.lanes)
    return Convert(signed, "float32", bits=True)


def _narrow_bits(row: Dtype, b: Body, x: Expr) -> Expr:
    """The bits of `x` rounded to `row`, in 32 bits.

    A normal number's exponent and fraction are shifted to their place, half a unit added (less one unit of x where the
    last bit is even), and the exponent mended.  Smaller ones are counted in units of the smallest: float32 rounds
    them to that when a number is added whose last bit is worth as much.
    """
    shift, largest = _SINGLE.fraction - row.fraction, 0x7FFFFFFF
    word = b.let("u", Convert(x, "uint32", bits=True))
    size = b.let("m", _bits(b, "bitand", word, largest))
    odd = _bits(b, "bitand", _bits(b, "shr", size, shift), 1)
    raised = b.add(b.add(size, (1 << shift - 1) - 1), odd)
    normal = b.let("n", b.sub(_bits(b, "shr", raised, shift), _SINGLE.bias - row.bias << row.fraction))
    ruler = _smallest(row) * 2.0**_SINGLE.fraction
    added = b.add(Convert(size, "float32", bits=True), Number(ruler, "float32", b.lanes))
    fixed = Convert(Number(ruler, "float32", b.lanes), "uint32", bits=True)
    small = b.let("s", b.sub(Convert(added, "uint32", bits=True), b.let("z", fixed)))
    least = _SINGLE.bias + 1 - row.bias << _SINGLE.fraction
    near = b.let("r", b.where("lt", size, least, small, normal))
    near = b.let("t", b.where("gt", near, row.above, Number(row.above, "uint32", b.lanes), near))
    chosen = b.let("v", b.where("gt", size, (1 << _SINGLE.exponent) - 1 << _SINGLE.fraction, row.nan, near))
    sign = _bits(b, "shl", _bits(b, "shr", word, 31), row.bits - 1)
    return Operation("bitor", (chosen, sign), "uint32", b.lanes)


def _smallest(row: Dtype) -> float:
    """The smallest number above 0."""
    return 2.0 ** (1 - row.bias - row.fraction)


def _bits(b: Body, op: str, x: Expr, by: int) -> Expr:
    return Operation(op, (x, Number(by, "uint32", b.lanes)), "uint32", b.lanes)


def _float(b: Body, text: str) -> Number:
    return Number(float(text), "float32", b.lanes)


def _stored(row: Dtype, b: Body, x: Expr) -> Expr:
    return Convert(b.let("b", _narrow_bits(row, b, x)), row.word)


def _rounded(row: Dtype, b: Body, x: Expr) -> Expr:
    bits = Convert(b.let("b", _narrow_bits(row, b, x)), row.word)
    return use(b.functions, partial(_value, row), f"value_of_{row.name}", b.let("c", bits))


def _bfloat16_bits(b: Body, x: Expr) -> Expr:
    """The bits of `x` rounded to nearest even in the upper half of a word; NaN stays one."""
    word = b.let("u", Convert(x, "uint32", bits=True))
    number = lambda value: b.number(value, "uint32")
    odd = Operation("bitand", (Operation("shr", (word, number(16)), "uint32", b.lanes), number(1)), "uint32", b.lanes)
    rounded = b.let("v", b.add(b.add(word, 0x7FFF), odd))
    quiet = Operation("bitor", (word, number(0x400000)), "uint32", b.lanes)
    chosen = b.let("w", b.where("eq", x, x, rounded, quiet))
    return Operation("bitand", (chosen, number(0xFFFF0000)), "uint32", b.lanes)


def _round_bfloat16(b: Body, x: Expr) -> Expr:
    return Convert(_bfloat16_bits(b, x), "float32", bits=True)


def _upper_half(b: Body, x: Expr) -> Expr:
    word = b.let("b", _bfloat16_bits(b, x))
    return Convert(Operation("shr", (word, b.number(16, "uint32")), "uint32", b.lanes), "uint16")


def _round_float16(b: Body, x: Expr) -> Expr:
    return Read(_halves(b, x), Index(), "float32", b.lanes)


def _halves(b: Body, x: Expr, name: str = "half_of_x") -> Pointer:
    """Memory with the numbers as float16: the language rounds when it stores."""
    array = Pointer(name, "float16", PRIVATE, writable=True)
    b.statements.append(Allocate(array.name, PRIVATE, "float16", (b.lanes,), 1, 2 * b.lanes))
    b.statements.append(Write(array, Index(), x))
    return array


def _word_of_bfloat16(b: Body, low: Expr, high: Expr) -> Expr:
    """Of numbers that are bfloat16, whose bits float32 holds in its upper half."""
    first, second = (Convert(x, "uint32", bits=True) for x in (low, high))
    return _word(b, _bits(b, "shr", first, 16), second)


def _word_of_float16(b: Body, low: Expr, high: Expr) -> Expr:
    """Of numbers that are float16: compilers see that what they read as float32 is only stored again."""
    arrays = _halves(b, low, "half_of_x"), _halves(b, high, "half_of_y")
    first, second = (
        Convert(Read(replace(array, dtype="uint16"), Index(), "uint16", b.lanes), "uint32") for array in arrays
    )
    return _word(b, first, _bits(b, "shl", second, 16))


def _word(b: Body, low: Expr, high: Expr) -> Expr:
    return Convert(Operation("bitor", (high, low), "uint32", b.lanes), "int32", bits=True)


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "round_float16": _round_float16,
    "round_bfloat16": _round_bfloat16,
    "bfloat16_bits": _upper_half,
    "word_of_bfloat16": _word_of_bfloat16,
    "word_of_float16": _word_of_float16,
}
for _row in DTYPES.values():
    if _row.narrow and _row.bits == 8:
        FUNCTIONS |= {f"round_{_row.name}": partial(_rounded, _row), f"{_row.name}_bits": partial(_stored, _row)}
