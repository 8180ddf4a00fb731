"""Which architectures have an instruction that code is written for here.  A spec that is begun from another device may
carry over one that its own architecture lacks.

    >>> from rollergen.hal.load import load_device
    >>> lacks("sm_86", load_device("rtx4090").instruction("mma_e4m3"))
    True
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rollergen.hal.dot_products import AMD_WITH_DOTS
from rollergen.hal.dtypes import DTYPES, FLOAT8
from rollergen.hal.spec_parts import Instruction

WAVEFRONTS: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("float16", 16): ("gfx908", "gfx90a", "gfx942"),
    ("bfloat16", 8): ("gfx908",),
    ("bfloat16", 16): ("gfx90a", "gfx942"),
    ("float64", 4): ("gfx90a", "gfx942"),
    ("float32", 4): ("gfx908", "gfx90a", "gfx942"),
    ("int8", 16): ("gfx908", "gfx90a"),
    ("int8", 32): ("gfx942",),
}
"""Architectures by dtype and k of an MFMA with 16 x 16 results (LLVM's BuiltinsAMDGPU.def; clang 19 compiles these)."""

_ONE_CAPABILITY = {"quad_pairs": 70, "warpgroup": 90}
"""Layouts of one compute capability alone (PTX ISA, target notes of mma.sync.m8n8k4 and wgmma)."""
_FIRST_OPAQUE, _FIRST_OPAQUE_INT8, _FIRST_QUADS, _FIRST_SHORT_QUADS, _FIRST_FLOAT8, _FIRST_DP4A = 70, 72, 80, 75, 89, 61
"""Compute capabilities from which on there are wmma of float16, of int8, mma.sync of 16 x 8 results (and wmma of what
else), of float16 with k of 8, of float8, and dp4a (PTX ISA, target notes)."""


def lacks(arch: str, one: Instruction) -> bool:
    """Whether no card of `arch` has the matrix instruction or dot product, or no code is written for it here; False for
    what is neither, and where the architecture's name says nothing."""
    if not (one.is_matrix or one.is_dot_product):
        return False
    capability = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if capability is not None:
        return not _has(int(capability[1]), one)
    if not arch.startswith("gfx"):
        return False
    if one.is_dot_product:
        return arch not in AMD_WITH_DOTS
    return one.layout != "wavefront" or arch not in WAVEFRONTS.get((one.dtype, one.k), ())


def _has(capability: int, one: Instruction) -> bool:
    if one.is_dot_product:
        return one.dtype == "int8" and capability >= _FIRST_DP4A
    if one.layout in _ONE_CAPABILITY:
        return capability == _ONE_CAPABILITY[one.layout]
    half = one.dtype == "float16"
    if one.layout == "opaque":
        return capability >= (_FIRST_OPAQUE if half else _FIRST_OPAQUE_INT8 if one.dtype == "int8" else _FIRST_QUADS)
    short = half and one.k * DTYPES[one.dtype].bits == 128
    first = _FIRST_FLOAT8 if one.dtype in FLOAT8 else _FIRST_SHORT_QUADS if short else _FIRST_QUADS
    return one.layout == "quads" and capability >= first
