"""Machine code of NVIDIA GPUs counted by instruction, where a disassembler is found.

`nvdisasm` comes with the CUDA toolkit and as the wheel nvidia-cuda-nvdisasm; from version 13 on it no longer reads
sm_70, which the one of 12.x does; `benches/setup_nvdisasm.py` fetches such a one into the user's cache directory.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rollergen.hal.files.user_cache import user_directory

_SECTION = r"(?m)^\s*\.section\s+\.text\.(\w+)"
_INSTRUCTION = r"(?m)^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)"
_NEVER = r"(?m)^\s+/\*[0-9a-f]+\*/\s+@!U?PT\s.*$\n?"
"""Instructions under a predicate that is never true: the assembler's fillers after asynchronous copies."""
_LABEL = r"(?m)^(\.L_\w+):"
_JUMP = r"(?m)^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?BRA[^;\n]*`\((\.L_\w+)\)[^\n]*"
_WIDE = ("LDG", "LDGSTS", "LDS", "STG", "STS", "LDL", "STL")
"""Memory instructions are counted by width too: LDG.128."""


@lru_cache(maxsize=1)
def disassemblers() -> tuple[str, ...]:
    """Every nvdisasm of this machine: on the path, in Python packages, in the user's cache directory."""
    import shutil

    places = [Path(folder) for folder in sys.path if folder.endswith("-packages")]
    patterns = ("nvidia/*/bin/nvdisasm", "triton/backends/nvidia/bin/nvdisasm")
    found = [str(file) for place in places for pattern in patterns for file in sorted(place.glob(pattern))]
    on_path, kept = shutil.which("nvdisasm"), kept_disassembler()
    return (*([on_path] if on_path else []), *found, *([str(kept)] if kept.is_file() else []))


def kept_disassembler() -> Path:
    """Where one lies that was fetched for the code that others no longer read."""
    return user_directory() / "nvdisasm"


def histogram(cubin: bytes) -> Mapping[str, Mapping[str, int]] | None:
    """Instructions of each kernel, by name; None where no disassembler reads the code.

    Memory instructions carry their width in bits where it is not 32 ("LDG.128"); others only their first word.
    """
    listing = disassembled(cubin)
    return None if listing is None else counted(listing)


def disassembled(cubin: bytes) -> str | None:
    """The listing of the first disassembler that reads the code; None where there is none."""
    import subprocess  # a device that is no GPU of NVIDIA's knows of this module, too
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        for tool in disassemblers():
            done = subprocess.run([tool, "-c", str(file)], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout
    return None


MULTIPLY_ADDS = ("FFMA", "HFMA2", "DFMA", "HMMA", "IMMA", "HGMMA", "IGMMA")


def main_loops(cubin: bytes, by: tuple[str, ...] = MULTIPLY_ADDS) -> Mapping[str, Mapping[str, int]] | None:
    """Instructions of each kernel's main loop, by name as in `histogram`; None where no disassembler reads the code."""
    listing = disassembled(cubin)
    return None if listing is None else loops_counted(listing, by)


def loops_counted(listing: str, by: tuple[str, ...] = MULTIPLY_ADDS) -> dict[str, dict[str, int]]:
    """Each kernel's main loop: of all stretches that end in a jump back to their start, the one with the most
    instructions `by` name, and of several the shortest; empty for a kernel without loops.  Code that the compiler has
    put elsewhere (rare paths) is not part of it.

    >>> loops_counted(".section .text.k\\n.L_x_0:\\n /*0000*/ FFMA R1, R4, R5, R1 ;\\n /*0010*/ @P0 BRA `(.L_x_0) ;")
    {'k': {'BRA': 1, 'FFMA': 1}}
    """
    parts = re.split(_SECTION, listing)[1:]
    found = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        labels = {match[1]: match.end() for match in re.finditer(_LABEL, body)}
        jumps = [(labels.get(match[1], match.end()), match.end()) for match in re.finditer(_JUMP, body)]
        loops = [_counts(body[start:end]) for start, end in jumps if start < end]
        loops = [loop for loop in loops if set(loop) - {"BRA"}]
        wanted = lambda loop: sum(loop.get(one, 0) for one in by)
        found[name] = max(loops, key=lambda loop: (wanted(loop), -sum(loop.values())), default={})
    return found


def counted(listing: str) -> dict[str, dict[str, int]]:
    """The histogram of a listing.

    >>> counted(".section .text.k\\n  /*0000*/  LDG.E.128.SYS R4, [R2] ;\\n  /*0010*/ @P0 FFMA R1, R4, R5, R1 ;")
    {'k': {'FFMA': 1, 'LDG.128': 1}}
    """
    parts = re.split(_SECTION, listing)[1:]
    return {name: _counts(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _counts(body: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name, suffixes in re.findall(_INSTRUCTION, re.sub(_NEVER, "", body)):
        width = next((w for w in ("64", "128") if w in suffixes.split(".")), "") if name in _WIDE else ""
        counts[f"{name}.{width}" if width else name] += 1
    counts.pop("NOP", None)
    return dict(sorted(counts.items()))
