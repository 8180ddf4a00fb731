"""Where a figure comes from: date, machine, versions and commit, the stamp that every kept result begins with."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from rollergen.hal.probes.host_facts import cpu_model

PACKAGES = ("rollergen", "numpy", "torch", "onnxruntime", "pyopencl", "pocl-binary-distribution", "sympy")
_CODE = (".", ":(exclude)benches/results")
"""Of a checkout what decides figures; results are written one after the other, and are no change of it."""
ROOT = Path(__file__).resolve().parents[2]
"""The checkout, where rollergen was installed from one."""


def origin(*more: str) -> dict[str, Any]:
    """``date`` (UTC), ``machine`` (cpu, cores_used, cores), ``versions`` (of Python, `PACKAGES` and ``more``, "absent"
    for those that are), ``commit`` (empty where there is no git) and ``uncommitted_changes`` of this run."""
    versions = {"python": platform.python_version()}
    for package in (*PACKAGES, *more):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores_used": _cores_used(), "cores": os.cpu_count()},
        "versions": versions,
        "commit": commit(),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *_CODE)),
    }


def commit(root: Path = ROOT) -> str:
    """Of the checkout; empty where there is none, or no git."""
    return _git("rev-parse", "HEAD", root=root)


def _cores_used() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _git(*words: str, root: Path = ROOT) -> str:
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
