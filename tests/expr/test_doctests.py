"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import rollergen.expr


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(rollergen.expr.__path__)])
def test_examples_of_the_module_show_what_they_claim(name):
    module = importlib.import_module(f"rollergen.expr.{name}")
    assert doctest.testmod(module).failed == 0
