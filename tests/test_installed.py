"""A wheel holds the whole package: what runs from a checkout runs installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "rollergen", "hal", "devices", "benches/suites")
PLACES = {
    "rollergen": "rollergen",
    "hal": "rollergen/hal",
    "devices": "rollergen/devices",
    "benches/suites": "rollergen/suite_data",
}
PAGES = {"devices/README.md", "devices/FIELDS.md", "devices/OTHER_MACHINES.md"}  # for readers of the checkout
PROGRAM = """
import rollergen as rg

S = rg.dim("S", 1, 64)
A, B, X = rg.tensor("A", (64, 64)), rg.tensor("B", (64, 64)), rg.tensor("X", (S, 64))
for expr, device in (rg.ops.matmul(A, B), "v100"), (rg.ops.relu(X), "mi50"), (rg.ops.relu(A), "ipu"):
    rg.build(expr, device=device, profile=False, cache=False).explain()
print(rg.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    for name in NEEDED:
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    words = ["wheel", "--no-index", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(folder), str(tree)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def shipped() -> set[str]:
    """Where each file of the checkout's packages lies in a wheel."""
    files = set()
    for folder, place in PLACES.items():
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT / folder)
            if path.is_file() and "__pycache__" not in inside.parts and f"{folder}/{inside}" not in PAGES:
                files.add(f"{place}/{inside.as_posix()}")
    return files


def test_a_wheel_holds_every_file_of_the_packages(wheel):
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert shipped() - held == set()
    assert held - shipped() == set()


def test_an_installed_wheel_builds_kernels_away_from_the_checkout(wheel, tmp_path):
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    where = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, cwd=tmp_path, env=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
