"""Memory that a kernel's arrays take, from its IR.

Every array counts, also those whose lives do not overlap: compilers may or may not let them share a place.
"""

from __future__ import annotations

from math import prod

from rollergen.lower.expressions import BITS, STORAGE_BYTES
from rollergen.lower.ir import LOCAL, Allocate, Kernel


def array_bytes(kernel: Kernel) -> tuple[int, int]:
    """(private, local): bytes of the arrays of one thread, in registers or memory, and of those shared by a block."""
    private = local = 0
    for node in kernel.arrays:
        if node.scope == LOCAL:
            local += _bytes(node)
        else:
            private += _bytes(node)
    return private, local


def _bytes(node: Allocate) -> int:
    value = BITS[node.dtype] // 8
    element = value if node.scope == "register" else STORAGE_BYTES.get(node.dtype, value)
    return prod(node.shape) * node.lanes * element
