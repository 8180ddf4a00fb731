"""Machine code that NVRTC has made before, in the user's cache directory: one file for each text, target and compiler.

Nothing that is wrong with the directory changes a result: the code is then compiled anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from rollergen.hal.files.kept import write_whole
from rollergen.hal.files.trusted import distrusted, read_untrusted
from rollergen.hal.files.user_cache import cache_directory, limit_bytes

PART = 8
"""One of so many parts of the cache's bound is what machine code may take; a kernel's is 5 to 100 KB."""
_LEFT = 0.75
"""Of that part, once the files used longest ago were removed."""
_MOST_BYTES = 1 << 26
_HASH_BYTES = 32


def folder() -> Path:
    return cache_directory() / "cubins"


def key(text: str, arch: str, options: Sequence[str], compiler: str) -> str:
    """Of all that machine code depends on."""
    return hashlib.sha256("\0".join((arch, compiler, *options, text)).encode()).hexdigest()


def find(key: str) -> bytes | None:
    """The code kept under `key`; None where there is none, it is damaged, or others may have written it."""
    path = folder() / key
    try:
        if distrusted(path):
            return None
        content = read_untrusted(path, _MOST_BYTES)
        os.utime(path)
    except OSError:
        return None
    code = content[_HASH_BYTES:]
    return code if content[:_HASH_BYTES] == hashlib.sha256(code).digest() else None


def keep(key: str, code: bytes) -> None:
    """Keeps `code`, whole or not at all, and removes what was used longest ago where all take more than their part."""
    try:
        most = limit_bytes() // PART
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder() / key, hashlib.sha256(code).digest() + code, mode=0o600)
        _keep_below(most)
    except (OSError, ValueError):  # ValueError: of the bound, which the store tells
        return


def size_bytes() -> int:
    """Of all files."""
    return sum(size for _, size, _ in _files())


def clear() -> int:
    """Removes all; how many bytes that were."""
    return sum(_remove(path, size) for _, size, path in _files())


def _keep_below(most: int) -> None:
    files = sorted(_files())
    size = sum(size for _, size, _ in files)
    if size <= most:
        return
    for _, own, path in files:
        size -= _remove(path, own)
        if size <= most * _LEFT:
            return


def _files() -> list[tuple[float, int, Path]]:
    """(when used last, bytes, path) of each; another process may be removing them."""
    found = []
    for path in folder().glob("*") if folder().is_dir() else ():
        try:
            facts = path.stat()
        except OSError:
            continue
        found.append((facts.st_mtime, facts.st_size, path))
    return found


def _remove(path: Path, size: int) -> int:
    try:
        path.unlink()
    except OSError:
        return 0
    return size
