"""The linker that PoCL needs: it links each kernel into a shared library, and ends the process where that fails.

PoCL does so at a kernel's first launch, by the driver of clang that it contains: this looks for a linker at
/usr/local/bin, beside GCC's own and on the PATH, and links the kernel with GCC's library and C's (seen by strace of
PoCL 3.0).  Where one of them is missing, PoCL writes a line to standard error and calls abort.  So they are looked for
before; where they are not found in the usual places, a process of its own tries to run a kernel.

This module needs nothing but Python and `pocl_cpu_name` beside it: saved kernels carry copies of both beside their
launcher.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from functools import lru_cache
from glob import glob

INSTALL = (
    "install a linker and the libraries it needs, e.g. apt install binutils gcc libc6-dev (Debian, Ubuntu) or "
    "dnf install binutils gcc glibc-devel (Fedora)"
)
_SECONDS = 120.0
_GCC = ("/usr/lib/gcc/*/*/crtbegin.o", "/usr/lib64/gcc/*/*/crtbegin.o", "/usr/local/lib/gcc/*/*/crtbegin.o")
"""What clang knows an installation of GCC by."""
_C = ("/usr/lib/*/libc.so", "/usr/lib64/libc.so", "/usr/lib/libc.so")

_TRIAL = """
import sys
import pyopencl as cl
sys.path.append(sys.argv[1])
from pocl_cpu_name import mend_cpu_name
device = next(d for p in cl.get_platforms() if p.name == "Portable Computing Language" for d in p.get_devices())
mend_cpu_name(device.int_ptr, device.version)
context = cl.Context([device])
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, "__kernel void trial(__global float *x) { x[0] = 1; }").build(), "trial")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=64)
kernel.set_arg(0, buffer)
cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
queue.finish()
"""


class LinkerMissingError(RuntimeError):
    """PoCL cannot link kernels here; the message says why, and what to install."""


def require_linker() -> None:
    """Raises `LinkerMissingError` where PoCL would end the process at the first launch of a kernel."""
    words = _trouble(os.environ.get("PATH", ""))
    if words:
        raise LinkerMissingError(
            f"PoCL links every kernel with the system's linker (ld), and ends the process where that fails, as it does "
            f"here: {words}; {INSTALL}"
        )


@lru_cache(maxsize=8)
def _trouble(path: str) -> str:
    """What goes wrong with this PATH; empty where nothing does."""
    if platform.system() != "Linux" or (has_linker(path) and has_libraries()):
        return ""
    return failed_trial()


def has_linker(path: str) -> bool:
    """Whether there is one by a name and in a place where PoCL's driver looks."""
    import shutil

    places = os.pathsep.join(["/usr/local/bin", path])
    return any(shutil.which(name, path=places) for name in (f"{platform.machine()}-unknown-linux-gnu-ld", "ld"))


def has_libraries() -> bool:
    """Whether GCC's library and C's are where distributions put them."""
    return any(map(glob, _GCC)) and any(map(glob, _C))


def failed_trial() -> str:
    """The last words of a process that runs a kernel, where PoCL ends it; empty where it does not."""
    import subprocess  # which is the most of what this module imports, and seldom needed
    import tempfile

    with tempfile.TemporaryDirectory() as kernels:  # a kernel that PoCL has linked before needs no linker
        try:
            trial = subprocess.run(
                [sys.executable, "-c", _TRIAL, os.path.dirname(__file__)],
                env={**os.environ, "POCL_CACHE_DIR": kernels}, capture_output=True, text=True, errors="replace",
                timeout=_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""  # what else is wrong is told by who finds it
    if trial.returncode != -signal.SIGABRT:
        return ""
    return "; ".join(trial.stderr.strip().splitlines()[:3]) or "it was ended by SIGABRT"
