"""The path of the store."""

from __future__ import annotations

from pathlib import Path

from rollergen.hal.files.user_cache import cache_directory

FILE_NAME = "kernels.sqlite"


def store_path() -> Path:
    """The file, in the cache directory."""
    return cache_directory() / FILE_NAME
