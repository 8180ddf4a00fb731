"""Vectors of which chosen lanes are stored, or loaded, by one instruction."""

from __future__ import annotations

Vectors = frozenset[tuple[str, int]]
"""(dtype, lanes) of each."""
KEY = "masked_vectors"
"""What a target's dialect calls the bits of the widest vectors that its kernels mask."""
MASK_REGISTERS = 7
"""Masks that are kept at once: others have to be made again at each load or store."""
_FLOATS: Vectors = frozenset({("float32", 16), ("float16", 16)})
_STORED: Vectors = _FLOATS | {("int32", 16), ("int8", 16), ("uint8", 16)}
_LOADED: Vectors = _FLOATS | {("float32", 8), ("float64", 8), ("float64", 4)}
"""Of narrower vectors chosen lanes are loaded, but stored one by one: sums over 400 x 50 x 7 took .9 of the time."""
BITS: dict[str, tuple[Vectors, Vectors]] = {"": (frozenset(), frozenset()), "512": (_STORED, _LOADED)}
"""What is stored and what is loaded so (what else a loaded vector spans need not exist), by the dialect's text: none,
or AVX-512."""
