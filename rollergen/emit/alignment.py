"""What is known of an address: the largest power of two, in bytes, that surely divides it.

CUDA faults on a vector access whose address is no multiple of its size, and has no unaligned vectors to fall back
on, so the printer asks for a proof.  `Alignment` follows a kernel statement by statement, as it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from rollergen.expr.index import FloorDiv, Index
from rollergen.lower.ir import (
    STORAGE_BYTES,
    Allocate,
    Assign,
    For,
    Kernel,
    Let,
    Point,
    Pointer,
    Position,
    Statement,
    Write,
)

ARGUMENT_BYTES = 16
"""Every array passed to a kernel starts at a multiple of this (CUDA's allocations: of 256)."""


class Alignment:
    """Known factors of the integers and pointers that are in scope."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        parameters = kernel.parameters if kernel is not None else ()
        self._pointers = {pointer.name: ARGUMENT_BYTES for pointer in parameters}
        self._integers: dict[str, int] = {}

    def follow(self, statement: Statement) -> None:
        """Takes note of what `statement` defines; names of closed scopes may come again."""
        match statement:
            case Assign() | Write():
                return  # by far the most
            case Let():
                if isinstance(statement.value, Position):
                    self._integers[statement.name] = factor(statement.value.index, self._integers)
                else:
                    self._integers.pop(statement.name, None)
            case For(variable=name):
                self._integers.pop(name, None)
            case Allocate():
                self._pointers[statement.name] = max(statement.alignment, STORAGE_BYTES.get(statement.dtype, 1))
            case Point():
                self._pointers[statement.pointer.name] = self.of(statement.base, statement.offset)

    def of(self, pointer: Pointer, offset: Index) -> int:
        """Bytes that surely divide the address ``pointer + offset``."""
        size = STORAGE_BYTES[pointer.dtype]
        return gcd(self._pointers.get(pointer.name, size), factor(offset, self._integers) * size)


def factor(index: Index, integers: Mapping[str, int] = {}) -> int:
    """The largest integer known to divide `index`, given factors of its variables; 0 for the index 0.

    >>> i, j = Index.axis("i"), Index.axis("j")
    >>> factor(i * 12 + (j % 4) * 8 + 4), factor((i * 32) // 4 + (j * 6) % 4), factor(i, {"i": 16})
    (4, 2, 16)
    """
    known = abs(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            own = integers.get(atom, 1)
        else:
            inner, by = factor(atom.index, integers), atom.divisor
            own = (inner // by if inner % by == 0 else 1) if isinstance(atom, FloorDiv) else gcd(inner, by)
        known = gcd(known, coefficient * own)
    return known
