"""Declarations of the types and functions of OpenCL C that programs use, to be put in front of them.

PoCL (3.0, ``include/_clang_opencl.h``) puts clang's ``opencl-c.h`` in front of every program: 18,552 lines, which take
0.09 s to read on a Zen 4, as long as a small kernel does altogether.  It leaves them out where their guard is defined.
These are declarations of that file (LLVM 14).  A function is here with all of its overloads but those for half and for
other address spaces, or not at all: with a part of them a call could take the wrong one.  Programs that call others are
built with PoCL's header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

OPTION = "-D_OPENCL_H_"
"""Defines the guard of ``opencl-c.h``."""

_INTEGERS = ("char", "short", "int", "long")
_SCALARS = (*_INTEGERS, *(f"u{name}" for name in _INTEGERS), "float", "double")
_LANES = ("2", "3", "4", "8", "16")
_SPACES = ("__global", "__local", "__private")

_HEAD = """#ifdef cl_khr_fp16
#error overloads for half are not declared
#endif
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef uint cl_mem_fence_flags;
#define NAN __builtin_astype(0x7fffffff, float)
#define INFINITY (__builtin_inff())
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
__attribute__((overloadable, convergent)) void barrier(cl_mem_fence_flags);
"""

_PLACES = ("get_group_id", "get_num_groups", "get_local_id", "get_local_size", "get_global_id", "get_global_size")
_OF_FLOATS = {
    1: ("fabs", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "tanh",
        "erf", "erfc", "floor", "ceil", "trunc", "rint"),
    2: ("pow", "fmod", "atan2"),
    3: ("fma",),
}  # fmt: skip
"""By the number of operands, which are of one type, as is the result."""

_NO_CALLS = r"(?s)/\*.*?\*/|//[^\n]*|__attribute__\(\((?:[^()]|\([^()]*\))*\)\)|\b(?:defined|sizeof)\b"
"""Comments, attributes, and words that only look like functions."""

_CALLED = r"\b((?!__)\w+)\("
_DEFINED = r"(?:\b(?!return\b)\w+ \**|# *define )(\w+)\("


def suffice(text: str) -> bool:
    """Whether a text calls no function of the language but those that are declared here."""
    code = re.sub(_NO_CALLS, "", text)
    return set(re.findall(_CALLED, code)) <= _declared() | set(re.findall(_DEFINED, code))


@lru_cache(maxsize=1)
def _declared() -> frozenset[str]:
    return frozenset(re.findall(_CALLED, re.sub(_NO_CALLS, "", declarations())))


@lru_cache(maxsize=1)
def declarations() -> str:
    """To be put in front of a text."""
    return _HEAD + "".join(f"{line}\n" for part in (_types(), _values(), _accesses()) for line in part)


def _types() -> Iterator[str]:
    for scalar in _SCALARS:
        yield from (f"typedef {scalar} {scalar}{n} __attribute__((ext_vector_type({n})));" for n in _LANES)
        yield from (f"#define as_{scalar}{n}(x) __builtin_astype((x), {scalar}{n})" for n in ("", *_LANES))


def _values() -> Iterator[str]:
    """Functions that neither read nor write memory."""
    function = "__attribute__((overloadable, const))"
    yield from (f"{function} size_t {name}(uint);" for name in _PLACES)
    kinds = [f"{scalar}{n}" for scalar, n in product(("float", "double"), ("", *_LANES))]
    for count, names in _OF_FLOATS.items():
        yield from (f"{function} {kind} {name}({', '.join([kind] * count)});" for name, kind in product(names, kinds))


def _accesses() -> Iterator[str]:
    reads, writes = "__attribute__((overloadable, pure))", "__attribute__((overloadable))"
    for space, n in product(_SPACES, ("", *_LANES)):
        yield f"{reads} float{n} vload_half{n}(size_t, const {space} half *);"
        for kind in ("float", "double"):
            yield f"{writes} void vstore_half{n}({kind}{n}, size_t, {space} half *);"
    for space, kind in product(_SPACES[:2], ("int", "uint")):
        yield f"{writes} {kind} atomic_add(volatile {space} {kind} *, {kind});"
        yield f"{writes} {kind} atomic_cmpxchg(volatile {space} {kind} *, {kind}, {kind});"
