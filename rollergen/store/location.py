"""Where the store lies."""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY_VARIABLE = "ROLLERGEN_CACHE_DIR"
"""Environment variable with another directory than the user's cache directory."""
FILE_NAME = "kernels.sqlite"


def store_path() -> Path:
    """The file: in ``$ROLLERGEN_CACHE_DIR`` where that is set, else in the user's cache directory."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        return Path(directory) / FILE_NAME
    import platformdirs

    return Path(platformdirs.user_cache_dir("rollergen")) / FILE_NAME
