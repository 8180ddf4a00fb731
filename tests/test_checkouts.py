"""Two checkouts never mix: whichever package is imported brings its own hal, devices and lists of operators."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rollergen

ROOT = Path(rollergen.__file__).resolve().parent.parent
PARTS = ("rollergen.hal.spec", "rollergen.devices", "rollergen.suite_data", "rollergen.expr.language")
SHOW = f"import importlib; [print(importlib.import_module(name).__file__) for name in {PARTS!r}]"

pytestmark = pytest.mark.skipif(not (ROOT / "hal").is_dir(), reason="installed without its checkout")


@pytest.fixture
def other(tmp_path):
    """A second checkout beside the one that is installed."""
    skip = shutil.ignore_patterns("__pycache__", "results", "data")
    for folder in ("rollergen", "hal", "devices", "benches/suites"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=skip)
    return tmp_path


@pytest.mark.parametrize("how", ["folder", "path"])
def test_a_second_checkout_uses_its_own_parts(other, tmp_path, how):
    where = {"cwd": other} if how == "folder" else {"env": {**os.environ, "PYTHONPATH": str(other)}, "cwd": "/"}
    found = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, **where)
    assert all(Path(line).resolve().is_relative_to(other) for line in found.stdout.split())


def test_the_parts_in_the_package_are_the_folders_at_the_top():
    for name, folder in (("hal", "hal"), ("devices", "devices"), ("suite_data", "benches/suites")):
        assert (ROOT / "rollergen" / name).resolve() == ROOT / folder
