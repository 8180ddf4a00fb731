"""Kernel IR: how a kernel is written, with nothing left to decide: its statements (their values are
`lower.expressions`), and what surrounds them.  Plain frozen data.

Beside them: the names that kernels use (any text becomes a C name that means nothing else and is used once), and the
memory that a kernel's arrays take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property, lru_cache
from math import prod
from typing import Union

from rollergen.expr.index import Bounds, Index
from rollergen.hal.dataclass import dataclass
from rollergen.hal.tensor_maps import TensorMap
from rollergen.lower.box_ir import BoxStatement
from rollergen.lower.expressions import STORAGE_BYTES, Element, Expr, Name, Pointer
from rollergen.lower.masks import bits_of
from rollergen.lower.matrix_ir import Collective

GLOBAL, LOCAL, PRIVATE = "global", "local", "private"


@dataclass(frozen=True, slots=True)
class Allocate:
    """Registers or memory: ``shape`` elements of ``lanes`` values.  No shape: one register.

    ``register`` arrays are multi-dimensional and only used by `Element`, with indices that are
    constant once unrolled; ``private`` and ``local`` ones are flat and used by `Read`, `Write`.
    """

    name: str
    scope: str
    dtype: str
    shape: tuple[int, ...] = ()
    lanes: int = 1
    alignment: int = 0


@dataclass(frozen=True, slots=True)
class Let:
    """A constant of the enclosing block."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Point:
    """``pointer`` names the place ``base + offset``."""

    pointer: Pointer
    base: Pointer
    offset: Index


@dataclass(frozen=True, slots=True)
class Assign:
    """A register gets a new value."""

    target: Name | Element
    value: Expr


class Route(IntEnum):
    """How a value comes from global into local memory: through registers; past registers, and past the unit's cache
    where the access is as wide as the device allows; or past registers and through that cache."""

    REGISTERS = 0
    PAST_CACHE = 1
    THROUGH_CACHE = 2


@dataclass(frozen=True, slots=True)
class Write:
    """The value's lanes to ``pointer[offset]`` on.

    ``streaming``: past the caches; then the address is a multiple of the access' size.
    ``asynchronous``: the value is a `Read` from global memory, or a select of one and zeros, that arrives any time
    before a `Barrier` that waits for its group; until then the place holds nothing.  The `Route` says how.
    ``mask``: which lanes are written (a vector of -1 and 0 as wide as they are); the others' places are not touched.
    ``adds``: the value, a scalar, is added to what is there, as one access that no other comes between.
    """

    pointer: Pointer
    offset: Index
    value: Expr
    streaming: bool = False
    aligned: bool = False
    asynchronous: Route = Route.REGISTERS
    mask: Expr | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """``variable`` from ``start`` up to, without, ``stop``."""

    variable: str
    start: int | Expr
    stop: int | Expr
    body: tuple[Statement, ...]
    unroll: bool = False


