"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import rollergen.expr


@pytest.mark.parametrize("name", [m.name for m in pkgutil.walk_packages(rollergen.expr.__path__, "rollergen.expr.")])
def test_examples_of_the_module_show_what_they_claim(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_operator_shows_an_example():
    import rollergen as rg

    refused = {"cumsum", "cumprod"}
    for name in set(rg.ops.__all__) - refused:
        assert ">>> rg.ops." + name + "(" in getattr(rg.ops, name).__doc__, name
