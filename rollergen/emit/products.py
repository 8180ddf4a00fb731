"""Products that run beside the program in CUDA (wgmma, of sm_90a): the functions that a kernel brings, by inline PTX.

Factors lie in the block's memory, in panels of 128-byte rows that are swizzled over 8 rows; a descriptor says where
(PTX ISA, "Asynchronous warpgroup level matrix instructions").  Their names are defined for NVIDIA's compilers only: a
host that runs the text brings its own.
"""

from __future__ import annotations

from rollergen.emit.cuda_vectors import SCALARS
from rollergen.hal.dtypes import DTYPES
from rollergen.lower.expressions import Element
from rollergen.lower.matrix_ir import MultiplyLocal, Operand

GROUPS = """#ifdef __CUDACC__
__device__ __forceinline__ void show_to_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void begin_products()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

template <int PENDING> __device__ __forceinline__ void end_products()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

/* Without the fence ptxas moves conversions of the sums before the wait, and then runs products one by one. */
template <int COUNT> __device__ __forceinline__ void wait_products(float *sums)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __threadfence_block();
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}

template <int COUNT> __device__ __forceinline__ void wait_products(int *sums)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __threadfence_block();
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(sums[i]) :: "memory");
}

/* 8 rows are 1024 bytes, panels PANEL bytes apart; both and the address in units of 16 bytes.  The offset, in elements,
   is added to the descriptor of the buffer: other steps and stages are then one addition away. */
template <int PANEL, class T>
__device__ __forceinline__ unsigned long long operand_at(const T *buffer, const int offset)
{
    const unsigned int from = (unsigned int)__cvta_generic_to_shared(buffer);
    const unsigned int low = ((PANEL >> 4) << 16 | (from & 0x3ffff) >> 4) + offset * (int)sizeof(T) / 16;
    return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | low;
}
#endif
"""

FACTORS = """#ifdef __CUDACC__
__device__ __forceinline__ void wait_factors()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
#endif
"""


def multiply(node: MultiplyLocal) -> tuple[str, str]:
    """(name, definition) of the function that adds one product to a thread's sums."""
    shape = node.shape
    size, tiles = f"m{shape.m}n{shape.n}k{shape.k}", shape.n // 8
    lie = "".join(_lies(one, other) for one, other in ((node.a, "m"), (node.b, "n")))
    name = f"multiply_{lie}_{size}_{shape.dtype}"
    scalar, sums = SCALARS[shape.accumulator_dtype], DTYPES[shape.accumulator_dtype].ptx
    factors = DTYPES[shape.dtype].ptx
    count, constraint = shape.m * shape.n // 128, "f" if scalar == "float" else "r"
    slots = [", ".join(f"%{i}" for i in range(at, min(at + 16, count))) for at in range(0, count, 16)]
    cells = [f"c[{i}][{j}][0]), \"+{constraint}\"(c[{i}][{j}][1]" for i in range(tiles) for j in range(2)]
    bound = [", ".join(f'"+{constraint}"({cell})' for cell in cells[at : at + 2]) for at in range(0, len(cells), 2)]
    bound = [f"        {' ' if at else ':'} {one}{',' if at + 1 < len(bound) else ''}" for at, one in enumerate(bound)]
    signs = "" if scalar == "int" else ", 1, 1"
    wide = [one for one in (node.a, node.b) if isinstance(one, Operand)]
    turned = "".join(f", {int(not one.along_k)}" for one in wide) if DTYPES[shape.dtype].bits == 16 else ""
    if isinstance(node.a, Operand):
        a_type, a_bound, factors_at = "unsigned long long a", '"l"(a)', f"%{count}, %{count + 1}"
    else:
        a_type, a_bound = "unsigned int (&a)[4]", ", ".join(f'"r"(a[{i}])' for i in range(4))
        factors_at = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}, %{count + 4}"
    lines = [
        f"__device__ __forceinline__ void {name}(",
        f"    {scalar} (&c)[{tiles}][2][2], const {a_type}, const unsigned long long b)",
        "{",
        '    asm volatile("{ .reg .pred adds; setp.ne.b32 adds, 1, 0; "',
        f'        "wgmma.mma_async.sync.aligned.{size}.{sums}.{factors}.{factors} {{"',
        *(f'        "{slot}{"," if at + 1 < len(slots) else ""} "' for at, slot in enumerate(slots)),
        f'        "}}, {factors_at}, adds{signs}{turned}; }}"',
        *bound,
        f'        : {a_bound}, "l"(b) : "memory");',
        "}",
    ]
    text = "\n".join(lines)
    return name, f"#ifdef __CUDACC__\n{text}\n#endif"


def _lies(factor: Operand | Element, across: str) -> str:
    """How a factor lies: in registers, along k in local memory, or across it."""
    if not isinstance(factor, Operand):
        return "r"
    return "k" if factor.along_k else across
