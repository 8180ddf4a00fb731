"""Where PoCL keeps what it compiles: it builds nothing without such a place, so one that cannot be used is replaced.

PoCL (3.0, ``pocl_cache_init_topdir``) takes the directory of POCL_CACHE_DIR, else pocl/kcache in XDG_CACHE_HOME or in
~/.cache, at its first use in a process, and writes sources, bitcode and kernels there.  In a home that is read-only, or
on a disk that is full, every build fails and its log is empty.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "POCL_CACHE_DIR"

ROOM_BYTES = 4 << 20
"""Some ten kernels; one takes 100 to 400 KB with what is written on the way to it."""


class KernelCacheWarning(UserWarning):
    """PoCL's own cache cannot be used: kernels are compiled into a directory that goes with the process."""


def directory(environment: MutableMapping[str, str]) -> Path:
    """Where PoCL will keep kernels."""
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    return _base(environment) / "pocl" / "kcache"


def _base(environment: MutableMapping[str, str]) -> Path:
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"])
    return Path(environment["HOME"]) / ".cache" if environment.get("HOME") else Path("/tmp")


def trouble(path: Path) -> str | None:
    """Why no kernel can be kept there (the directory is made if it is not there); None if one can."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            return "may not be written to"
        facts = os.statvfs(path)
    except OSError as error:
        return f"cannot be used ({error.strerror or error})"
    room = facts.f_bavail * facts.f_frsize
    if room < ROOM_BYTES:
        return f"has {room} bytes left; a few kernels take {ROOM_BYTES}"
    return None


def ensure(environment: MutableMapping[str, str]) -> None:
    """Names another directory to PoCL where it could keep nothing in its own, and has pyopencl do without its cache
    where that has no place.  Before either is used first in the process: later is too late."""
    if trouble(_base(environment) / "pytools") is not None:
        environment.setdefault("PYOPENCL_NO_CACHE", "1")
    wanted = directory(environment)
    reason = trouble(wanted)
    other = None if reason is None else _elsewhere()
    if other is not None:
        import shutil

        atexit.register(shutil.rmtree, other, ignore_errors=True)
        environment[VARIABLE] = str(other)
        text = f"PoCL's cache {wanted} {reason}: kernels are compiled anew by every process, in {other}"
        warnings.warn(f"{text}; {VARIABLE} names another directory", KernelCacheWarning, stacklevel=2)


def _elsewhere() -> Path | None:
    """A new directory that goes with the process; None where there is no room for one: the build will say so."""
    import tempfile

    for parent in dict.fromkeys((os.environ.get("TMPDIR", "/tmp"), "/tmp", "/var/tmp", "/dev/shm")):
        if Path(parent).is_dir() and trouble(Path(parent)) is None:
            return Path(tempfile.mkdtemp(prefix="rollergen-pocl-", dir=parent))
    return None
