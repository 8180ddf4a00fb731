"""Small JSON files in which one process keeps for others what it found out, in the user's cache directory."""

from __future__ import annotations

import json
import os
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


def write_kept(path: Path, content: dict[str, Any]) -> None:
    """Written whole or not at all; a cache directory that cannot be written costs the next process its time."""
    import tempfile

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        os.replace(file.name, path)
    except OSError:
        return
