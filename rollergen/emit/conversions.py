"""Narrow elements as pairs of 16-bit floats, and arithmetic on pairs, as small CUDA functions.

A byte behind the bits of 1024 is a half of 1024 and as much as the byte (of bfloat16 four bits behind those of 128, of
float32 a byte behind those of 2^23): what is subtracted then is exact (Kim et al., "Who Says Elephants Can't Run",
2022).  The bits of a float8 in the upper byte of a half are the number itself of float8_e5m2; one place lower, behind
the sign, they are a 256th of that of float8_e4m3fn, whose exponents are biased by 7 for 15.  Arithmetic is of two
numbers at once, each rounded once; bfloat16's is of multiply-adds, which sm_80 has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rollergen.emit.cuda_vectors import FUNCTIONS, INLINE, SCALARS
from rollergen.expr.index import Index
from rollergen.hal.dtypes import FLOAT8
from rollergen.lower.expressions import Expr, Pointer
from rollergen.lower.matrix_ir import CombinePairs, LoadNarrow, LoadNeighbours, LoadPieces, OrderPieces, WidenNarrow

_NEIGHBOURS = {
    "a": """/* Four neighbours of a row and of the row 8 further on. */
__device__ __forceinline__ void load_neighbours_a(unsigned int (&fragment)[4], const {memory} *at, const int far)
{{
    const uint2 near = *(const uint2 *)at, away = *(const uint2 *)(at + far);
    fragment[0] = near.x; fragment[1] = away.x; fragment[2] = near.y; fragment[3] = away.y;
}}
""",
    "b": """/* Four neighbours of a column. */
__device__ __forceinline__ void load_neighbours_b(unsigned int (&fragment)[2], const {memory} *at, const int)
{{
    const uint2 near = *(const uint2 *)at;
    fragment[0] = near.x; fragment[1] = near.y;
}}
""",
}

_EIGHT = {
    "a": """/* Of eight neighbours of a row, and of the row 8 further on, two pairs, each of numbers 4 apart. */
__device__ __forceinline__ void load_neighbours_a_8(
    unsigned int (&fragment)[4], const int half, const {memory} *at, const int far)
{{
    const uint4 near = *(const uint4 *)at, away = *(const uint4 *)(at + far);
    fragment[0] = __byte_perm(half ? near.y : near.x, half ? near.w : near.z, 0x5410);
    fragment[1] = __byte_perm(half ? away.y : away.x, half ? away.w : away.z, 0x5410);
    fragment[2] = __byte_perm(half ? near.y : near.x, half ? near.w : near.z, 0x7632);
    fragment[3] = __byte_perm(half ? away.y : away.x, half ? away.w : away.z, 0x7632);
}}
""",
    "b": """/* Of eight neighbours of a column two pairs, each of numbers 4 apart. */
__device__ __forceinline__ void load_neighbours_b_8(
    unsigned int (&fragment)[2], const int half, const {memory} *at, const int)
{{
    const uint4 near = *(const uint4 *)at;
    fragment[0] = __byte_perm(half ? near.y : near.x, half ? near.w : near.z, 0x5410);
    fragment[1] = __byte_perm(half ? near.y : near.x, half ? near.w : near.z, 0x7632);
}}
""",
}

_LOAD_PIECES = """/* Two pieces of a row of a swizzled panel, and of the row 8 further on: those of neighbours
   differ in the last bit of their number. */
