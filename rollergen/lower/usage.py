"""Memory that a kernel's arrays take, from its IR.

Every array counts, also those whose lives do not overlap: compilers may or may not let them share a place.
"""

from __future__ import annotations

from math import prod

from rollergen.lower.ir import BITS, LOCAL, STORAGE_BYTES, Allocate, Kernel, walk


def private_bytes(kernel: Kernel) -> int:
    """Bytes of the arrays of one thread, in registers or memory."""
    return sum(_bytes(node) for node in _arrays(kernel) if node.scope != LOCAL)


def local_bytes(kernel: Kernel) -> int:
    """Bytes of the arrays shared by a block."""
    return sum(_bytes(node) for node in _arrays(kernel) if node.scope == LOCAL)


def _arrays(kernel: Kernel) -> list[Allocate]:
    return [node for node in walk(kernel.body) if isinstance(node, Allocate) and node.shape]


def _bytes(node: Allocate) -> int:
    value = BITS[node.dtype] // 8
    element = value if node.scope == "register" else STORAGE_BYTES.get(node.dtype, value)
    return prod(node.shape) * node.lanes * element
