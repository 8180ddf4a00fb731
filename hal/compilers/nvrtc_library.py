"""NVIDIA's compiler as the wheel nvidia-cuda-nvrtc brings it, under the names that CuPy gives its functions.

So either can compile: this one where there is no CuPy and no driver, `cupy.cuda.nvrtc` where kernels run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from rollergen.hal.errors import RuntimeUnavailableError

INSTALL = 'pip install "rollergen[nvrtc]" (nvidia-cuda-nvrtc-cu12, 86 MB; needs no GPU)'
_PACKAGES = ("nvidia.cuda_nvrtc", "nvidia.cu13")
"""Of the wheels: nvidia-cuda-nvrtc-cu12, and nvidia-cuda-nvrtc, as it is since CUDA 13."""


class NVRTCError(RuntimeError):
    """What the library answers other than success."""


class NvrtcLibrary:
    """The functions of `cupy.cuda.nvrtc` that are used here."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def getVersion(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def getSupportedArchs(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(numbers))
        return tuple(numbers)

    def createProgram(self, text: str, name: str, headers: Sequence[bytes], names: Sequence[bytes]) -> int:
        """``headers``, ``names``: none."""
        program = ctypes.c_void_p()
        made = self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        self._check(made)
        return program.value or 0

    def compileProgram(self, program: int, options: Sequence[str]) -> None:
        words = [word.encode() for word in options]
        self._check(
            self._library.nvrtcCompileProgram(
                ctypes.c_void_p(program), len(words), (ctypes.c_char_p * len(words))(*words)
            )
        )

    def getProgramLog(self, program: int) -> str:
        return self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")

    def getCUBIN(self, program: int) -> bytes:
        return self._bytes(program, "CUBIN")

    def getPTX(self, program: int) -> bytes:
        return self._bytes(program, "PTX")

    def destroyProgram(self, program: int) -> None:
        self._library.nvrtcDestroyProgram(ctypes.byref(ctypes.c_void_p(program)))

    def _bytes(self, program: int, what: str) -> bytes:
        size, handle = ctypes.c_size_t(), ctypes.c_void_p(program)
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(handle, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(handle, text))
        return text.raw

    def _check(self, status: int) -> None:
        if status:
            raise NVRTCError(f"{self._library.nvrtcGetErrorString(status).decode()} ({status})")


@lru_cache(maxsize=1)
def library() -> NvrtcLibrary:
    """Raises RuntimeUnavailableError where the wheel is not installed or cannot be loaded."""
    folder = _folder()
    built_in = sorted(folder.glob("libnvrtc-builtins.so*")) if folder else []
    files = sorted(folder.glob("libnvrtc.so*")) + sorted(folder.glob("nvrtc64_*.dll")) if folder else []
    if not files:
        raise RuntimeUnavailableError(f"NVIDIA's compiler NVRTC is not installed; {INSTALL}")
    try:
        for file in built_in:  # NVRTC opens it by its bare name
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        found = ctypes.CDLL(str(files[0]))
    except OSError as error:
        raise RuntimeUnavailableError(f"{files[0]} cannot be loaded ({error}); {INSTALL}") from None
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    return NvrtcLibrary(found)


def _folder() -> Path | None:
    """Where a wheel's libraries lie."""
    folders = (Path(place) / name for package in _PACKAGES for place in _places(package) for name in ("lib", "bin"))
    return next((folder for folder in folders if any(folder.glob("*nvrtc*"))), None)


def _places(package: str) -> Sequence[str]:
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        return ()
    return list(found.submodule_search_locations or ()) if found else ()
