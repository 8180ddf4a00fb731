"""Identifiers: any text becomes a C name that means nothing else and is used once."""

from __future__ import annotations

import re
from functools import lru_cache

_C = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool
asm typeof true false NULL INFINITY NAN main defined"""
_OPENCL = """kernel global local constant private generic read_only write_only read_write uniform pipe half quad
complex imaginary uchar ushort uint ulong barrier cl_mem_fence_flags clk_profiling_info
select min max exp log sqrt rsqrt tanh erf floor pow fabs fma mad vec_step printf infinity nan j0 j1 y0 y1 jn yn"""
"""Keywords and types of OpenCL C 3.0 (sections 6.1.9 and 6.3; see `_PATTERN` for those with a number or ending in
``_t``), and functions that sources call."""
_CPLUSPLUS = """alignas alignof and and_eq bitand bitor catch class compl concept const_cast consteval constexpr
constinit co_await co_return co_yield decltype delete dynamic_cast explicit export friend mutable namespace new noexcept
not not_eq nullptr operator or or_eq protected public reinterpret_cast requires static_assert static_cast template this
thread_local throw try typeid typename using virtual xor xor_eq"""
"""Keywords of C++20 that are none of C."""
_CUDA = """threadIdx blockIdx blockDim gridDim warpSize dim3 clock clock64 malloc free memcpy memset assert std cuda
texture surface atomicAdd expf fabsf fmaxf exp2_approx max_nan min_nan end_copies wait_copies block_memory"""
"""Names of CUDA C++, and functions that sources call or define."""
_MATHS = """abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erfc erfcinv erfcx erfinv exp10
exp2 expm1 fdim fmax fmin fmod frexp hypot ilogb isfinite isinf isnan labs ldexp lgamma llabs llrint llround log10
log1p log2 logb lrint lround modf nearbyint nextafter norm normcdf powf remainder remquo rhypot rint round
scalbn signbit sin sincos sinh sinpi sqrtf tan tgamma trunc umax umin umul24 mul24"""
RESERVED = frozenset(" ".join((_C, _OPENCL, _CPLUSPLUS, _CUDA, _MATHS)).split()) - {"j0", "j1"}
"""Words that are not given out.  ``j0`` and ``j1`` are functions that no kernel here calls; a
variable may hide them."""
_MACROS = re.compile(
    r"(M|FP|FLT|DBL|HALF|U?CHAR|SCHAR|U?SHRT|U?INT|U?LONG|CL|CLK|CUDA|CUDART|EXT|OPENCL|cl|cles|nv)_\w+$"
    r"|(CLANG|IMG|LLVM|POCL)_\w+$|(MAXFLOAT|HUGE_VALF?|INTTYPE|linux|unix|i386)$"
)
"""Those of OpenCL C (sections 6.12 and 6.15 of its specification), of PoCL's and NVIDIA's headers and of compilers for
Linux: replaced before a compiler sees a name."""
_PATTERN = re.compile(
    r"(u?(char|short|int|long|longlong)|float|double|half|bool|quad)\d+(x\d+)?[ua]?$"
    r"|(get|as|convert|vload|vstore|atomic|memory_order|memory_scope|sub_group|make|load|store|multiply|spread|shuffle|half)_"
    r"|\w+_t$|divided_by\d+$|copy_async_\d+$"
    r"|\w+_[fi]\d+x\d+$"
)
"""Types by their families (vectors; what ends in _t: sizes, images, samplers, queues, events, characters), and
functions."""


@lru_cache(maxsize=256)
def identifier(text: str) -> str:
    """`text` as an ASCII C identifier that is no keyword, type or function of either language.

    >>> identifier("x*/y"), identifier("3d"), identifier("float"), identifier("")
    ('x__y', 'v3d', 'float_', 'v')
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if not name or not name[0].isalpha():
        name = "v" + name
    if name in RESERVED or _PATTERN.match(name) or _MACROS.match(name):
        name += "_"
    return name


class Names:
    """Gives each asker a name of its own.  Names of a closed scope may be given again.

    ``scopes``: the names of each open scope, outer before inner: whoever opens one adds an empty list, and releases
    what it takes away again.
    """

    def __init__(self) -> None:
        self.scopes: list[list[str]] = [[]]
        self._taken: set[str] = set()

    def release(self, closed: list[str]) -> None:
        """These names are free again."""
        self._taken.difference_update(closed)

    def fresh(self, wish: str, scope: int = -1) -> str:
        """`wish` made an identifier, with a number behind it if it is taken; it lives in `scope`."""
        base = name = identifier(wish)
        taken = self._taken
        if name in taken:
            count = 2
            while (name := f"{base}_{count}") in taken:
                count += 1
        taken.add(name)
        self.scopes[scope].append(name)
        return name
