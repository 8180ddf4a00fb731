"""Dot products of the numbers in 32-bit words: what instructions compute, and how C spells them.

Each 32-bit lane of both operands holds four bytes or two numbers of 16 bits; to each lane of a sum their products are
added, of integers around the ends of int32.  Vectors of x86 take unsigned bytes and signed ones (Intel's instruction
set reference, VPDPBUSD, of AVX512-VNNI and AVX-VNNI), in two instructions signed numbers of 16 bits (VPMADDWD and
VPADDD, of SSE2, AVX2 and AVX512-BW), and bfloat16 with sums in float32 (VDPBF16PS, of AVX512-BF16: each product is
added by a multiply-add that rounds to the nearest; denormal numbers count as zeros, and are made zeros); AMD's GPUs
two factors of one kind (LLVM's AMDGPU usage guide, dot1-insts and dot7-insts) or float16 with sums in float32
(dot10-insts, V_DOT2_F32_F16), NVIDIA's any two of bytes (PTX ISA, dp4a).  Where the compiler's target has no such
instruction, the same text computes it with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rollergen.hal.dtypes import DOTS, DTYPES, in_a_word

_MIXED, _SIGNED, _UNSIGNED, _PAIRS, _BFLOAT16, _FLOAT16 = DOTS
PAIRS = {
    "vpdpbusd": frozenset({_MIXED}), "vpmaddwd": frozenset({_PAIRS}), "vdpbf16ps": frozenset({_BFLOAT16}),
    "dot4": frozenset({_SIGNED, _UNSIGNED}), "dp4a": frozenset({_MIXED, _SIGNED, _UNSIGNED}),
    "dot2": frozenset({_FLOAT16}),
}  # fmt: skip
"""Dtypes of the numbers that an instruction multiplies, by the name that specs give it."""
SUMMED = {dtype: in_a_word(dtype) for pair in DOTS for dtype in pair}
"""Products that each lane adds up, by the dtype of the numbers in words."""


def pairs_of(name: str, dtype: str) -> frozenset[tuple[str, str]]:
    """What the instruction of a spec multiplies; one of another name does what that of x86 does."""
    return PAIRS.get(name) or PAIRS[next((x for x, one in OF_X86.items() if one.dtype == dtype), "vpdpbusd")]


class OfX86(NamedTuple):
    """A dot product that vectors of x86 may have.

    ``op``: one of `DOTS`. ``dtype``: what specs call the numbers that it multiplies. ``instructions``: of one vector.
    ``latency_clocks``: from sum to sum (uops.info: of VPDPBUSD 5 on Intel's and 4 on AMD's processors since 2019; pairs
    are multiplied before, and their sum waits for the addition only; of VDPBF16PS 6 on both)."""

    op: str
    dtype: str
    instructions: int
    latency_clocks: float


OF_X86 = {
    "vpdpbusd": OfX86("dot", "int8", 1, 5.0), "vpmaddwd": OfX86("dot_pairs", "int16", 2, 1.0),
    "vdpbf16ps": OfX86("dot_bfloat16", "bfloat16", 1, 6.0),
}  # fmt: skip
"""By the name that specs give the instruction."""

_SINGLE = "defined(__AVX512VNNI__)"
_VNNI = {16: _SINGLE, **dict.fromkeys((8, 4), f"({_SINGLE} && defined(__AVX512VL__)) || defined(__AVXVNNI__)")}
_PAIRED = "defined(__AVX512BF16__)"
_GUARDS = {
    "dot": _VNNI,
    "dot_pairs": {16: "defined(__AVX512BW__)", 8: "defined(__AVX2__)", 4: "defined(__SSE2__)"},
    "dot_bfloat16": {16: _PAIRED, **dict.fromkeys((8, 4), f"{_PAIRED} && defined(__AVX512VL__)")},
}
"""By lanes: where there is an instruction for as many."""
AMD_WITH_DOTS = ("gfx906", "gfx908", "gfx90a", "gfx942")
"""Architectures whose instructions for dot products have words here."""
_GFX9 = " || ".join(f"defined(__{one}__)" for one in AMD_WITH_DOTS)
_TEXT = """PREFIXINT NAME(INT sum, INT a, INT b)
{
#if GUARD
    return CALL;
#else
    UINT total = as_UINT(sum);
    for (int bits = 0; bits < 32; bits += BITS) {
        total += as_UINT(LEFT)*as_UINT(RIGHT);
    }
    return as_INT(total);
#endif
}"""
_TEXT_OF_BFLOAT16 = """PREFIXSUM NAME(SUM sum, INT a, INT b)
{
#if GUARD && __clang_major__ < 16
    return CALL;
#elif GUARD
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    sum = fma(as_SUM(a & (int)0xffff0000), as_SUM(b & (int)0xffff0000), sum);
    return fma(as_SUM(a << 16), as_SUM(b << 16), sum);
#endif
}"""
"""float32 holds a bfloat16 with 16 bits more.  Since version 16 clang's builtin takes vectors of a type that OpenCL C
lacks."""
_TEXT_OF_FLOAT16 = """#if GUARD
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
PREFIXSUM NAME(SUM sum, INT a, INT b)
{
#if GUARD
    return CALL;
#else
    const half *const left = (const half *)&a, *const right = (const half *)&b;
    sum = fma(vload_half(0, left), vload_half(0, right), sum);
    return fma(vload_half(1, left), vload_half(1, right), sum);
#endif
}"""
"""Of scalars, as threads are that have the instruction."""
_TEXTS = {"dot_bfloat16": _TEXT_OF_BFLOAT16, "dot_float16": _TEXT_OF_FLOAT16}
_HALVES = "__builtin_astype({}, short __attribute__((ext_vector_type(COUNT))))"
"""Words as twice as many numbers of 16 bits; OpenCL C itself has no vector of 32."""
_CALLS = {
    "dot": "__builtin_ia32_vpdpbusdWIDTH(sum, a, b)",
    "dot_pairs": "as_INT(as_UINT(sum) + as_UINT("
    f"__builtin_ia32_pmaddwdWIDTH({_HALVES.format('a')}, {_HALVES.format('b')})))",
    "dot_bfloat16": "__builtin_ia32_dpbf16ps_WIDTH(sum, a, b)",
    "dot_float16": "__builtin_amdgcn_fdot2(as_half2(a), as_half2(b), sum, false)",
    "dot_signed": "__builtin_amdgcn_sdot4(a, b, sum, false)",
    "dot_unsigned": "as_int(__builtin_amdgcn_udot4(as_uint(a), as_uint(b), as_uint(sum), false))",
}


def opencl_function(op: str, lanes: int, prefix: str) -> tuple[str, str]:
    """The name of a function (sum, words, words) on vectors of so many lanes, and its text; ``op``: one of `DOTS`."""
    suffix = "" if lanes == 1 else str(lanes)
    name = f"{op}_product{suffix}"
    left, right = next(dtypes for dtypes, one in DOTS.items() if one == op)
    guards, floats = _GUARDS.get(op, {1: _GFX9}), DTYPES[left].kind == "float"
    words = {
        "PREFIX": prefix, "NAME": name, "CALL": _CALLS[op], "GUARD": guards.get(lanes, "0"),
        "WIDTH": str(32 * lanes), "BITS": str(32 // in_a_word(left)),
        "LEFT": "" if floats else _number(left, "a"), "RIGHT": "" if floats else _number(right, "b"),
        "SUM": f"{'float' if floats else 'int'}{suffix}",
        "UINT": f"uint{suffix}", "INT": f"int{suffix}", "COUNT": str(2 * lanes),
    }  # fmt: skip
    return name, filled(_TEXTS.get(op, _TEXT), words)


def _number(dtype: str, words: str) -> str:
    """The number that begins at ``bits`` of the words."""
    row = DTYPES[dtype]
    above = 32 - row.bits
    if row.signed:
        return f"(({words} << ({above} - bits)) >> {above})"
    return f"as_INT((as_UINT({words}) >> bits) & (UINT)({row.limits[1]}))"


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
    return name, filled(_CUDA, words)


def filled(text: str, words: Mapping[str, str]) -> str:
    """The text with each of the words replaced by its meaning, in their order."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
