"""Dot products of bytes: what instructions compute, and how C spells them.

Each 32-bit lane of both operands holds four bytes; to each lane of a sum the four products are added, around the ends
of int32.  Vectors of x86 take unsigned bytes and signed ones (Intel's instruction set reference, VPDPBUSD, of
AVX512-VNNI and AVX-VNNI), AMD's GPUs two factors of one kind (LLVM's AMDGPU usage guide, dot1-insts and dot7-insts),
NVIDIA's any two (PTX ISA, dp4a).  Where the compiler's target has no such instruction, the same text computes it with
others.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.hal.dtypes import DOTS

NAME = "vpdpbusd"
"""What specs call the instruction of x86."""
_MIXED, _SIGNED, _UNSIGNED = DOTS
PAIRS = {NAME: frozenset({_MIXED}), "dot4": frozenset({_SIGNED, _UNSIGNED}), "dp4a": frozenset(DOTS)}
"""Dtypes of the bytes that an instruction multiplies, by the name that specs give it."""
BYTES = 4
"""Products that each lane adds up."""
LATENCY_CLOCKS = 5.0
"""Of Intel's and AMD's processors since 2019 (uops.info; 4 on Zen)."""

_SINGLE = "defined(__AVX512VNNI__)"
_GUARDS = {16: _SINGLE, **dict.fromkeys((8, 4), f"({_SINGLE} && defined(__AVX512VL__)) || defined(__AVXVNNI__)")}
"""By lanes: where there is an instruction for as many."""
_GFX9 = " || ".join(f"defined(__{one}__)" for one in ("gfx906", "gfx908", "gfx90a", "gfx942"))
_TEXT = """PREFIXINT NAME(INT sum, INT a, INT b)
{
#if GUARD
    return CALL;
#else
    UINT total = as_UINT(sum);
    for (int bits = 0; bits < 32; bits += 8) {
        total += as_UINT(LEFT)*as_UINT(RIGHT);
    }
    return as_INT(total);
#endif
}"""
_BYTE = {"uint8": "as_INT((as_UINT({0}) >> bits) & (UINT)(255))", "int8": "(({0} << (24 - bits)) >> 24)"}
_CALLS = {
    "dot": "__builtin_ia32_vpdpbusdWIDTH(sum, a, b)",
    "dot_signed": "__builtin_amdgcn_sdot4(a, b, sum, false)",
    "dot_unsigned": "as_int(__builtin_amdgcn_udot4(as_uint(a), as_uint(b), as_uint(sum), false))",
}


def opencl_function(op: str, lanes: int, prefix: str) -> tuple[str, str]:
    """The name of a function (sum, words, words) on vectors of so many lanes, and its text; ``op``: one of `DOTS`."""
    suffix = "" if lanes == 1 else str(lanes)
    name = f"{op}_product{suffix}"
    left, right = next(dtypes for dtypes, one in DOTS.items() if one == op)
    gfx9 = _GFX9 if lanes == 1 else "0"
    words = {
        "PREFIX": prefix, "NAME": name, "CALL": _CALLS[op],
        "GUARD": _GUARDS.get(lanes, "0") if op == "dot" else gfx9, "WIDTH": str(32 * lanes),
        "LEFT": _BYTE[left].format("a"), "RIGHT": _BYTE[right].format("b"),
        "UINT": f"uint{suffix}", "INT": f"int{suffix}",
    }  # fmt: skip
    return name, _replaced(_TEXT, words)


_CUDA = """PREFIXint NAME(const int sum, const int a, const int b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
    int total;
    asm("dp4a.LEFT.RIGHT %0, %1, %2, %3;" : "=r"(total) : "r"(a), "r"(b), "r"(sum));
    return total;
#else
    unsigned int total = (unsigned int)sum;
    for (int bits = 0; bits < 32; bits += 8) {
        total += (unsigned int)((A)(a >> bits)*(B)(b >> bits));
    }
    return (int)total;
#endif
}"""


def cuda_function(op: str, prefix: str) -> tuple[str, str]:
    """As `opencl_function`, of scalars."""
    name = f"{op}_product"
    pair = next(dtypes for dtypes, one in DOTS.items() if one == op)
    left, right = ({"int8": ("s32", "signed char"), "uint8": ("u32", "unsigned char")}[dtype] for dtype in pair)
    casts = {"(A)": f"({left[1]})", "(B)": f"({right[1]})"}
    words = {"PREFIX": prefix, "NAME": name, "LEFT": left[0], "RIGHT": right[0], **casts}
    return name, _replaced(_CUDA, words)


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
