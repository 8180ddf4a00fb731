"""Where a figure comes from: machine, versions, commit; and the file it is kept in."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from rollergen.bench.origin import commit, origin
from rollergen.hal.host import cpu_model

__all__ = ["PRODUCT", "ROOT", "code_changed_since", "commit", "keep", "keep_at", "origin", "result_path"]

ROOT = Path(__file__).resolve().parent.parent

PRODUCT = ("rollergen", "hal", "devices")
"""What decides which kernels are made, and what is predicted of them."""


def code_changed_since(commit: str, root: Path = ROOT) -> bool | None:
    """Whether `PRODUCT` differs from what it was at the commit; None where there is no git that could tell."""
    words = ["git", "-C", str(root), "diff", "--quiet", commit, "--", *PRODUCT]
    code = subprocess.run(words, capture_output=True, check=False).returncode if commit else -1
    return {0: False, 1: True}.get(code)


def result_path(name: str) -> Path:
    """``results/<name>_<cpu>_<day>.json``."""
    cpu = re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return ROOT / "benches" / "results" / f"{name}_{cpu}_{day}.json"


def keep(name: str, content: dict[str, Any]) -> Path:
    """Writes `result_path` and returns it."""
    return keep_at(result_path(name), content)


def keep_at(path: Path, content: dict[str, Any]) -> Path:
    """Writes the file, whole or not at all."""
    written = path.with_suffix(".part")
    written.write_text(json.dumps({**origin(), **content}, indent=1) + "\n")
    written.replace(path)
    return path
