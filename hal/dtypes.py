"""Element types, one row each: what devices, programs and texts need to know of them."""

from __future__ import annotations

from typing import NamedTuple


class Dtype(NamedTuple):
    """One row.

    ``bits``
        Of an element in memory.
    ``kind``
        "float", "integer" or "bool".
    ``significant``
        Bits of the whole numbers that it holds exactly, the sign apart: of a float 2^-significant is the unit roundoff.
    ``register``
        The dtype in which C code computes with it.
    ``accumulator``
        The dtype in which reductions over it accumulate.
    ``exponent``
        Of a float: the bits of its exponent.
    ``infinite``
        Of a float: whether it has infinities.  One that has none has a NaN in their place that all bits are set of.
    ``signed``
        Whether it holds negative numbers.
    ``matrix_only``
        Whether only matrix instructions know it: no tensor has it.
    """

    name: str
    bits: int
    kind: str
    significant: int
    register: str
    accumulator: str
    exponent: int = 0
    infinite: bool = True
    signed: bool = True
    matrix_only: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self.bits // 8

    @property
    def packed(self) -> bool:
        """Whether it is an integer that exists in memory only, two to a byte: expressions compute with `register`."""
        return self.bits < 8

    @property
    def narrow(self) -> bool:
        """Whether it is a float that exists in memory only: C code computes with a wider one, and moves its bits."""
        return self.kind == "float" and self.register != self.name and not self.matrix_only

    @property
    def bias(self) -> int:
        """What the exponent of a float is stored with."""
        return (1 << self.exponent - 1) - 1

    @property
    def fraction(self) -> int:
        """Bits of a float that are stored of its significand."""
        return self.significant - 1

    @property
    def above(self) -> int:
        """The bits of the first value beyond the largest number of a float: its infinity, or NaN where it has none."""
        return (1 << self.bits - 1) - 1 if not self.infinite else (1 << self.exponent) - 1 << self.fraction

    @property
    def nan(self) -> int:
        """The bits of a float's quiet NaN."""
        return self.above if not self.infinite else self.above | 1 << self.fraction - 1

    @property
    def word(self) -> str:
        """The unsigned integer as wide as an element in memory."""
        return f"uint{self.bits}"

    @property
    def ptx(self) -> str:
        """What PTX calls it: f16, bf16, tf32, e4m3, s8, s32."""
        if self.kind == "float" and self.bits == 8:
            return f"e{self.exponent}m{self.fraction}"
        return self.name.replace("uint", "u").replace("int", "s").replace("float", "f")

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest number of an integer, or of what stands for a condition."""
        signed = self.signed and self.kind == "integer"
        return -(1 << self.significant) if signed else 0, (1 << self.significant) - 1


_ROWS = (
    Dtype("float16", 16, "float", 11, "float32", "float32", exponent=5),
    Dtype("bfloat16", 16, "float", 8, "float32", "float32", exponent=8),
    Dtype("float8_e4m3fn", 8, "float", 4, "float32", "float32", exponent=4, infinite=False),
    Dtype("float8_e5m2", 8, "float", 3, "float32", "float32", exponent=5),
    Dtype("float32", 32, "float", 24, "float32", "float32", exponent=8),
    Dtype("float64", 64, "float", 53, "float64", "float64", exponent=11),
    Dtype("int4", 4, "integer", 3, "int8", "int32"),
    Dtype("uint4", 4, "integer", 4, "uint8", "int32", signed=False),
    Dtype("int8", 8, "integer", 7, "int8", "int32"),
    Dtype("int16", 16, "integer", 15, "int16", "int32"),
    Dtype("int32", 32, "integer", 31, "int32", "int32"),
    Dtype("int64", 64, "integer", 63, "int64", "int64"),
    Dtype("uint8", 8, "integer", 8, "uint8", "int32", signed=False),
    Dtype("uint16", 16, "integer", 16, "uint16", "uint32", signed=False),
    Dtype("uint32", 32, "integer", 32, "uint32", "uint32", signed=False),
    Dtype("uint64", 64, "integer", 64, "uint64", "uint64", signed=False),
    Dtype("bool", 8, "bool", 1, "bool", "bool"),
    Dtype("tf32", 32, "float", 11, "float32", "float32", exponent=8, matrix_only=True),
)
DTYPES = {row.name: row for row in _ROWS}
FLOAT8 = tuple(row.name for row in _ROWS if row.kind == "float" and row.bits == 8)
"""Each holds numbers that float16 and bfloat16 hold as well."""

DOTS = {
    ("uint8", "int8"): "dot", ("int8", "int8"): "dot_signed", ("uint8", "uint8"): "dot_unsigned",
    ("int16", "int16"): "dot_pairs", ("bfloat16", "bfloat16"): "dot_bfloat16", ("float16", "float16"): "dot_float16",
}  # fmt: skip
"""Dot products of the numbers in two words of 32 bits, by what these hold."""
WORD_OF = {"bfloat16": "word_of_bfloat16", "float16": "word_of_float16"}
"""What makes a word of two floats, the first in its lower half, by their dtype."""


def sum_of(dtype: str) -> str:
    """The dtype in which dot products of such numbers are added up."""
    return DTYPES[dtype].accumulator


def in_a_word(dtype: str) -> int:
    """Numbers of a dtype that a word of 32 bits holds."""
    return 32 // DTYPES[dtype].bits
