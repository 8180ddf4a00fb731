"""Pages are true: their lines run in order, and show what the page says."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
LINES = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
RUN = sorted(path.name for path in DOCS.glob("*.md") if LINES.search(path.read_text()))
NEEDS = {"models.md": ("torch", "onnx")}


@pytest.mark.parametrize("name", RUN)
def test_a_page_runs_as_it_is_written(name, tmp_path, monkeypatch):
    for package in NEEDS.get(name, ()):
        if not importlib.util.find_spec(package):
            pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(LINES.findall((DOCS / name).read_text()))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    page = doctest.DocTestParser().get_doctest(lines, {}, name, str(DOCS / name), 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=flags).run(page, out=told.append)
    assert result.attempted and not result.failed, "".join(told)


def test_no_page_shows_python_that_does_not_run():
    """But the README, whose snippet `test_readme.py` runs."""
    assert {"alignment.md", "attention.md", "model.md", "models.md", "research.md", "sizes.md", "start.md"} <= set(RUN)
    assert [path.name for path in DOCS.glob("*.md") if "```python" in path.read_text()] == []
