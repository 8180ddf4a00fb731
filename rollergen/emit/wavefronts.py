"""Matrix instructions of AMD's wavefronts as OpenCL C functions around clang's builtins.

A fragment is 64 bits of a work-item: its neighbours along k, of 32 bits the lower half (LLVM's BuiltinsAMDGPU.def).
Where the compiler's target has no such instruction, a fragment tells where its tile begins and how far rows are apart,
so that each work-item computes its own results from local memory: what waits for the others is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from rollergen.emit.c_expressions import SCALARS
from rollergen.hal.dot_products import filled
from rollergen.hal.matrix_units import WAVEFRONTS
from rollergen.lower.matrix_ir import LoadMatrix, MultiplyMatrix


class Builtin(NamedTuple):
    """``name``; ``factor``: a fragment as it takes it; ``number``: of a tile's row in local memory, ``bits``: the type
    of so many neighbours."""

    name: str
    factor: str
    number: str
    bits: str = "long"


BUILTINS = {
    ("float16", 16): Builtin("f32_16x16x16f16", "as_half4({})", "vload_half({}, {})"),
    ("bfloat16", 8): Builtin("f32_16x16x8bf16", "as_short2((int){})", "as_float((uint){1}[{0}] << 16)", "int"),
    ("bfloat16", 16): Builtin("f32_16x16x16bf16_1k", "as_short4({})", "as_float((uint){1}[{0}] << 16)"),
    ("float64", 4): Builtin("f64_16x16x4f64", "as_double({})", "{1}[{0}]"),
    ("float32", 4): Builtin("f32_16x16x4f32", "as_float((int){})", "{1}[{0}]", "int"),
    ("int8", 16): Builtin("i32_16x16x16i8", "(int){}", "{1}[{0}]", "int"),
    ("int8", 32): Builtin("i32_16x16x32_i8", "{}", "{1}[{0}]"),
}
"""By the dtype of factors and k."""

_LOAD = """PREFIXlong NAME(local const STORED *at, const int pitch)
{
#if GUARD
    return *(local const BITS *)at;
#else
    const int lane = get_local_id(0) % 64;
    return (long)(size_t)(at - lane % 16 * pitch - lane / 16 * NEIGHBOURS) | (long)pitch << 48;
#endif
}"""
_MULTIPLY = """#if GUARD
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
PREFIXvoid NAME(SUMS *sums, const long a, const long b)
{
#if GUARD
    const SUMS4 made = __builtin_amdgcn_mfma_CALL((SUMS4)(sums[0], sums[1], sums[2], sums[3]), 0, 0, 0);
    sums[0] = made.x; sums[1] = made.y; sums[2] = made.z; sums[3] = made.w;
#else
    const int lane = get_local_id(0) % 64;
    const long place = ((long)1 << 48) - 1;
    local const STORED *row = (local const STORED *)(size_t)(a & place) + lane / 16 * FIRST * (int)(a >> 48);
    local const STORED *const column = (local const STORED *)(size_t)(b & place) + lane % 16 * (int)(b >> 48);
    for (int i = 0; i < 4; i++, row += APART * (int)(a >> 48))
        for (int step = 0; step < STEPS; step++)
            sums[i] += LEFT * RIGHT;
#endif
}"""


def helper(statement: LoadMatrix | MultiplyMatrix, prefix: str) -> tuple[str, str]:
    """(name, definition) of the function that a statement calls."""
    shape = statement.shape
    builtin = BUILTINS[shape.dtype, shape.k]
    guard = " || ".join(f"defined(__{one}__)" for one in WAVEFRONTS[shape.dtype, shape.k])
    loads = isinstance(statement, LoadMatrix)
    name = f"{'load' if loads else 'multiply'}_{shape.m}x{shape.n}x{shape.k}_{shape.dtype}"
    words = {"PREFIX": prefix, "NAME": name, "GUARD": guard, "STORED": SCALARS[shape.dtype], "BITS": builtin.bits}
    if loads:
        return name, filled(_LOAD, {**words, "NEIGHBOURS": str(shape.k // 4)})
    call = f"{builtin.name}({builtin.factor.format('a')}, {builtin.factor.format('b')}, "
    left, right = (builtin.number.format("step", at) for at in ("row", "column"))
    sums = SCALARS[shape.accumulator_dtype]
    first, apart = ("1", "4") if shape.dtype == "float64" else ("4", "1")
    words |= {"FIRST": first, "APART": apart}
    words |= {"CALL(": call, "SUMS": sums, "STEPS": str(shape.k), "LEFT": left, "RIGHT": right}
    return name, filled(_MULTIPLY, words)
