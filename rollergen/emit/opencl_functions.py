"""Functions that kernels in OpenCL C call.  Words in capitals are filled in: names, types, conditions."""

from __future__ import annotations

EVERY = """#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
PREFIXint every_of_KIND(KIND tests)
{
#if __has_builtin(__builtin_reduce_and)
    return __builtin_reduce_and(tests) != 0;
#else
    return LANE_BY_LANE;
#endif
}"""

HALVES_READ = """PREFIXfloatLANES NAME(SCOPEconst ushort *at)
{
    const ushortLANES held = *(SCOPEconst ANYWHERE *)at;
#ifdef __F16C__
    typedef __fp16 halves __attribute__((ext_vector_type(LANES)));
    return __builtin_convertvector(__builtin_astype(held, halves), floatLANES);
#else
    return vload_halfLANES(0, (const half *)&held);
#endif
}"""

HALVES_WRITTEN = """PREFIXvoid NAME(floatLANES value, SCOPEushort *at)
{
    ushortLANES held;
#ifdef __F16C__
    typedef __fp16 halves __attribute__((ext_vector_type(LANES)));
    held = __builtin_astype(__builtin_convertvector(value, halves), ushortLANES);
#else
    vstore_halfLANES(value, 0, (half *)&held);
#endif
    *(SCOPEANYWHERE *)at = held;
}"""

ADDED_FLOAT = """PREFIXvoid atomic_add_float(volatile global float *at, float value)
{
    volatile global uint *word = (volatile global uint *)at;
    uint seen = *word, now;
    while ((now = atomic_cmpxchg(word, seen, as_uint(as_float(seen) + value))) != seen) {
        seen = now;
    }
}"""

MASKED_STORE = """PREFIXvoid NAME(global SCALAR *at, VECTOR value, MASK mask)
{
#if GUARD
    __builtin_ia32_STORE_mask((TARGET *)(size_t)at, GIVEN, __builtin_ia32_cvtBITS2maskWIDTH(mask));
#else
    SCALAR lanes[LANES] __attribute__((aligned(64)));
    WORD written[LANES] __attribute__((aligned(64)));
    *(VECTOR *)lanes = value;
    *(MASK *)written = mask;
    for (int lane = 0; lane < LANES; ++lane) {
        if (written[lane]) {
            at[lane] = lanes[lane];
        }
    }
#endif
}"""

MASKED_LOAD = """PREFIXVECTOR NAME(global const SCALAR *at, VECTOR fill, MASK mask)
{
#if GUARD
    return __builtin_ia32_loadupKIND_mask((const TARGET *)(size_t)at, fill, __builtin_ia32_cvtBITS2maskWIDTH(mask));
#else
    SCALAR lanes[LANES] __attribute__((aligned(64)));
    WORD read[LANES] __attribute__((aligned(64)));
    *(VECTOR *)lanes = fill;
    *(MASK *)read = mask;
    for (int lane = 0; lane < LANES; ++lane) {
        if (read[lane]) {
            lanes[lane] = at[lane];
        }
    }
    return *(VECTOR *)lanes;
#endif
}"""

MASKED_HALVES_STORED = """PREFIXvoid NAME(global ushort *at, VECTOR value, MASK mask)
{
    ushort16 held;
    vstore_half16(value, 0, (half *)&held);
#if GUARD
    __builtin_ia32_storedquhi256_mask((short16 *)(size_t)at, as_short16(held), __builtin_ia32_cvtd2mask512(mask));
#else
    int written[16] __attribute__((aligned(64)));
    *(int16 *)written = mask;
    for (int lane = 0; lane < 16; ++lane) {
        if (written[lane]) {
            at[lane] = ((const ushort *)&held)[lane];
        }
    }
#endif
}"""

MASKED_HALVES_LOADED = """PREFIXVECTOR NAME(global const ushort *at, VECTOR fill, MASK mask)
{
    ushort16 held = 0;
#if GUARD
    const short16 bits = __builtin_ia32_loaddquhi256_mask((const short16 *)(size_t)at, (short16)(0),
                                                          __builtin_ia32_cvtd2mask512(mask));
    held = as_ushort16(bits);
#else
    int read[16] __attribute__((aligned(64)));
    *(int16 *)read = mask;
    for (int lane = 0; lane < 16; ++lane) {
        if (read[lane]) {
            ((ushort *)&held)[lane] = at[lane];
        }
    }
#endif
    const VECTOR value = vload_half16(0, (const half *)&held);
    return mask ? value : fill;
}"""


LANES_CHOSEN = """PREFIXfloatLANES NAME(floatLANES from, intLANES order)
{
#if GUARD
    return __builtin_ia32_permvarsfBITS(from, order);
#else
    float held[LANES] __attribute__((aligned(64)));
    int places[LANES] __attribute__((aligned(64)));
    *(floatLANES *)held = from;
    *(intLANES *)places = order;
    float chosen[LANES] __attribute__((aligned(64)));
    for (int lane = 0; lane < LANES; ++lane) {
        chosen[lane] = held[places[lane] & (LANES - 1)];
    }
    return *(floatLANES *)chosen;
#endif
}"""
"""Lane l is number ``order[l]`` of ``from``."""
