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
