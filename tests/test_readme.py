"""What the README shows works as shown."""

import doctest
import importlib
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
