"""Small JSON files in which one process keeps for others what it found out, in the user's cache directory."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rollergen.hal.files.trusted import distrusted, read_untrusted

_MOST_BYTES = 1_000_000


def read_kept(path: Path) -> dict[str, Any]:
    """What is kept; nothing where others could have written it, for it decides how kernels are written and found."""
    try:
        content = {} if distrusted(path) else json.loads(read_untrusted(path, _MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def keep(path: Path, key: str, value: Any, most: int) -> None:
    """Keeps a value under its key, None: nothing, beside the latest others: so many in all."""
    others = [(one, kept) for one, kept in read_kept(path).items() if one != key]
    latest = others if value is None else [*others, (key, value)]
    write_kept(path, dict(latest[-most:]))


def write_kept(path: Path, content: dict[str, Any]) -> None:
    """Written whole or not at all; a cache directory that cannot be written costs the next process its time."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(content, indent=1).encode(), mode=0o600)


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes a file beside `path` that takes its name, so that whoever reads finds what was there or all of the new.

    ``mode``: of the file, less what the umask takes away.  Raises OSError, ValueError for a name that no file can have;
    then nothing is left of it.
    """
    fresh = path.with_name(f".{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(fresh, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(content)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
