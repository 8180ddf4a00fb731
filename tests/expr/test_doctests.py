"""The examples in docstrings run."""

import doctest
import importlib

import pytest

import rollergen as rg
from tests.imports import modules

WITH_EXAMPLES = [name for name, path in modules().items() if ">>> " in path.read_text()]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_the_module_show_what_they_claim(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_operator_shows_an_example():
    for name in rg.ops.__all__:
        assert ">>> rg.ops." + name + "(" in getattr(rg.ops, name).__doc__, name


@pytest.mark.parametrize("name", rg.ops.__all__)
def test_the_example_of_an_operator_shows_what_it_claims(name):
    """Those of the tables' rows as well, which belong to no module."""
    example = doctest.DocTestParser().get_doctest(getattr(rg.ops, name).__doc__, {}, name, None, None)
    assert doctest.DocTestRunner().run(example).failed == 0
