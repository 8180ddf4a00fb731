"""What is known of an address: the largest power of two, in bytes, that surely divides it.

CUDA faults on a vector access whose address is no multiple of its size, and has no unaligned vectors to fall back
on, so the printer asks for a proof.  `Alignment` follows a kernel statement by statement, as it is printed.
"""

from __future__ import annotations

from math import gcd

from rollergen.expr.index import FloorDiv, Index
from rollergen.lower.expressions import STORAGE_BYTES, Pointer
from rollergen.lower.ir import Allocate, Kernel, Point

ARGUMENT_BYTES = 16
"""Every array passed to a kernel starts at a multiple of this (CUDA's allocations: of 256)."""


class Alignment:
    """Known factors of the pointers that are in scope.

    They are found when they are asked for, as few are: what a name in scope was defined by is then in scope too.
    """

    def __init__(self, kernel: Kernel | None = None) -> None:
        parameters = kernel.parameters if kernel is not None else ()
        self._pointers: dict[str, int | Point] = {pointer.name: ARGUMENT_BYTES for pointer in parameters}

    def allocate(self, node: Allocate) -> None:
        self._pointers[node.name] = max(node.alignment, STORAGE_BYTES.get(node.dtype, 1))

    def point(self, node: Point) -> None:
        self._pointers[node.pointer.name] = node

    def of(self, pointer: Pointer, offset: Index, integers: dict[str, int | Index]) -> int:
        """Bytes that surely divide the address ``pointer + offset``; ``integers``: as `factor` has them, of those in
        scope."""
        size = STORAGE_BYTES[pointer.dtype]
        known = self._pointers.get(pointer.name, size)
        if isinstance(known, Point):
            known = self._pointers[pointer.name] = self.of(known.base, known.offset, integers)
        return gcd(known, factor(offset, integers) * size)


def factor(index: Index, integers: dict[str, int | Index] | None = None) -> int:
    """The largest integer known to divide `index`, given factors of its variables or what these stand for (then their
    factors take its place); 0 for the index 0.

    >>> i, j = Index.axis("i"), Index.axis("j")
    >>> factor(i * 12 + (j % 4) * 8 + 4), factor((i * 32) // 4 + (j * 6) % 4), factor(i, {"i": 16})
    (4, 2, 16)
    """
    integers = {} if integers is None else integers
    known = abs(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            given = integers.get(atom, 1)
            if isinstance(given, Index):
                given = integers[atom] = factor(given, integers)
            own = given
        else:
            inner, by = factor(atom.index, integers), atom.divisor
            own = (inner // by if inner % by == 0 else 1) if isinstance(atom, FloorDiv) else gcd(inner, by)
        known = gcd(known, coefficient * own)
    return known
