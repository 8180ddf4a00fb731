"""What the README shows works as shown."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rollergen.bench.readme import rendered
from rollergen.errors import ArgumentError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_runs_and_is_right(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(compile(example, "README.md", "exec"), names)
    np.testing.assert_allclose(names["c"], names["a"] @ names["b"], rtol=1e-4)
    assert "<- binds" in capsys.readouterr().out


def claims(text):
    """Each sentence, each part of one between semicolons, and each row of a table; no code, heading or picture."""
    plain = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    plain = re.sub(r"^\|[^\n]*\|\n\|[-|]+\|$", "", plain, flags=re.MULTILINE)  # heads of tables
    for block in re.split(r"\n\n|\n(?=[-|#!])", plain):
        if block.startswith("|"):
            yield block
        elif not block.startswith(("#", "!")):
            yield from filter(None, re.split(r"(?<=[.;])\s+", " ".join(block.removeprefix("- ").split())))


def shows(target):
    """Whether a link leads to a result, a test, or a page whose lines the tests run or that has links to these."""
    path = ROOT / target.partition("#")[0]
    if path == ROOT:
        return f"\n## {target[1:].capitalize()}\n" in README
    page = path.read_text() if path.suffix == ".md" else ""
    kept = ("benches/results/", "tests/", "noxfile.py", "LICENSE", "CITATION.cff")
    return target.startswith(kept) or "```pycon" in page or "benches/results/" in page or "tests/" in page


def test_every_claim_leads_to_what_shows_it():
    """But rows of devices on which nothing was tried."""
    found = [one for one in claims(README) if not one.endswith(" no | no | no |")]
    bare = [one for one in found if not any(shows(target) for target in re.findall(r"\]\(([^)\s]+)\)", one))]
    assert len(found) > 30 and bare == []


def test_a_claim_without_a_link_is_found():
    text = "A sentence. One [linked](tests/a.py); one not.\n- A point.\n\n| head |\n|---|\n| row |\n```\ncode.\n```\n"
    assert list(claims(text)) == ["A sentence.", "One [linked](tests/a.py);", "one not.", "A point.", "| row |"]
    assert shows("tests/test_readme.py") and not shows("docs/glossary.md")


def test_every_operator_named_is_there():
    import rollergen as rg

    page = (ROOT / "docs" / "expressions.md").read_text()
    listed = re.search(r"<!-- generated: operators -->\n```\n(.*?)```", page, re.DOTALL).group(1)
    assert set(rg.ops.__all__) <= set(re.findall(r"\w+", listed))


def a_result(tmp_path, day, **content):
    (tmp_path / "benches" / "results").mkdir(parents=True, exist_ok=True)
    (tmp_path / "benches" / "results" / f"x_cpu_{day}.json").write_text(json.dumps(content))


def test_a_figure_is_written_anew_from_the_newest_result_with_as_many_decimals(tmp_path):
    a_result(tmp_path, "2026-01-01", rows=[{"mean ms": 1.0}])
    a_result(tmp_path, "2026-01-02", rows=[{"mean ms": 2.345}])
    old = "so [1.00](benches/results/x_cpu_2026-01-01.json#rows/0/mean%20ms) ms."
    assert rendered(old, tmp_path) == "so [2.35](benches/results/x_cpu_2026-01-02.json#rows/0/mean%20ms) ms."


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[1.5](benches/results/absent.json#cases/ratio)", "there is no benches/results/absent.json"),
        ("[1](benches/results/x_cpu_2026-01-01.json#rows/1)", "has no '1' of #rows/1"),
        ("[1](benches/results/x_cpu_2026-01-01.json#rows)", "has list at #rows; expected a number"),
        ("[1](benches/results/x_cpu_2026-01-01.json)", "has no '' of #"),
        ("[5 ms](benches/results/x_cpu_2026-01-01.json#rows/0)", "expected a number alone"),
    ],
)
def test_a_figure_without_its_result_is_told(tmp_path, link, said):
    a_result(tmp_path, "2026-01-01", rows=[7])
    with pytest.raises(ArgumentError, match=re.escape(said)):
        rendered(link, tmp_path)
