"""What the README shows works as shown."""

import doctest
import importlib
import json
import re
from pathlib import Path

import numpy as np

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs_and_is_right(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(compile(example, "README.md", "exec"), names)
    np.testing.assert_allclose(names["c"], names["a"] @ names["b"], rtol=1e-4)
    assert "<- binds" in capsys.readouterr().out


def test_every_operator_named_is_there():
    import rollergen as rg

    listed = re.search(r"operators in `rg.ops` \((.*?)\)", README, re.DOTALL).group(1)
    assert {name.strip() for name in listed.split(",")} == set(rg.ops.__all__) - {"cumsum", "cumprod"}


def test_the_examples_of_build_and_signature_hold():
    for name in ("rollergen.build", "rollergen.signature"):
        assert doctest.testmod(importlib.import_module(name)).failed == 0


FIGURE = re.compile(r"\[([0-9.]+)\]\((benches/results/[^)#]+)#([^)]+)\)")


def stale_figures(text):
    """Figures that their result files do not hold, and links to results that are no figures."""
    links = len(re.findall(r"\[[0-9.][^\]]*\]\(benches/results/", text))
    wrong = [] if links == len(FIGURE.findall(text)) else ["a link into benches/results that names no figure of it"]
    for shown, file, place in FIGURE.findall(text):
        path = Path(__file__).parent.parent / file
        value = json.loads(path.read_text()) if path.exists() else {}
        for key in place.split("/"):
            value = value.get(key, {}) if isinstance(value, dict) else {}
        decimals = len(shown.partition(".")[2])
        if not isinstance(value, (int, float)) or f"{value:.{decimals}f}" != shown:
            wrong.append(f"{shown}: {file} has {value} at {place}")
    return wrong


def test_every_figure_stands_in_its_result_file():
    assert FIGURE.search(README) and stale_figures(README) == []


def test_a_figure_without_its_result_is_told():
    absent = "[1.5](benches/results/absent.json#cases/ratio)"
    assert stale_figures(absent) == ["1.5: benches/results/absent.json has {} at cases/ratio"]
    shown, file, place = FIGURE.search(README).groups()
    assert len(stale_figures(f"[9{shown}]({file}#{place})")) == 1
    assert stale_figures("[5 ms](benches/results/absent.json)")
