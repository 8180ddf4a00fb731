"""Dot products of bytes in the lanes of vectors: what the instruction computes, and how C spells it.

Each 32-bit lane of the first operand holds four unsigned bytes, of the second four signed ones; to each lane of a sum
the four products are added, around the ends of int32 (Intel's instruction set reference, VPDPBUSD, of AVX512-VNNI and
AVX-VNNI).  Where the compiler's target has no such instruction, the same text computes it with others.
"""

from __future__ import annotations

NAME = "vpdpbusd"
"""What specs call the instruction."""
BYTES = 4
"""Products that each lane adds up."""
LATENCY_CLOCKS = 5.0
"""Of Intel's and AMD's processors since 2019 (uops.info; 4 on Zen)."""

_SINGLE = "defined(__AVX512VNNI__)"
_GUARDS = {16: _SINGLE, **dict.fromkeys((8, 4), f"({_SINGLE} && defined(__AVX512VL__)) || defined(__AVXVNNI__)")}
"""By lanes: where there is an instruction for as many."""
_TEXT = """PREFIXINT NAME(INT sum, INT unsigned_bytes, INT signed_bytes)
{
#if GUARD
    return __builtin_ia32_vpdpbusdWIDTH(sum, unsigned_bytes, signed_bytes);
#else
    UINT total = as_UINT(sum);
    for (int bits = 0; bits < 32; bits += 8) {
        const INT left = as_INT((as_UINT(unsigned_bytes) >> bits) & (UINT)(255));
        total += as_UINT(left*((signed_bytes << (24 - bits)) >> 24));
    }
    return as_INT(total);
#endif
}"""


def opencl_function(lanes: int, prefix: str) -> tuple[str, str]:
    """The name of a function (sum, unsigned bytes, signed bytes) on vectors of so many lanes, and its text."""
    suffix = "" if lanes == 1 else str(lanes)
    name = f"dot_product{suffix}"
    words = {
        "PREFIX": prefix, "NAME": name, "UINT": f"uint{suffix}", "INT": f"int{suffix}",
        "GUARD": _GUARDS.get(lanes, "0"), "WIDTH": str(32 * lanes),
    }  # fmt: skip
    text = _TEXT
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return name, text
