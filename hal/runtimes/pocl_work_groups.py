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
import weakref
from _ctypes import dlclose, dlopen, dlsym
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

_KERNEL = re.compile(r"^\s*kernel\b.*?\bvoid (\w+)\(", re.MULTILINE | re.DOTALL)
_NEEDS_CONTEXT = re.compile(r"\b(get_(?!group_id\b)\w+|printf|local)\b")
"""Work-item functions that read the context, and memory that PoCL allocates for each work-group."""


def own_names(text: str) -> dict[str, str]:
    """For each kernel of a source, the name under which its object is found among those of all sources."""
    mark = sha256(text.encode()).hexdigest()[:16]
    return {entry: f"{entry}_{mark}" for entry in _KERNEL.findall(text)}


def callable_alone(text: str) -> bool:
    """Whether the kernels of a source need nothing but their arguments and the number of the work-group."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return not _NEEDS_CONTEXT.search(code)


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
    addresses = array_of(ctypes.c_void_p, arguments + len(sizes))()
    integers = array_of(ctypes.c_int32, len(sizes))(*sizes)
    for position in range(len(sizes)):
        addresses[arguments + position] = ctypes.addressof(integers) + position * ctypes.sizeof(ctypes.c_int32)
    weakref.finalize(addresses, _let_go, library, integers)  # whoever calls the function holds its arguments
    return WorkGroups(dlsym(library, f"_pocl_kernel_{name}_workgroup_fast"), addresses, groups, alone)


def _let_go(library: int, integers: Any) -> None:
    """Closes the library.  The integers live until then."""
    dlclose(library)


@lru_cache
def array_of(kind: Any, count: int) -> Any:
    """One class for each number: those that `ctypes` makes are cycles, which would wait for the collector."""
    return kind * count
