"""A wheel holds the whole package: what runs from a checkout runs installed."""

import ast
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

import rollergen as rg

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


@pytest.fixture(scope="module")
def site(wheel) -> Path:
    """A folder into which pip has installed the wheel."""
    folder = wheel.parent / "site"
    words = ["install", "--no-index", "--no-deps", "--quiet", "--target", str(folder), str(wheel)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_an_installed_wheel_builds_kernels_away_from_the_checkout(site, tmp_path):
    where = {**os.environ, "PYTHONPATH": str(site)}
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, cwd=tmp_path, env=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(site)


def test_an_installed_wheel_brings_the_command(site, tmp_path):
    """So that pipx can run it."""
    where = {**os.environ, "PYTHONPATH": str(site)}
    words = [sys.executable, str(site / "bin" / "rollergen"), "build", "matmul", "m=64", "n=64", "k=64", "--device", "v100"]
    done = subprocess.run(words, cwd=tmp_path, env=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("not run (the device is not present"), done.stderr


def test_the_version_is_the_same_wherever_it_stands(site):
    (found,) = distributions(name="rollergen", path=[str(site)])
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert found.version == rg.__version__ == cited == newest


def test_the_day_of_the_release_is_the_same_wherever_it_stands():
    (cited,) = re.findall(r"^date-released: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.findall(r"^## [\d.]+, (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert date.fromisoformat(cited) == date.fromisoformat(newest)


def test_no_page_gives_an_address_of_the_project():
    """There is none yet: what stands under a name of its own would be invented."""
    told = [(ROOT / name).read_text() for name in ("README.md", "CITATION.cff", "setup.cfg", "CONTRIBUTING.md", "docs/conf.py")]
    assert [text for text in told if re.search(r"https?://[^\s)>]*rollergen|^url|repository-code", text, re.MULTILINE)] == []


def test_the_metadata_says_what_runs_it_and_describes_itself(site):
    """The classifiers name the Pythons that nox tests; the least of them is the one required."""
    (found,) = distributions(name="rollergen", path=[str(site)])
    (tested,) = re.findall(r"python=(\[.*?\])", (ROOT / "noxfile.py").read_text())
    named = re.findall(r"Python :: (3\.\d+)", " ".join(found.metadata.get_all("Classifier")))
    assert named == ast.literal_eval(tested) and found.metadata["Requires-Python"] == f">={named[0]}"
    assert found.metadata["Description-Content-Type"].startswith("text/markdown")
    _, _, description = found.read_text("METADATA").partition("\n\n")  # setuptools' own finder makes it a header
    assert description.strip() == (ROOT / "README.md").read_text().strip()
