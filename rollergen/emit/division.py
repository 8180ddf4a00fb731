"""Division of vectors of 512 bits by a number, by its reciprocal: processors divide as many elements in up to 16 clocks
(Intel's cores from Skylake on; 5 on a Zen 5), which nothing hides where a result is a few sums and one division.

The quotient is corrected by what it leaves, ``a - b*q``, one multiply-add: exact quotients are exact, others are those
of a division but for denormal ones, which may err by one unit in the last place.  (Where nothing is left, or no
number, the quotient stands: zeros keep their sign, and infinities stay.)
"""

from __future__ import annotations

import numpy as np

WIDTH = 16
"""Lanes of one such vector."""

_WHOLE = """PREFIXfloat16 divided_by16(float16 a, float b, float inverse)
{
    const float16 near = a*(float16)(inverse);
    const float16 left = a - near*(float16)(b);
    return ((left < (float16)(0.0f)) | (left > (float16)(0.0f))) ? near + left*(float16)(inverse) : near;
}"""

_IN_PARTS = """PREFIXfloatLANES divided_byLANES(floatLANES a, float b, float inverse)
{
    floatLANES value;
    #pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        ((float16 *)&value)[part] = divided_by16(((const float16 *)&a)[part], b, inverse);
    }
    return value;
}"""


def functions(lanes: int, prefix: str) -> dict[str, str]:
    """The functions of vector, number and its reciprocal, by name, the one of so many lanes last."""
    found = {"divided_by16": _WHOLE.replace("PREFIX", prefix)}
    if lanes > WIDTH:
        text = _IN_PARTS.replace("PREFIX", prefix).replace("LANES", str(lanes))
        found[f"divided_by{lanes}"] = text.replace("PARTS", str(lanes // WIDTH))
    return found


def reciprocal(number: float) -> float | None:
    """That of a float32 number to the nearest float32; None where it or what it leaves might under- or overflow."""
    return float(np.float32(1) / np.float32(number)) if 2.0**-60 < abs(number) < 2.0**60 else None
