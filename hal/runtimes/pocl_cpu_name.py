"""A CPU name that PoCL's clang can use, where its LLVM does not know the host.

PoCL asks LLVM for the host's name and passes it to clang as target CPU.  LLVM calls a CPU that is newer
than itself "generic", which clang for x86 refuses (``unknown target CPU 'generic'``, pocl issue 1049), so
on such a machine no kernel builds at all.  LLVM 14 calls Zen 4 by the name of Zen 3, which lacks AVX-512, while
PoCL chooses its library of builtins by the features that the host has: of code for AVX2 with builtins for AVX-512
LLVM makes nothing, and ends the process ("Cannot select: i64 = fsqrt", "Do not know how to split this operator's
operand").  No build option and no environment variable overrides the name: PoCL sets it after it has read both.  The
name is a heap string that the device structure points to, so this module finds that pointer and writes a name in its
place that clang knows and whose features the host has.  The string is read through /proc/self/mem, which fails instead
of faulting on a wrong address, and it is changed only if it reads exactly as one of `MISTAKEN`.

This module needs nothing but Python: saved kernels carry a copy of it beside their launcher.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

_STRUCT_BYTES = 2048
_ROOM = 24
"""Bytes that malloc hands out at least, whatever was asked for (glibc, 64 bit)."""

_HASWELL = frozenset({"avx2", "fma", "bmi1", "bmi2", "movbe", "f16c"})

_SKYLAKE = _HASWELL | {"adx", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
NAMES: tuple[tuple[str, frozenset[str]], ...] = (
    ("cooperlake", _SKYLAKE | {"avx512_vnni", "avx512_bf16"}),
    ("cascadelake", _SKYLAKE | {"avx512_vnni"}),
    ("skylake-avx512", _SKYLAKE),
    ("haswell", _HASWELL),
    ("x86-64", frozenset({"sse2"})),
)
"""Names newest first, with the flags of /proc/cpuinfo that each takes for granted.  skylake-avx512 is what
PoCL's library of builtins is compiled for, so that they are inlined; cascadelake has dot products of bytes as well,
and cooperlake those of pairs of bfloat16."""

MISTAKEN: dict[str, frozenset[str]] = {"generic": frozenset(), "znver3": frozenset({"avx512f"})}
"""Names that LLVM 14 gives to processors newer than itself, with the flags that tell such a one from those that the
name is of."""

_MENDED: dict[int, str] = {}


class UnknownProcessorError(RuntimeError):
    """PoCL does not know this processor, and its idea of it cannot be changed."""


def host_flags() -> frozenset[str]:
    """Feature flags of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith("flags"):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def best_name(flags: frozenset[str]) -> str | None:
    """The newest name of `NAMES` whose features are all in `flags`."""
    return next((name for name, needed in NAMES if needed <= flags), None)


def is_mistaken(name: str, flags: frozenset[str]) -> bool:
    """Whether LLVM cannot mean a processor with these flags by this name."""
    return name in MISTAKEN and flags >= MISTAKEN[name]


def mend_cpu_name(structure: int, version: str) -> str | None:
    """Replace a mistaken name in PoCL's device structure at address `structure`.

    `version` is CL_DEVICE_VERSION, which ends in the name that LLVM found (and keeps its first value).
    Returns the new name; None where nothing needs mending.  Raises `UnknownProcessorError` where the
    name needs mending and cannot be: otherwise later builds would fail with clang's complaint, or end the process.
    """
    found, flags = version.rpartition("-")[2], host_flags()
    if platform.system() != "Linux" or platform.machine() != "x86_64" or not is_mistaken(found, flags):
        return None
    if structure in _MENDED:
        return _MENDED[structure]
    name = best_name(flags)
    address = _find(structure, found.encode() + b"\0")
    if name and address is None and _find(structure, name.encode() + b"\0") is not None:
        return name  # another copy of this module was here before
    if name is None or address is None or len(name) >= _ROOM:
        raise UnknownProcessorError(
            f"PoCL ({version}) does not know this processor, so its compiler builds nothing, and its idea of it "
            "cannot be changed here; use a newer PoCL"
        )
    ctypes.memmove(address, name.encode() + b"\0", len(name) + 1)
    _MENDED[structure] = name
    return name


def _find(structure: int, text: bytes) -> int | None:
    """Where a pointer of the structure leads to this text."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        block = _read(memory, structure, _STRUCT_BYTES)
        for offset in range(0, len(block) - 7, 8):
            (pointer,) = struct.unpack_from("<Q", block, offset)
            if 4096 < pointer < 1 << 47 and _read(memory, pointer, len(text)) == text:
                return int(pointer)
    finally:
        os.close(memory)
    return None


def _read(memory: int, address: int, count: int) -> bytes:
    try:
        return os.pread(memory, count, address)
    except (OSError, OverflowError):
        return b""
