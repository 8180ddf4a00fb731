"""The user's cache directory of rollergen, and how much it may hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

DIRECTORY_VARIABLE = "ROLLERGEN_CACHE_DIR"
"""Environment variable with another directory than the user's cache directory."""
LIMIT_VARIABLE = "ROLLERGEN_CACHE_LIMIT"
"""Environment variable with another bound of all that lies there, in bytes or with a unit."""
DEFAULT_BYTES = 1 << 30
LEAST_BYTES = 1 << 20
_UNITS = {"": 0, "B": 0, "KIB": 10, "MIB": 20, "GIB": 30, "TIB": 40}


def cache_directory() -> Path:
    """``$ROLLERGEN_CACHE_DIR`` where that is set, else rollergen's in the user's cache directory."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        return Path(directory)
    import platformdirs

    return Path(platformdirs.user_cache_dir("rollergen"))


def limit_bytes() -> int:
    """``$ROLLERGEN_CACHE_LIMIT``, else 1 GiB.  ValueError for anything else than a size of at least 1 MiB."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return DEFAULT_BYTES
    match = re.fullmatch(r"(\d{1,18})\s*([A-Za-z]*)", text, re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or int(match[1]) << unit < LEAST_BYTES:
        raise ValueError(f"{LIMIT_VARIABLE} is {text!r:.40}; expected at least 1 MiB, such as 1073741824 or 1GiB")
    return int(match[1]) << unit
