"""Each example runs as its reader would run it, and prints what its page says it shows."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples"
NOTEBOOKS = ("explained", "new_device")
SHOWN = {
    "matmul": r"rollergen \d+ us, NumPy \d+ us\n.*multiply-adds",
    "softmax": r"launches: 1\n",
    "fused_block": r"one kernel +[\d.]+ us\n +four kernels +[\d.]+ us\n",
    "devices": r"v100 +[\d.]+  multiply-adds +i0 \d+ x i1 \d+",
    "new_device": r"softmax +\d+ us +\d+ us  1\.\d+\nmatmul +\d+ us +\d+ us  1\.00\n",
    "space": r"by fewest bytes: +[\d.]+ us",
    "sizes": r"512 tokens: \(512, 768\), largest error \d\.\de-07\n.*programs? for all sizes",
    "decoder": r"^(\d+ ){31}\d+\nkernel\(updated keys: float32\[2, 48, 16\], .*\) -> keys",
    "model": r"largest difference from PyTorch: .*4 steps, 4 distinct kernels, 0 steps run by the model's own",
}


def test_every_example_is_listed_short_and_run_here():
    scripts = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    assert set(scripts) == set(SHOWN)
    assert set(re.findall(r"`(\w+)\.py`", (FOLDER / "README.md").read_text())) == set(SHOWN)
    lines = {name: len(text.splitlines()) for name, text in scripts.items()}
    assert lines.pop("decoder") <= 65 and max(lines.values()) <= 40  # a whole decoder takes more


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_prints_what_it_shows(name, tmp_path):
    if name == "model" and not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed")
    words = [sys.executable, str(FOLDER / f"{name}.py")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(SHOWN[name], done.stdout, re.DOTALL), done.stdout


@pytest.fixture(scope="module")
def notebook():
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_notebook_is_listed():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)
    assert set(re.findall(r"\]\((\w+)\.ipynb\)", (FOLDER / "README.md").read_text())) == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_what_it_is_kept_with(name, notebook):
    """All cells run in order; those that do not depend on this machine say the same, and draw where they drew."""
    kept = json.loads((FOLDER / f"{name}.ipynb").read_text())
    found = notebook.executed(kept)
    for before, after in zip(kept["cells"], found["cells"], strict=True):
        if before["cell_type"] != "code":
            continue
        kinds = [[sorted(one.get("data", ())) for one in cell["outputs"]] for cell in (before, after)]
        assert kinds[0] == kinds[1], "".join(before["source"])
        if "varies" not in before["metadata"].get("tags", ()):
            assert notebook.texts(before) == notebook.texts(after), "".join(before["source"])
