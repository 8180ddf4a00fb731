"""Device specs of the user's own: files in one folder, known by their names as the built-in ones are.

`rollergen devices probe --opencl P:D` writes there.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "ROLLERGEN_DEVICES_DIR"
"""Environment variable with another folder than the one in the user's configuration."""


def user_folder() -> Path:
    """``$ROLLERGEN_DEVICES_DIR`` where that is set, else ``devices`` in rollergen's configuration of the user."""
    folder = os.environ.get(VARIABLE)
    if folder:
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_config_dir("rollergen")) / "devices"


def user_specs() -> dict[str, Path]:
    """Files of specs by name; none where there is no such folder."""
    try:
        return {path.stem: path for path in sorted(user_folder().glob("*.json")) if path.is_file()}
    except OSError:
        return {}