__device__ __forceinline__ void load_pieces(
    unsigned int (&pieces)[2][2][4], const int first, const {memory} *at, const int far)
{{
    #pragma unroll
    for (int row = 0; row < 2; ++row)
        #pragma unroll
        for (int piece = 0; piece < 2; ++piece) {{
            const uint4 words = *(const uint4 *)(at + row * far + (first ^ piece * 8));
            pieces[row][piece][0] = words.x; pieces[row][piece][1] = words.y;
            pieces[row][piece][2] = words.z; pieces[row][piece][3] = words.w;
        }}
}}
"""
_ORDER_PIECES = """/* Step s multiplies elements 2 s and 2 s + 1 of both pieces, the same of each side by side. */
__device__ __forceinline__ void order_pieces(unsigned int (&fragments)[4][4], const unsigned int (&pieces)[2][2][4])
{
    #pragma unroll
    for (int step = 0; step < 4; ++step)
        #pragma unroll
        for (int row = 0; row < 2; ++row) {
            fragments[step][row] = __byte_perm(pieces[row][0][step], pieces[row][1][step], 0x5410);
            fragments[step][2 + row] = __byte_perm(pieces[row][0][step], pieces[row][1][step], 0x7632);
        }
}
"""

_NARROW = {4: "unsigned int", 2: "unsigned short"}

_BYTES = """__device__ __forceinline__ void widen_{kind}_float16(unsigned int (&pairs)[2], const unsigned int word)
{{
    const unsigned int bytes = word{shift};
    pairs[0] = __byte_perm(bytes, 0x64646464u, 0x4140);
    pairs[1] = __byte_perm(bytes, 0x64646464u, 0x4342);
    sub_pairs_float16(pairs, {above});
}}
"""
_BYTES_SINGLE = """__device__ __forceinline__ void widen_{kind}_bfloat16(
    unsigned int (&pairs)[2], const unsigned int word)
{{
    const unsigned int bytes = word{shift};
    float values[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        values[i] = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7650 + i)) - {above}f;
    pairs[0] = pack_bfloat16(values[0], values[1]);
    pairs[1] = pack_bfloat16(values[2], values[3]);
}}
"""
_NIBBLES = """__device__ __forceinline__ void widen_{kind}_{dtype}(unsigned int (&pairs)[2], const unsigned int word)
{{
    const unsigned int apart = word | word << 12;
    pairs[0] = masked_xor(apart, 0x000f000fu, {above});
    pairs[1] = masked_xor(apart >> 8, 0x000f000fu, {above});
    sub_pairs_{dtype}(pairs, {above});
}}
"""
_EIGHT_NIBBLES = """/* {note} */
__device__ __forceinline__ void widen_{kind}_{dtype}_8(
    unsigned int (&pairs)[2], const unsigned int word, const int half)
{{
    const unsigned int low = word >> half * 8;
    pairs[0] = masked_xor(low, 0x000f000fu, {above});
    pairs[1] = masked_xor(low{shift}, {mask}, {second});
    {sub}
}}
"""
_SIXTEENTH = "The second pair is 16 times its numbers behind the bits of 1024: these and 64 when it is divided by 16."
_F16 = {"note": _SIXTEENTH, "dtype": "float16", "shift": "", "mask": "0x00f000f0u"}
_BF16 = {"note": "Bits of 128 leave room for seven.", "dtype": "bfloat16", "shift": " >> 4", "mask": "0x000f000fu"}
_WIDEN_EIGHT = {
    (kind, dtype): _EIGHT_NIBBLES.format(kind=kind, above=above, second=second, sub=sub, **of)
    for kind, dtype, above, second, sub, of in (
        ("int4", "float16", "0x64086408u", "0x64806480u", "sub_nibbles_half(pairs, 0x64086408u, 0xd480d480u);", _F16),
        ("uint4", "float16", "0x64006400u", "0x64006400u", "sub_nibbles_half(pairs, 0x64006400u, 0xd400d400u);", _F16),
        ("int4", "bfloat16", "0x43084308u", "0x43084308u", "sub_pairs_bfloat16(pairs, 0x43084308u);", _BF16),
        ("uint4", "bfloat16", "0x43004300u", "0x43004300u", "sub_pairs_bfloat16(pairs, 0x43004300u);", _BF16),
    )
}
"""Of a word of eight."""
_MASKED_XOR = """#ifdef __CUDACC__
/* (a & b) ^ c in one instruction: of two constants in the text the compiler makes two. */
__device__ __forceinline__ unsigned int masked_xor(
    const unsigned int a, const unsigned int b, const unsigned int c)
{
    unsigned int result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
#endif
"""
_SUB_NIBBLES = """#ifdef __CUDACC__
__device__ __forceinline__ void sub_nibbles_half(
    unsigned int (&pairs)[2], const unsigned int first, const unsigned int second)
{
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pairs[0]) : "r"(first));
    asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(pairs[1]) : "r"(0x2c002c00u), "r"(second));
}
#endif
"""
_FLOAT8 = """__device__ __forceinline__ void widen_{kind}_float16(unsigned int (&pairs)[2], const unsigned int word)
{{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{{ .reg .b16 low, high; mov.b32 {{low, high}}, %2; "
        "cvt.rn.f16x2.{ptx}x2 %0, low; cvt.rn.f16x2.{ptx}x2 %1, high; }}"
        : "=r"(pairs[0]), "=r"(pairs[1]) : "r"(word));
#else
    pairs[0] = __byte_perm(word, 0, 0x1404);
    pairs[1] = __byte_perm(word, 0, 0x3424);
{rest}#endif
}}
"""
_REST_OF_E4M3 = """    unsigned int nan[2];  /* bit 15 of each half that is NaN: all bits but the sign are set */
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        nan[i] = ((pairs[i] & 0x7f007f00u) + 0x01000100u) & 0x80008000u;
        pairs[i] = (pairs[i] & 0x80008000u) | (pairs[i] >> 1 & 0x3f803f80u);
    }
    mul_pairs_float16(pairs, 0x5c005c00u);
    #pragma unroll
    for (int i = 0; i < 2; ++i) pairs[i] |= nan[i] - (nan[i] >> 15);
