"""NVIDIA's compiler without a GPU: CUDA text -> machine code for a real architecture, and what it uses.

`pip install "rollergen[nvrtc]"` brings the library (Linux, Windows); no driver and no toolkit is needed.  Version
12.9 is the last that compiles for sm_70, and starts at sm_50.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from rollergen.hal.errors import BuildError, RuntimeUnavailableError

INSTALL = 'pip install "rollergen[nvrtc]" (nvidia-cuda-nvrtc-cu12, 86 MB; needs no GPU)'
OPTIONS = ("--std=c++17", "--ptxas-options=-v", "-w")
_PACKAGE = "nvidia.cuda_nvrtc"
_FUNCTION = re.compile(r"Compiling entry function '(?P<name>\w+)' for '\w+'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel uses: registers of a thread; bytes of a thread's stack frame, of which spilled registers are
    written and read ``spill_store_bytes`` and ``spill_load_bytes``; bytes of a block's static shared memory."""

    entry: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code for ``arch`` (an ELF file), and the use of each kernel in the order of the text."""

    arch: str
    cubin: bytes
    kernels: tuple[Usage, ...]
    compiler: str

    def kernel(self, entry: str) -> Usage:
        return next(one for one in self.kernels if one.entry == entry)


def is_installed() -> bool:
    """Whether the compiler can be loaded here."""
    try:
        _library()
    except RuntimeUnavailableError:
        return False
    return True


def compile_cuda(text: str, arch: str, options: Sequence[str] = ()) -> Compiled:
    """`text` compiled for `arch`, such as sm_70.

    Raises RuntimeUnavailableError where the library is not installed, BuildError where it has not got the
    architecture, and with the compiler's log where it refuses the text.
    """
    require(arch)
    library, program = _library(), ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
    try:
        words = [word.encode() for word in (f"--gpu-architecture={arch}", *OPTIONS, *options)]
        status = library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        log = _bytes(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            raise BuildError(f"NVRTC {version()} refused the source for {arch}:\n{log}")
        cubin = _bytes(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return Compiled(arch, cubin, usage(log), f"NVRTC {version()}")


def require(arch: str) -> None:
    """Raises BuildError where the installed compiler has not got the architecture, and says why and which it has."""
    if not re.fullmatch(r"sm_\d+a?", arch):
        raise BuildError(f"arch is {arch!r}; expected a real architecture such as 'sm_70'")
    known, number = architectures(), int(re.sub(r"\D", "", arch))
    if number in known:
        return
    why = "has dropped all earlier ones" if number < known[0] else "does not know this one"
    listed = ", ".join(f"sm_{one}" for one in known)
    raise BuildError(
        f"NVRTC {version()} cannot compile for {arch}: it {why}; it compiles for {listed}. The source was not looked at"
    )


def architectures() -> tuple[int, ...]:
    """The numbers of those that the installed compiler compiles for, such as 70, in ascending order."""
    library, count = _library(), ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(numbers))
    return tuple(sorted(numbers))


def usage(log: str) -> tuple[Usage, ...]:
    """What the assembler's verbose log says of each kernel.

    Raises BuildError for a log without these figures.
    """
    starts = list(_FUNCTION.finditer(log))
    if not starts:
        raise BuildError(f"the compiler's log names no kernel:\n{log}")
    ends = [match.start() for match in starts[1:]] + [len(log)]
    found = []
    for start, end in zip(starts, ends, strict=True):
        part = log[start.end() : end]
        spills, registers, shared = _SPILLS.search(part), _REGISTERS.search(part), _SHARED.search(part)
        if spills is None or registers is None:
            raise BuildError(f"the compiler's log lacks the registers of {start['name']}:\n{log}")
        frame, stores, loads = map(int, spills.groups())
        used = int(shared[1]) if shared else 0
        found.append(Usage(start["name"], int(registers[1]), frame, stores, loads, used))
    return tuple(found)


def version() -> str:
    """Of the library, such as "12.9"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library = _library()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    folder = _folder()
    built_in = sorted(folder.glob("libnvrtc-builtins.so*")) if folder else []
    files = sorted(folder.glob("libnvrtc.so*")) + sorted(folder.glob("nvrtc64_*.dll")) if folder else []
    if not files:
        raise RuntimeUnavailableError(f"NVIDIA's compiler NVRTC is not installed; {INSTALL}")
    try:
        for file in built_in:  # NVRTC opens it by its bare name
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(files[0]))
    except OSError as error:
        raise RuntimeUnavailableError(f"{files[0]} cannot be loaded ({error}); {INSTALL}") from None
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _folder() -> Path | None:
    """Where the wheel's libraries lie."""
    try:
        found = find_spec(_PACKAGE)
    except ModuleNotFoundError:
        return None
    places = list(found.submodule_search_locations or ()) if found else []
    folders = [Path(place) / name for place in places for name in ("lib", "bin")]
    return next((folder for folder in folders if folder.is_dir()), None)


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise BuildError(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, text))
    return text.raw
