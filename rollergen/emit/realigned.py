"""Vectors that begin anywhere in memory, as small CUDA functions: what reads the pieces of 16 bytes that one lies in,
and what puts it together of these."""

from __future__ import annotations

from rollergen.emit.conversions import Call
from rollergen.emit.cuda_vectors import SCALARS
from rollergen.lower.expressions import Number
from rollergen.lower.matrix_ir import LoadAround, StoreAround

_LOAD = """/* The two pieces of 16 bytes in which eight numbers lie that begin `behind` others. */
__device__ __forceinline__ void load_around(unsigned int (&words)[8], const int behind, const {memory} *at)
{{
    const uint4 own = ((const uint4 *)at)[0], next = ((const uint4 *)at)[behind > 0];
    words[0] = own.x; words[1] = own.y; words[2] = own.z; words[3] = own.w;
    words[4] = next.x; words[5] = next.y; words[6] = next.z; words[7] = next.w;
}}
"""
_LOAD_TESTED = """/* The same, of which so many are wanted: no others are read; one by one if pieces may leave the
   array. */
__device__ __forceinline__ void load_around_tested(
    unsigned int (&words)[8], const int behind, const int wanted, const bool inside, const {memory} *at)
{{
    #pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = 0;
    if (inside && wanted > 0) {{
        load_around(words, behind + (wanted < 8 ? wanted : 8) > 8, at);
    }} else {{
        #pragma unroll 1
        for (int i = 15; i >= 0; --i) {{
            const unsigned int one = i >= behind && i < behind + wanted && i < behind + 8 ? (unsigned short)at[i] : 0;
            #pragma unroll
            for (int word = 7; word > 0; --word) words[word] = __funnelshift_r(words[word - 1], words[word], 16);
            words[0] = words[0] << 16 | one;
        }}
    }}
}}
"""
_REALIGN = """/* The eight numbers that begin `behind` others in two pieces: two words further on, then one,
   then half a one. */
__device__ __forceinline__ void realign(unsigned int (&own)[4], const unsigned int (&words)[8], const int behind)
{
    unsigned int two[6], one[5];
    #pragma unroll
    for (int i = 0; i < 6; ++i) two[i] = behind & 4 ? words[i + 2] : words[i];
    #pragma unroll
    for (int i = 0; i < 5; ++i) one[i] = behind & 2 ? two[i + 1] : two[i];
    #pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = __funnelshift_r(one[i], one[i + 1], (behind & 1) * 16);
}
"""
_STORE = """__device__ __forceinline__ void store_around(
    const unsigned int (&words)[8], const int behind, {memory} *at)
{{
    unsigned int own[4];
    realign(own, words, behind);
    *(uint4 *)at = make_uint4(own[0], own[1], own[2], own[3]);
}}
"""
_STORE_TESTED = """/* Zeros instead of those that were not wanted. */
__device__ __forceinline__ void store_around_tested(
    const unsigned int (&words)[8], const int behind, const int wanted, {memory} *at)
{{
    unsigned int own[4];
    realign(own, words, behind);
    #pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = wanted < 2 * i + 1 ? 0 : wanted < 2 * i + 2 ? own[i] & 0xffff : own[i];
    *(uint4 *)at = make_uint4(own[0], own[1], own[2], own[3]);
}}
"""

STATEMENTS = (LoadAround, StoreAround)


def call(node: LoadAround | StoreAround) -> Call:
    """The call of a function of this module, and the functions that it needs."""
    memory, place = SCALARS[node.pointer.dtype], (node.pointer, node.offset)
    if isinstance(node, StoreAround):
        texts = {"realign": _REALIGN}
        if node.wanted is None:
            texts["store_around"] = _STORE.format(memory=memory)
            return Call("store_around", texts, (node.words, node.behind), place)
        texts["store_around_tested"] = _STORE_TESTED.format(memory=memory)
        return Call("store_around_tested", texts, (node.words, node.behind, node.wanted), place)
    texts = {"load_around": _LOAD.format(memory=memory)}
    if node.wanted is None:
        return Call("load_around", texts, (node.words, node.behind), place)
    texts["load_around_tested"] = _LOAD_TESTED.format(memory=memory)
    inside = node.inside or Number(True, "bool")
    return Call("load_around_tested", texts, (node.words, node.behind, node.wanted, inside), place)
