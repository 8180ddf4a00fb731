"""What PoCL's device for this machine's CPU calls itself, as an earlier process found it.

To import pyopencl and to have PoCL look at the machine takes 100 ms, more than all else that finds a kernel in a cache;
and all that such a process asks of them is names.  They are believed while nothing changes that decides them: the
processor and the cores that the process may use, the system, environment variables, the folders where drivers are
looked for, and every file that opening the device brought in.  In doubt the device is opened.  That also happens
before anything is compiled, and what it says then is kept.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rollergen.hal.files.kept import keep, read_kept
from rollergen.hal.files.stamp import Stamp, stamp
from rollergen.hal.files.user_cache import user_directory
from rollergen.hal.probes.host_facts import cpu_model
from rollergen.hal.runtimes.pocl_cpu_name import host_flags

_VARIABLES = ("CL_", "HWLOC_", "LD_", "LLVM_", "OCL_", "OPENCL_", "POCL_", "PYOPENCL_")
"""How the names of variables begin that the loaders of libraries and drivers, PoCL and what it uses listen to."""
_VENDORS = "etc/OpenCL/vendors"
"""Where loaders look for drivers, of the system and of an environment of conda's, unless a variable says where."""
_LIBRARIES = "/etc/ld.so.cache"
"""Where the system's loader looks for libraries."""
_MOST = 16
"""Surroundings of which something is kept: environments and sets of cores."""


class Host(NamedTuple):
    """What `OpenCLRuntime` says of itself under the same names."""

    description: str
    compiler: str
    units: int

    @property
    def compiles_slowly(self) -> bool:
        """As PoCL does."""
        return True

    @property
    def driver(self) -> str:
        """As `RuntimeExecutor` has it."""
        return f"{self.description} | {self.compiler}"


class Before(NamedTuple):
    """A process before it opens the device: its surroundings, and the files that are part of it."""

    surroundings: str
    files: frozenset[str]


_doubted = threading.Event()


@lru_cache(maxsize=1)
def remembered() -> Host | None:
    """What an earlier process was told; None where nothing is kept that still holds, and in a process that uses
    OpenCL already."""
    if "pyopencl" in sys.modules or _doubted.is_set():
        return None
    told: Any = read_kept(_file()).get(surroundings())
    try:
        host, files = Host(*told["host"]), told["files"]
        same = all(list(stamp(Path(one[0])) or ()) == one for one in files)
        kinds = tuple(map(type, host))
    except (LookupError, TypeError):
        return None
    return host if files and same and kinds == (str, str, int) else None


def doubt() -> None:
    """From now on this process remembers nothing."""
    _doubted.set()
    remembered.cache_clear()


def before_opening() -> Before | None:
    """To be asked for before the device is opened; None where this process uses OpenCL already."""
    return None if "pyopencl" in sys.modules else Before(surroundings(), frozenset(_mapped()))


def remember(host: Host | None, before: Before) -> None:
    """Keeps what the open device says, where that is new; None: it is not PoCL's, of which nothing is kept."""
    told, name = remembered(), before.surroundings
    if told == host:
        return
    if told is not None:
        doubt()
    entry = None
    if host is not None:
        stamps = [one for one in (stamp(Path(path)) for path in sorted(_mapped() - before.files)) if one]
        entry = {"host": host, "files": stamps}
    keep(_file(), name, entry, _MOST)


def surroundings() -> str:
    """A hash of what decides which device there is, before any file of a driver is read."""
    module = find_spec("pyopencl")
    package = os.path.dirname(module.origin) if module and module.origin else ""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    named = [os.environ[name] for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH") if os.environ.get(name)]
    folders = (package, f"{package}/.libs", f"/{_VENDORS}", f"{sys.prefix}/{_VENDORS}", *named)
    facts: dict[str, Any] = {
        "python": sys.version,
        "system": list(os.uname()) if hasattr(os, "uname") else sys.platform,
        "processor": [cpu_model(), sorted(host_flags()), cores],
        "environment": sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)),
        "places": [stamp(Path(_LIBRARIES)), [list(_stamps(folder)) for folder in folders]],
    }
    return sha256(json.dumps(facts).encode()).hexdigest()


def _stamps(folder: str) -> Iterator[Stamp | None]:
    """Of the folder and what lies in it."""
    yield stamp(Path(folder))
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    yield from (stamp(Path(folder, name)) for name in names if not name.startswith("__"))


def _mapped() -> set[str]:
    """Files that are part of this process' memory; none where the system does not say."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[5] for line in maps.splitlines() if "/" in line}


def _file() -> Path:
    return user_directory() / "opencl.json"
