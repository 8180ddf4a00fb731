"""AMD's back end without a GPU: OpenCL C -> machine code for a real architecture by clang, and what it uses.

On Debian ``apt-get install --no-install-recommends clang-19 rocm-device-libs``; no driver is needed.  clang 14 cannot
read the device libraries of ROCm 5.2; 16 to 19 can.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError

INSTALL = "apt-get install --no-install-recommends clang-19 rocm-device-libs (Debian 12; needs no GPU)"
NAMES = ("clang-19", "clang-18", "clang-17", "clang-16", "amdclang", "/opt/rocm/llvm/bin/clang")
LIBRARIES = ("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/opt/rocm/amdgcn/bitcode")
"""Where ROCm's device libraries (ockl.bc, ocml.bc, ...) are."""

_BEFORE = {"gfx942": "gfx940", "gfx1100": "gfx1036"}
"""An architecture of the same generation, or of the one before, that older libraries know."""

_FIELDS = {
    "vgprs": "vgpr_count", "sgprs": "sgpr_count", "vgpr_spills": "vgpr_spill_count", "sgpr_spills": "sgpr_spill_count",
    "private_bytes": "private_segment_fixed_size", "lds_bytes": "group_segment_fixed_size",
}  # fmt: skip
_KERNEL = re.compile(r"^  - \.\w+:.*?(?=^  - \.\w+:|^amdhsa\.target)", re.M | re.S)
_OCCUPANCY = re.compile(r"^; Occupancy: (\d+)$", re.M)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel uses: vector registers of a work-item (``vgprs``), scalar ones of a wavefront, how many of each
    are spilled, bytes of a work-item's private memory (spills and arrays that are indexed), bytes of a group's local
    memory; ``waves``: how many wavefronts of it a SIMD unit holds."""

    entry: str
    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    private_bytes: int
    lds_bytes: int
    waves: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """Assembly for ``arch``, and the use of each kernel in the order of the text."""

    arch: str
    assembly: str
    kernels: tuple[Usage, ...]
    compiler: str

    def kernel(self, entry: str) -> Usage:
        return next(one for one in self.kernels if one.entry == entry)


def is_installed() -> bool:
    """Whether there is a clang with ROCm's device libraries."""
    return _clang() is not None and _libraries() is not None


def compile_opencl(text: str, arch: str) -> Compiled:
    """`text` compiled for `arch`, such as gfx906.

    Raises RuntimeUnavailableError where compiler or libraries are not installed, BuildError with the compiler's
    messages where it refuses the text or does not know the architecture.
    """
    if not re.fullmatch(r"gfx[0-9a-f]+", arch):
        raise BuildError(f"arch is {arch!r}; expected an architecture of AMD such as 'gfx906'")
    clang, libraries = _clang(), _libraries()
    if clang is None or libraries is None:
        missing = "clang 16 or later" if clang is None else "ROCm's device libraries"
        raise RuntimeUnavailableError(f"{missing} is not installed; {INSTALL}")
    with _libraries_of(arch, libraries) as place:
        words = [
            clang, "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-x", "cl", "-cl-std=CL1.2", "-O3", "-w",
            f"--rocm-device-lib-path={place}", "-S", "-o", "-", "-",
        ]  # fmt: skip
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{version()} refused the source for {arch}:\n{done.stderr.strip()}")
    return Compiled(arch, done.stdout, usage(done.stdout), version())


def usage(assembly: str) -> tuple[Usage, ...]:
    """What the assembly's metadata say of each kernel.

    Raises BuildError for assembly without these figures.
    """
    entries = {}
    for match in _KERNEL.finditer(assembly[assembly.find("amdhsa.kernels:") :]):
        found = {name: re.search(rf"^    \.{field}:\s+(\d+)$", match[0], re.M) for name, field in _FIELDS.items()}
        entry = re.search(r"^    \.name:\s+(\w+)$", match[0], re.M)
        if entry is None or not all(found.values()):
            raise BuildError(f"the compiler's metadata lack figures:\n{match[0]}")
        entries[entry[1]] = {name: int(value[1]) for name, value in found.items() if value}
    waves = [int(number) for number in _OCCUPANCY.findall(assembly)]
    if not entries or len(waves) != len(entries):
        raise BuildError(f"the compiler's assembly describes {len(entries)} kernels and {len(waves)} occupancies")
    order = sorted(entries, key=lambda entry: assembly.find(f"\n{entry}:"))
    return tuple(Usage(entry, **entries[entry], waves=each) for entry, each in zip(order, waves, strict=True))


@contextmanager
def _libraries_of(arch: str, libraries: Path) -> Iterator[Path]:
    """The libraries' folder; one with a link to the constants of the architecture's `_BEFORE` where these are older
    than it (all that they hold is its number)."""
    name = "oclc_isa_version_{}.bc"
    known = libraries / name.format(_BEFORE.get(arch, arch).removeprefix("gfx"))
    wanted = name.format(arch.removeprefix("gfx"))
    if (libraries / wanted).is_file() or not known.is_file():
        yield libraries
        return
    with tempfile.TemporaryDirectory() as folder:
        for file in libraries.iterdir():
            (Path(folder) / file.name).symlink_to(file)
        (Path(folder) / wanted).symlink_to(known)
        yield Path(folder)


@lru_cache(maxsize=1)
def version() -> str:
    """Of the compiler, such as "clang 19.1.7"."""
    done = subprocess.run([_clang() or "clang", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"clang version ([\d.]+)", done.stdout)
    return f"clang {found[1]}" if found else done.stdout.splitlines()[0]


@lru_cache(maxsize=1)
def _clang() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@lru_cache(maxsize=1)
def _libraries() -> Path | None:
    return next((Path(folder) for folder in LIBRARIES if (Path(folder) / "ockl.bc").is_file()), None)
