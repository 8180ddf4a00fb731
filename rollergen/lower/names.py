"""Identifiers: any text becomes a C name that means nothing else and is used once."""

from __future__ import annotations

import re
from functools import lru_cache

_C = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool
asm typeof true false NULL INFINITY NAN main defined"""
_OPENCL = """kernel global local constant private generic read_only write_only read_write uniform pipe half quad
complex imaginary uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t barrier
cl_mem_fence_flags select min max exp log sqrt rsqrt tanh erf floor pow fabs fma mad vec_step
vload_half vstore_half as_type printf infinity nan j0 j1 y0 y1 jn yn"""
_CUDA = """class new delete this template typename namespace using operator virtual public protected friend try
catch throw nullptr auto constexpr decltype export mutable static_cast threadIdx blockIdx blockDim gridDim warpSize
alignas alignof noexcept and or not xor bitand bitor compl not_eq and_eq or_eq xor_eq wchar_t char16_t char32_t
dim3 clock clock64 malloc free memcpy memset assert std cuda
atomicAdd"""
_MATHS = """abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erfc erfcinv erfcx erfinv exp10
exp2 expm1 fdim fmax fmin fmod frexp hypot ilogb isfinite isinf isnan labs ldexp lgamma llabs llrint llround log10
log1p log2 logb lrint lround modf nearbyint nextafter norm normcdf pow powf remainder remquo rhypot rint round
scalbn signbit sin sincos sinh sinpi sqrtf tan tgamma trunc umax umin umul24 mul24"""
RESERVED = frozenset(" ".join((_C, _OPENCL, _CUDA, _MATHS)).split()) - {"j0", "j1"}
"""Words that are not given out.  ``j0`` and ``j1`` are functions that no kernel here calls; a
variable may hide them."""
_MACROS = re.compile(
    r"(M|FP|FLT|DBL|HALF|U?CHAR|SCHAR|U?SHRT|U?INT|U?LONG|CL|CLK|CUDA|CUDART|EXT|OPENCL|cl|cles|nv)_\w+$"
    r"|MAXFLOAT$|HUGE_VALF?$"
)
"""Those of OpenCL C (sections 6.12 and 6.15 of its specification), of PoCL's and NVIDIA's headers: replaced before
a compiler sees a name."""
_PATTERN = re.compile(
    r"(u?(char|short|int|long)|float|double|half|bool)\d+(x\d+)?[ua]?$"
    r"|(get|as|convert|vload|vstore|atomic|make|load|store|spread|shuffle|half)_"
    r"|\w+_f\d+x\d+$"
)


@lru_cache(maxsize=4096)
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
