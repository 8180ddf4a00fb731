"""The user's cache directory of rollergen, and how much it may hold."""

from __future__ import annotations

import os
import re
import sys
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
    return Path(directory) if directory else user_directory()


def user_directory() -> Path:
    """rollergen's in the user's cache directory, as `platformdirs` has it: to import that takes 7 ms, and on Linux is
    not needed.  (XDG Base Directory Specification 0.8: a relative path is ignored.)"""
    if sys.platform != "linux":
        import platformdirs

        return Path(platformdirs.user_cache_dir("rollergen"))
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named if os.path.isabs(named) else os.path.expanduser("~/.cache")) / "rollergen"


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
