"""NVIDIA's compiler: CUDA text -> machine code for a real architecture, and what it uses; a GPU is not needed.

`pip install "rollergen[nvrtc]"` brings the library (Linux, Windows); no driver and no toolkit is needed.  Version
12.9 is the last that compiles for sm_70, and starts at sm_50.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rollergen.hal.compilers.nvrtc_library import INSTALL, library
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "-w")
"""Of every compilation, whether its code is run or only looked at; NVRTC keeps denormal numbers by default."""
_KEEPS_CODE, _ANEW = (12, 9), "--no-cache"
"""The version from which NVRTC keeps code between processes (NVRTC, "Caching"), and what has it compile all the same:
from 13.0 on the log of code that was kept is empty (seen on an H100)."""
_FUNCTION = r"Compiling entry function '(?P<name>\w+)' for '\w+'"
_SPILLS = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
_REGISTERS = r"Used (\d+) registers"
_SHARED = r"(\d+) bytes smem"


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
    """Machine code for ``arch`` (an ELF file), and the use of each kernel in the order of the text; or PTX, of which no
    use is known."""

    arch: str
    code: bytes
    kernels: tuple[Usage, ...]
    compiler: str

    def kernel(self, entry: str) -> Usage:
        return next(one for one in self.kernels if one.entry == entry)


def is_installed() -> bool:
    """Whether the compiler can be loaded here."""
    try:
        library()
    except RuntimeUnavailableError:
        return False
    return True


def compile_cuda(text: str, arch: str, options: Sequence[str] = (), nvrtc: Any = None) -> Compiled:
    """`text` compiled for `arch`: machine code of sm_70, or PTX of compute_70.

    ``nvrtc``: `cupy.cuda.nvrtc` where kernels run; None: the library of NVIDIA's wheel.  Denormal numbers are kept,
    as the definition of an operator keeps them: pass ``--ftz=true`` to have them flushed.

    Raises RuntimeUnavailableError where the library is not installed, BuildError where it has not got the
    architecture, and with the compiler's log where it refuses the text.
    """
    nvrtc = nvrtc or library()
    require(arch, nvrtc)
    program = nvrtc.createProgram(text, "kernel.cu", (), ())
    anew = (_ANEW,) if tuple(nvrtc.getVersion()) >= _KEEPS_CODE else ()
    try:
        try:
            nvrtc.compileProgram(program, (f"--gpu-architecture={arch}", *OPTIONS, *anew, *options))
        except RuntimeError:  # NVRTCError of either library
            log = nvrtc.getProgramLog(program)
            raise BuildError(f"NVRTC {version(nvrtc)} refused the source for {arch}:\n{log}") from None
        log = nvrtc.getProgramLog(program)
        is_machine_code = arch.startswith("sm_")
        code = nvrtc.getCUBIN(program) if is_machine_code else nvrtc.getPTX(program)
    finally:
        nvrtc.destroyProgram(program)
    return Compiled(arch, code, usage(log) if is_machine_code else (), f"NVRTC {version(nvrtc)}")


_OWN = {(9, 0)}
"""Compute capabilities with instructions that later ones have not: code for ``sm_90a`` may have wgmma, and runs on 9.0
only."""


def target_for(capability: tuple[int, int], nvrtc: Any = None) -> str:
    """What a GPU's code is compiled to: its own machine code, or, by a compiler that is older than the GPU, PTX of
    the latest architecture that it knows, which the driver translates.

    Raises BuildError where the compiler has dropped the GPU's architecture.
    """
    number, known = 10 * capability[0] + capability[1], architectures(nvrtc)
    if number in known or number < known[0]:
        arch = f"sm_{number}{'a' if capability in _OWN else ''}"
        require(arch, nvrtc)
        return arch
    return f"compute_{max(one for one in known if one <= number)}"


def require(arch: str, nvrtc: Any = None) -> None:
    """Raises BuildError where the installed compiler has not got the architecture, and says why and which it has."""
    if not re.fullmatch(r"(sm|compute)_\d+a?", arch):
        raise BuildError(f"arch is {arch!r}; expected a real architecture such as 'sm_70'")
    known, number = architectures(nvrtc), int(re.sub(r"\D", "", arch))
    if number in known:
        return
    why = "has dropped all earlier ones" if number < known[0] else "does not know this one"
    listed = ", ".join(f"sm_{one}" for one in known)
    own = version(nvrtc)
    earlier = number < known[0] and int(own.partition(".")[0]) > 12
    advice = f"; an earlier one: {INSTALL}, to run on it rollergen[cuda] in place of [cuda13]" if earlier else ""
    raise BuildError(
        f"NVRTC {own} cannot compile for {arch}: it {why}; it compiles for {listed}. The source was not "
        f"looked at{advice}"
    )


def architectures(nvrtc: Any = None) -> tuple[int, ...]:
    """The numbers of those that the installed compiler compiles for, such as 70, in ascending order."""
    return tuple(sorted((nvrtc or library()).getSupportedArchs()))


def usage(log: str) -> tuple[Usage, ...]:
    """What the assembler's verbose log says of each kernel.

    Raises BuildError for a log without these figures.
    """
    starts = list(re.finditer(_FUNCTION, log))
    if not starts:
        raise BuildError(f"the compiler's log names no kernel:\n{log}")
    ends = [match.start() for match in starts[1:]] + [len(log)]
    found = []
    for start, end in zip(starts, ends, strict=True):
        part = log[start.end() : end]
        spills, registers, shared = [re.search(what, part) for what in (_SPILLS, _REGISTERS, _SHARED)]
        if spills is None or registers is None:
            raise BuildError(f"the compiler's log lacks the registers of {start['name']}:\n{log}")
        frame, stores, loads = map(int, spills.groups())
        used = int(shared[1]) if shared else 0
        found.append(Usage(start["name"], int(registers[1]), frame, stores, loads, used))
    return tuple(found)


def named(arch: str) -> str:
    """The installed compiler with its version; raises as `compile_cuda` does where it cannot compile for `arch`."""
    require(arch)
    return f"NVRTC {version()}"


def version(nvrtc: Any = None) -> str:
    """Of the library, such as "12.9"."""
    return "{}.{}".format(*(nvrtc or library()).getVersion())


__all__ = [
    "INSTALL", "Compiled", "Usage", "compile_cuda", "is_installed", "library", "named", "target_for", "usage",
    "version",
]  # fmt: skip