"""
_FLOAT8_SINGLE = """__device__ __forceinline__ void widen_{kind}_bfloat16(
    unsigned int (&pairs)[2], const unsigned int word)
{{
    widen_{kind}_float16(pairs, word);
    pairs[0] = pair_in_bfloat16(pairs[0]);
    pairs[1] = pair_in_bfloat16(pairs[1]);
}}
"""
_PAIR_IN_BFLOAT16 = """#ifdef __CUDACC__
__device__ __forceinline__ unsigned int pair_in_bfloat16(const unsigned int pair)
{
    float low, high;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high) : "r"(pair));
    return pack_bfloat16(low, high);
}
#endif
"""
_WIDEN = {
    ("int8", "float16"): _BYTES.format(kind="int8", shift=" ^ 0x80808080u", above="0x64806480u"),
    ("uint8", "float16"): _BYTES.format(kind="uint8", shift="", above="0x64006400u"),
    ("int8", "bfloat16"): _BYTES_SINGLE.format(kind="int8", shift=" ^ 0x80808080u", above="8388736.0"),
    ("uint8", "bfloat16"): _BYTES_SINGLE.format(kind="uint8", shift="", above="8388608.0"),
    ("int4", "float16"): _NIBBLES.format(kind="int4", dtype="float16", above="0x64086408u"),
    ("uint4", "float16"): _NIBBLES.format(kind="uint4", dtype="float16", above="0x64006400u"),
    ("int4", "bfloat16"): _NIBBLES.format(kind="int4", dtype="bfloat16", above="0x43084308u"),
    ("uint4", "bfloat16"): _NIBBLES.format(kind="uint4", dtype="bfloat16", above="0x43004300u"),
    ("float8_e4m3fn", "float16"): _FLOAT8.format(kind="float8_e4m3fn", ptx="e4m3", rest=_REST_OF_E4M3),
    ("float8_e5m2", "float16"): _FLOAT8.format(kind="float8_e5m2", ptx="e5m2", rest=""),
    **{(kind, "bfloat16"): _FLOAT8_SINGLE.format(kind=kind) for kind in FLOAT8},
}  # fmt: skip
"""Signed numbers are first moved by half of their range, so that none is below 0."""

_ONE, _MINUS_ONE, _MINUS_ZERO = 0x3F803F80, 0xBF80BF80, 0x80008000
_ARITHMETIC = {
    ("add", "float16"): "add.rn.f16x2 %0, %0, %1;",
    ("sub", "float16"): "sub.rn.f16x2 %0, %0, %1;",
    ("sub_from", "float16"): "sub.rn.f16x2 %0, %1, %0;",
    ("mul", "float16"): "mul.rn.f16x2 %0, %0, %1;",
    ("add", "bfloat16"): f"{{ .reg .b32 one; mov.b32 one, {_ONE:#x}; fma.rn.bf16x2 %0, %0, one, %1; }}",
    ("sub", "bfloat16"): f"{{ .reg .b32 one; mov.b32 one, {_MINUS_ONE:#x}; fma.rn.bf16x2 %0, %1, one, %0; }}",
    ("sub_from", "bfloat16"): f"{{ .reg .b32 one; mov.b32 one, {_MINUS_ONE:#x}; fma.rn.bf16x2 %0, %0, one, %1; }}",
    ("mul", "bfloat16"): f"{{ .reg .b32 zero; mov.b32 zero, {_MINUS_ZERO:#x}; fma.rn.bf16x2 %0, %0, %1, zero; }}",
}  # fmt: skip


class Call(NamedTuple):
    """The function that a statement calls: its ``name``, by name the ``definitions`` of it and of those before it, what
    it is given: values, then a place in memory, and a number that follows."""

    name: str
    definitions: Mapping[str, str]
    operands: tuple[Expr, ...]
    place: tuple[Pointer, Index] | None = None
    number: int | None = None


STATEMENTS = (LoadNeighbours, LoadNarrow, WidenNarrow, CombinePairs, LoadPieces, OrderPieces)


def call(node: LoadNeighbours | LoadNarrow | WidenNarrow | CombinePairs | LoadPieces | OrderPieces) -> Call:
    match node:
        case LoadPieces():
            text = _LOAD_PIECES.format(memory=SCALARS[node.pointer.dtype])
            place = node.pointer, node.offset
            return Call("load_pieces", {"load_pieces": text}, (node.pieces, node.first), place, node.far)
        case OrderPieces():
            return Call("order_pieces", {"order_pieces": _ORDER_PIECES}, (node.fragments, node.pieces))
        case LoadNeighbours():
            name, memory = f"load_neighbours_{node.operand}", SCALARS[node.pointer.dtype]
            texts, half = (_NEIGHBOURS, ()) if node.half is None else (_EIGHT, (node.half,))
            name += "_8" if half else ""
            text = texts[node.operand].format(memory=memory)
            return Call(name, {name: text}, (node.fragment, *half), (node.pointer, node.offset), node.far)
        case LoadNarrow():
            name = f"load_narrow_{node.bytes}"
            text = f"{INLINE}void {name}(unsigned int &word, const void *at)\n{{\n    word = *(const "
            text += f"{_NARROW[node.bytes]} *)at;\n}}\n"
            return Call(name, {name: text}, (node.word,), (node.pointer, node.offset))
        case WidenNarrow(half=half):
            eight = half is not None
            name = f"widen_{node.kind}_{node.dtype}" + ("_8" if eight else "")
            text = (_WIDEN_EIGHT if eight else _WIDEN)[node.kind, node.dtype]
            return Call(name, _with_those_before(name, text), (node.pairs, node.word, *((half,) if eight else ())))
        case CombinePairs():
            turned = node.first and node.operation == "sub"
            name, text = _arithmetic("sub_from" if turned else node.operation, node.dtype)
            return Call(name, {name: text}, (node.pairs, node.column))


def _with_those_before(name: str, text: str) -> dict[str, str]:
    """By name a function and those that it calls, each behind those that it calls itself."""
    found: dict[str, str] = {}
    for one, definition in _HELPERS.items():
        found |= _with_those_before(one, definition) if f"{one}(" in text and one != name else {}
    return found | {name: text}


def _arithmetic(operation: str, dtype: str) -> tuple[str, str]:
    """(name, definition) of what computes with both pairs and what stands in both halves of a register."""
    name = f"{operation}_pairs_{dtype}"
    head = f"{INLINE}void {name}(unsigned int (&pairs)[2], const unsigned int other)"
    lines = [f'asm("{_ARITHMETIC[operation, dtype]}" : "+r"(pairs[{i}]) : "r"(other));' for i in (0, 1)]
    body = "\n".join("    " + line for line in lines)
    return name, f"#ifdef __CUDACC__\n{head}\n{{\n{body}\n}}\n#endif\n"


_HELPERS = {
    "pack_bfloat16": FUNCTIONS["pack_bfloat16"],
    "pair_in_bfloat16": _PAIR_IN_BFLOAT16,
    "masked_xor": _MASKED_XOR,
    "sub_nibbles_half": _SUB_NIBBLES,
    **dict(_arithmetic(*of) for of in _ARITHMETIC if of[0] != "sub_from"),
    **{f"widen_{kind}_{dtype}": text for (kind, dtype), text in _WIDEN.items() if kind in FLOAT8},
}
"""Functions that these functions call."""
