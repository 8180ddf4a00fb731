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
    ``matrix_only``
        Whether only matrix instructions know it: no tensor has it.
    """

    name: str
    bits: int
    kind: str
    significant: int
    register: str
    accumulator: str
    matrix_only: bool = False


_ROWS = (
    Dtype("float16", 16, "float", 11, "float32", "float32"),
    Dtype("bfloat16", 16, "float", 8, "float32", "float32"),
    Dtype("float32", 32, "float", 24, "float32", "float32"),
    Dtype("float64", 64, "float", 53, "float64", "float64"),
    Dtype("int8", 8, "integer", 7, "int8", "int32"),
    Dtype("int32", 32, "integer", 31, "int32", "int32"),
    Dtype("int64", 64, "integer", 63, "int64", "int64"),
    Dtype("bool", 8, "bool", 1, "bool", "bool"),
    Dtype("tf32", 32, "float", 11, "float32", "float32", matrix_only=True),
)
DTYPES = {row.name: row for row in _ROWS}
