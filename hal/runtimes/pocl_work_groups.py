"""The machine code that PoCL made of a kernel, to be called without PoCL's queue (`pocl_pool`).

PoCL (3.0 and 3.1, ``lib/CL/devices/common.c``) makes a shared object of a kernel at its first launch, loads it, and
calls ``_pocl_kernel_<name>_workgroup_fast(void **arguments, context, x, y, z)`` for each work-group; an argument in
global memory is its address, an integer is at its address.  Where the object or the function is not found, launches go
through the queue.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import weakref
from _ctypes import dlclose, dlopen, dlsym
from functools import lru_cache
from hashlib import sha256
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, NamedTuple

_KERNEL = r"(?ms)^\s*kernel\b.*?\bvoid (\w+)\("
_NEEDS_CONTEXT = r"\b(get_(?!group_id\b)\w+|printf|local)\b"
"""Work-item functions that read the context, and memory that PoCL allocates for each work-group."""


def own_names(text: str) -> dict[str, str]:
    """For each kernel of a source, the name under which its object is found among those of all sources."""
    mark = sha256(text.encode()).hexdigest()[:16]
    return {entry: f"{entry}_{mark}" for entry in re.findall(_KERNEL, text)}


def callable_alone(text: str) -> bool:
    """Whether the kernels of a source need nothing but their arguments and the number of the work-group."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return not re.search(_NEEDS_CONTEXT, code)


def object_of(name: str) -> str | None:
    """The path of the object that PoCL loaded for a kernel of one thread; None where it is not found.

    Another process that compiles the same kernel may have put its own object, of the same code, in its place since."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = re.search(rf"(/\S.*/{name}/1-1-1-goffs0(?:-smallgrid)?/{name}\.so)(?: \(deleted\))?$", maps, re.MULTILINE)
    return found[1] if found else None


class WorkGroups(NamedTuple):
    """One launch.  ``function``: the address of its code; ``addresses[i]``: of its i-th argument, to be set before it
    runs; ``alone``: all its groups are the calling thread's; ``backwards``: it begins with its last group."""

    function: int
    addresses: ctypes.Array[ctypes.c_void_p]
    groups: int
    alone: bool
    backwards: bool = False


def work_groups(
    path: str, name: str, groups: int, arguments: int, alone: bool, sizes: tuple[int, ...] = ()
) -> WorkGroups:
    """The launch of a kernel of this name, whose ``arguments`` in memory are followed by the integers ``sizes``.
    Raises OSError where the object cannot be loaded or lacks the function."""
    library = dlopen(path, os.RTLD_NOW)  # `ctypes.CDLL` leaves a class behind, and closes nothing
    _bring_in(library)
    addresses = array_of(ctypes.c_void_p, arguments + len(sizes))()
    integers = array_of(ctypes.c_int32, len(sizes))(*sizes)
    for position in range(len(sizes)):
        addresses[arguments + position] = ctypes.addressof(integers) + position * ctypes.sizeof(ctypes.c_int32)
    weakref.finalize(addresses, _let_go, library, integers)  # whoever calls the function holds its arguments
    return WorkGroups(dlsym(library, f"_pocl_kernel_{name}_workgroup_fast"), addresses, groups, alone)


_LINK_MAP, _LOADED, _READABLE = 2, 1, 4
"""Of dlinfo (RTLD_DI_LINKMAP), and of a segment in an ELF file (PT_LOAD, PF_R)."""


@lru_cache(maxsize=1)
def _process() -> ctypes.CDLL:
    """The C library, once: each `ctypes.CDLL` leaves a class behind."""
    return ctypes.CDLL(None)


def _bring_in(library: int) -> None:
    """Reads a byte of each page of the library, so that its constants are there.

    A masked vector load whose mask is zero needs nothing of a page that was never read: the system does not bring it
    in, and the processor finds that out anew each time, in 450 clocks on a Zen 4 (maxima of 32768 rows of 32, NaN
    where an element is one: 4.0 ms, and .12 so)."""
    link_map = ctypes.c_void_p()
    if _process().dlinfo(ctypes.c_void_p(library), _LINK_MAP, ctypes.byref(link_map)) or not link_map.value:
        return
    base = ctypes.c_size_t.from_address(link_map.value).value
    header = ctypes.string_at(base, 64)  # <elf.h>: Elf64_Ehdr, Elf64_Phdr
    (table,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
    for n in range(count):
        kind, flags, _, at, _, _, length = struct.unpack_from("<IIQQQQQ", ctypes.string_at(base + table + n * size, 48))
        if kind == _LOADED and flags & _READABLE:
            for page in range((base + at) & -PAGESIZE, base + at + length, PAGESIZE):
                ctypes.string_at(page, 1)


def _let_go(library: int, integers: Any) -> None:
    """Closes the library.  The integers live until then."""
    dlclose(library)


@lru_cache
def array_of(kind: Any, count: int) -> Any:
    """One class for each number: those that `ctypes` makes are cycles, which would wait for the collector."""
    return kind * count
