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


_CHOSEN = """PREFIXfloatLANES NAME(floatLANES from, intLANES order)
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

_FRACTION = """PREFIXfloatLANES NAME(floatLANES x)
{
#if GUARD
    return __builtin_ia32_reducepsBITS_mask(x, 9, (floatLANES)(0.0f), -1, 4);
#else
    return x == (floatLANES)(-INFINITY) ? (floatLANES)(0.0f) : x - floor(x);
#endif
}"""
"""What x is above the next whole number below (9: rounding down, without exceptions); of -infinity 0."""
_SCALED = """PREFIXfloatLANES NAME(floatLANES value, floatLANES power)
{
#if GUARD
    return __builtin_ia32_scalefpsBITS_mask(value, power, (floatLANES)(0.0f), -1, 4);
#else
    return ldexp(value, convert_intLANES_sat_rtn(power));
#endif
}"""
"""``value`` times two to the next whole number below ``power`` (4: rounding as usual)."""
_TWO_POWERS = {16: "defined(__AVX512F__) && defined(__AVX512DQ__)"}
OF_LANES = {
    "lanes_chosen": (_CHOSEN, {16: "defined(__AVX512F__)", 8: "defined(__AVX2__)"}),
    "lanes_fraction": (_FRACTION, _TWO_POWERS), "lanes_scaled": (_SCALED, _TWO_POWERS),
}  # fmt: skip
"""By what the lowering calls them: functions of float32 vectors, and where, by lanes, one instruction computes them."""
