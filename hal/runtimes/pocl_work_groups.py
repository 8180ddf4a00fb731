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
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

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


class WorkGroups:
    """The work-groups of one launch.  ``addresses[i]``: of its i-th argument; to be set before `run`."""

    def __init__(self, path: str, name: str, groups: int, arguments: int) -> None:
        """Raises OSError where the object cannot be loaded or lacks the function."""
        library = dlopen(path, os.RTLD_NOW)  # `ctypes.CDLL` leaves a class behind, and closes nothing
        weakref.finalize(self, dlclose, library)
        function = _FUNCTION(dlsym(library, f"_pocl_kernel_{name}_workgroup_fast"))
        self.addresses = _addresses(arguments)()
        zero = ctypes.c_size_t(0)
        self._calls = [(function, self.addresses, _CONTEXT, ctypes.c_size_t(group), zero) for group in range(groups)]

    def run(self) -> None:
        for function, addresses, context, group, zero in self._calls:
            function(addresses, context, group, zero, zero)


def run_all(launches: Sequence[WorkGroups]) -> Callable[[], None]:
    """One call for all `launches`, in order."""
    if len(launches) == 1:
        return launches[0].run

    def run() -> None:
        for launch in launches:
            launch.run()

    return run
