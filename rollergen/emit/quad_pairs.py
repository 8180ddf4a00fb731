"""Volta's matrix instruction (``mma.sync.m8n8k4``) as small CUDA functions: four products of 8 x 8 x 4 at once, each by
two times four threads (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type")."""

from __future__ import annotations

from rollergen.emit.cuda_vectors import SCALARS
from rollergen.lower.matrix_ir import LoadMatrix, MultiplyMatrix

SHARE = """/* A thread has weights of two rows, two and two neighbouring keys of each: it keeps those of its own row,
   gets those that its neighbour has of it, then those that the other quad pair has. */
__device__ __forceinline__ void share_weights(const unsigned int (&own)[4], unsigned int (&weights)[2][4])
{
    const bool upper = threadIdx.x & 2;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned int kept = upper ? own[2*i + 1] : own[2*i];
        const unsigned int given = upper ? own[2*i] : own[2*i + 1];
        const unsigned int got = __shfl_xor_sync(0xffffffffu, given, 2);
        weights[0][2*i] = upper ? got : kept;
        weights[0][2*i + 1] = upper ? kept : got;
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) weights[1][i] = __shfl_xor_sync(0xffffffffu, weights[0][i], 8);
}
"""

_LOADED = {
    4: """__device__ __forceinline__ void load_piece(unsigned int (&words)[4], const {memory} *at)
{{
    const uint4 all = *(const uint4 *)at;
    words[0] = all.x; words[1] = all.y; words[2] = all.z; words[3] = all.w;
}}
""",
    2: """__device__ __forceinline__ void load_half_piece(unsigned int (&words)[2], const {memory} *at)
{{
    const uint2 all = *(const uint2 *)at;
    words[0] = all.x; words[1] = all.y;
}}
""",
}


def load(node: LoadMatrix) -> tuple[str, str]:
    """(name, definition): 16 bytes of a row along k, else 8."""
    count = 4 if node.along_k else 2
    name = "load_piece" if node.along_k else "load_half_piece"
    return name, _LOADED[count].format(memory=SCALARS[node.shape.dtype])


def multiply(node: MultiplyMatrix) -> tuple[str, str]:
    """(name, definition): four steps of k, each by two registers of either factor."""
    lies = "col" if node.b_along_k else "row"
    name = f"multiply_quad_pairs_{lies}"
    extents = (2, 4) if node.b_along_k else (4, 2)
    of_b = [f"b[{i}][{j}]" for i in range(extents[0]) for j in range(extents[1])]
    of_a = [f"a[{i}][{j}]" for i in range(2) for j in range(4)]
    cells = ", ".join(f'"+f"(c[{i >> 1 & 1}][{i >> 2 << 1 | i & 1}])' for i in range(8))
    lines = []
    for step in range(0, 8, 2):
        lines += [
            f'    asm volatile("mma.sync.aligned.m8n8k4.row.{lies}.f32.f16.f16.f32 "',
            '        "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"',
            f"        : {cells}",
            f'        : "r"({of_a[step]}), "r"({of_a[step + 1]}), "r"({of_b[step]}), "r"({of_b[step + 1]}));',
        ]
    head = (
        f"__device__ __forceinline__ void {name}(float (&c)[2][4], const unsigned int (&a)[2][4], "
        f"const unsigned int (&b)[{extents[0]}][{extents[1]}])"
    )
    return name, "\n".join(["#ifdef __CUDACC__", head, "{", *lines, "}", "#endif"])
