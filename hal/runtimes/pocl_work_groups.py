"""The machine code that PoCL made of a kernel, called in the calling thread without PoCL's queue.

PoCL (3.0 and 3.1, ``lib/CL/devices/common.c``) makes a shared object of a kernel at its first launch, loads it, and
calls ``_pocl_kernel_<name>_workgroup_fast(void **arguments, context, x, y, z)`` for each work-group; an argument in
global memory is its address.  A queued launch of one work-group takes three times as long as that call by ctypes.
Where the object or the function is not found, launches go through the queue.
"""

from __future__ import annotations

import ctypes
import os
import re
import weakref
from _ctypes import dlclose, dlopen, dlsym
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

MOST_GROUPS = 4
"""Work-groups that are called one by one from Python: each takes .3 us, a queued launch of any number 1.2 us more."""

_CONTEXT = ctypes.create_string_buffer(1024)
"""Zeros, more than a ``struct pocl_context`` of any version has: number of work-groups, offsets, sizes, for printf."""

_FUNCTION = ctypes.CFUNCTYPE(None)

_KERNEL = re.compile(r"^\s*kernel\b.*?\bvoid (\w+)\(", re.MULTILINE | re.DOTALL)
_NEEDS_CONTEXT = re.compile(r"\b(get_(?!group_id\b)\w+|printf|local)\b")
"""Work-item functions that read the context, and memory that PoCL allocates for each work-group."""


@lru_cache
def _addresses(count: int) -> type[ctypes.Array[ctypes.c_void_p]]:
    """One class for each number: those that `ctypes` makes are cycles, which would wait for the collector."""
    return ctypes.c_void_p * count


def own_names(text: str) -> dict[str, str]:
    """For each kernel of a source, the name under which its object is found among those of all sources."""
    mark = sha256(text.encode()).hexdigest()[:16]
    return {entry: f"{entry}_{mark}" for entry in _KERNEL.findall(text)}


def callable_alone(text: str) -> bool:
    """Whether the kernels of a source need nothing but their arguments and the number of the work-group."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return not _NEEDS_CONTEXT.search(code)


def object_of(name: str) -> str | None:
    """The path of the object that PoCL loaded for a kernel of one thread; None where it is not found."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = re.search(rf"(/\S.*/{name}/1-1-1-goffs0(?:-smallgrid)?/{name}\.so)$", maps, re.MULTILINE)
    return found[1] if found else None


class WorkGroups(NamedTuple):
    """One launch.  ``addresses[i]``: of its i-th argument, to be set before `run`."""

    addresses: ctypes.Array[ctypes.c_void_p]
    run: Callable[[], None]


def work_groups(path: str, name: str, groups: int, arguments: int) -> WorkGroups:
    """The work-groups of one launch, in order.  Raises OSError where the object cannot be loaded or lacks the
    function."""
    library = dlopen(path, os.RTLD_NOW)  # `ctypes.CDLL` leaves a class behind, and closes nothing
    addresses, zero = _addresses(arguments)(), ctypes.c_size_t(0)
    weakref.finalize(addresses, dlclose, library)  # whoever calls the function holds its arguments
    function = _FUNCTION(dlsym(library, f"_pocl_kernel_{name}_workgroup_fast"))
    calls = [partial(function, addresses, _CONTEXT, ctypes.c_size_t(group), zero, zero) for group in range(groups)]
    return WorkGroups(addresses, in_order(calls))


def in_order(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """One call for all `calls`; the only one is itself: a loop around it would take a third of its time."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run