@dataclass(frozen=True, slots=True)
class If:
    """Either body, by a scalar condition."""

    condition: Expr
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block wait for each other; local memory is then consistent.

    ``pending``: each thread first waits for its own asynchronous writes, but for the latest so many groups; None: for
    none of them.  ``products``: what threads wrote is then seen by asynchronous products too.
    """

    pending: int | None = None
    products: bool = False


@dataclass(frozen=True, slots=True)
class EndGroup:
    """The asynchronous writes of this thread since the last one are a group (perhaps of none)."""


@dataclass(frozen=True, slots=True)
class PrefetchLine:
    """The line of ``pointer[offset]`` is prefetched.  Nothing waits for it, and the place need not exist.

    ``writing``: it will be written, so that no other core is to keep it.  ``near``: it goes to the cache next to the
    core, where it drives out others; else to the next one, if there are several."""

    pointer: Pointer
    offset: Index
    writing: bool = False
    near: bool = False


Statement = Union[
    Allocate, Let, Point, Assign, Write, For, If, Barrier, EndGroup, PrefetchLine, Collective, BoxStatement,
]


# Kernels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """A pure function of scalars or vectors, always inlined."""

    name: str
    parameters: tuple[Name, ...]
    body: tuple[Statement, ...]
    result: Expr


@dataclass(frozen=True)
class Kernel:
    """One launch: ``blocks`` blocks of ``threads`` threads.

    ``arguments`` are the buffers' own names, in the order of ``parameters``.  ``block_id`` and
    ``thread_id`` are the variables that hold the linear numbers.  ``ranges``: inclusive bounds of every
    integer variable in the body.  ``layout``: comment lines that draw the kernel.  ``resident_blocks``: blocks that
    are meant to share a unit (0: not known), for compilers that spend registers accordingly.  ``allocated``: `arrays`,
    where whoever wrote the body knows them.  ``sizes``: parameters behind those, integers of 32 bits; ``blocks`` are
    then those of the largest.  ``maps``: names of parameters that are tensor maps, each with its map.
    ``cluster``: blocks that run side by side as one; 0: there are no clusters.
    """

    name: str
    parameters: tuple[Pointer, ...]
    arguments: tuple[str, ...]
    body: tuple[Statement, ...]
    blocks: int
    threads: int
    block_id: str
    thread_id: str
    ranges: Mapping[str, Bounds]
    functions: tuple[Function, ...] = ()
    layout: tuple[str, ...] = ()
    once: bool = False
    resident_blocks: int = 0
    allocated: tuple[Allocate, ...] | None = None
    sizes: tuple[str, ...] = ()
    maps: tuple[tuple[str, TensorMap], ...] = ()
    cluster: int = 0

    @cached_property
    def arrays(self) -> tuple[Allocate, ...]:
        """Every allocation with extents in the body, outer before inner."""
        if self.allocated is not None:
            return self.allocated
        found: list[Allocate] = []
        _find_arrays(self.body, found)
        return tuple(found)


_ARRAYS_IN = frozenset({Allocate, For, If})
"""Statements that are an array, or have others within."""


def _find_arrays(body: tuple[Statement, ...], found: list[Allocate]) -> None:
    for statement in body:
        kind = type(statement)
        if kind not in _ARRAYS_IN:
            continue
        if kind is Allocate:
            if statement.shape:  # type: ignore[union-attr]
                found.append(statement)  # type: ignore[arg-type]
        elif kind is For:
            _find_arrays(statement.body, found)  # type: ignore[union-attr]
        elif kind is If:
            _find_arrays(statement.body, found)  # type: ignore[union-attr]
            _find_arrays(statement.otherwise, found)  # type: ignore[union-attr]


def walk(statements: tuple[Statement, ...]) -> list[Statement]:
    """Every statement of a body, outer before inner."""
    found: list[Statement] = []
    left = list(reversed(statements))
    while left:
        statement = left.pop()
        found.append(statement)
        if isinstance(statement, For):
            left.extend(reversed(statement.body))
        elif isinstance(statement, If):
            left.extend(reversed(statement.otherwise))
            left.extend(reversed(statement.body))
    return found


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
texture surface atomicAdd expf fabsf fmaxf exp2_approx max_nan min_nan anew end_copies wait_copies block_memory
TensorMap start_barriers is_issuer expect_bytes free_tile wait_tile"""
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
    r"|\w+_t$|divided_by\d+$|lanes\d+_\w+$|copy_(async|box)_(cached_)?\d+$"
    r"|\w+_[fi]\d+x\d+$|pack_b?float16$"
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


def array_bytes(kernel: Kernel) -> tuple[int, int]:
    """(private, local): bytes of the arrays of one thread, in registers or memory, and of those shared by a block.

    Every array counts, also those whose lives do not overlap: compilers may or may not let them share a place.
    """
    private = local = 0
    for node in kernel.arrays:
        if node.scope == LOCAL:
            local += _bytes(node)
        else:
            private += _bytes(node)
    return private, local


def _bytes(node: Allocate) -> int:
    value = bits_of(node.dtype) // 8
    element = value if node.scope == "register" else STORAGE_BYTES.get(node.dtype, value)
    return prod(node.shape) * node.lanes * element
