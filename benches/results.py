"""Where a figure comes from: machine, versions, commit; and the file it is kept in."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from rollergen.hal.host import cpu_model

ROOT = Path(__file__).resolve().parent.parent


def origin() -> dict[str, Any]:
    """Machine, versions and commit of this run."""
    versions = {"python": platform.python_version()}
    for package in ("rollergen", "numpy", "torch", "onnxruntime", "pyopencl", "pocl-binary-distribution", "sympy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores_used": sorted(os.sched_getaffinity(0)), "cores": os.cpu_count()},
        "versions": versions,
        "commit": commit(),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


PRODUCT = ("rollergen", "hal", "devices")
"""What decides which kernels are made, and what is predicted of them."""


def code_changed_since(commit: str, root: Path = ROOT) -> bool | None:
    """Whether `PRODUCT` differs from what it was at the commit; None where there is no git that could tell."""
    words = ["git", "-C", str(root), "diff", "--quiet", commit, "--", *PRODUCT]
    code = subprocess.run(words, capture_output=True, check=False).returncode if commit else -1
    return {0: False, 1: True}.get(code)


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit() -> str:
    """Of this checkout; empty where there is no git."""
    return _git("rev-parse", "HEAD")


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
