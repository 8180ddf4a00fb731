"""Whether a file is still the one that was read."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[str, int, int, int, int]


def stamp(path: Path) -> Stamp | None:
    """What changes with the file's content, owner or mode; None where it cannot be looked at.

    Two writes within one tick of the clock (milliseconds) that leave its size look alike.
    """
    try:
        told = path.stat()
    except (OSError, ValueError):
        return None
    return str(path), told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns
