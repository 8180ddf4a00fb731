"""The suites of the literature: every entry is the operator that its data describe."""

import json
from collections import Counter
from importlib.resources import files

import pytest

from rollergen.bench.suites import suite, suite_names
from rollergen.errors import ArgumentError
from rollergen.expr.canonical import canonicalize

DATA = json.loads(files("rollergen.suite_data").joinpath("roller_ops.json").read_text("utf-8"))


@pytest.mark.parametrize("op", DATA["ops"], ids=lambda op: op["id"])
def test_an_entry_has_the_shapes_of_its_description(op):
    made = suite("roller").entry(op["id"]).make()
    assert list(made.shape) == op["output"]["shape"] and made.dtype == op["dtype"]
    inputs = canonicalize(made).inputs
    assert [b.elements for b in inputs] == [_product(i["shape"]) for i in op["inputs"]]


def _product(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


_CLASS = {"avg_pool2d": "pooling", "reduce_sum": "reduction"}


def test_the_suites_count_what_the_literature_counts():
    kinds = Counter(_CLASS.get(entry.kind, entry.kind) for entry in suite("roller").entries)
    assert kinds == DATA["counts"] and kinds.total() == 119
    assert len(suite("autotvm-resnet18").entries) == 12


def test_names_are_distinct_and_found():
    for name in suite_names():
        entries = suite(name).entries
        assert len({e.id for e in entries}) == len(entries)
        assert suite(name).entry(entries[-1].id) is entries[-1]


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(ArgumentError, match="did you mean roller"):
        suite("rolller")
    with pytest.raises(ArgumentError, match="no entry of suite roller 'C99'"):
        suite("roller").entry("C99")
    with pytest.raises(ArgumentError, match=r"M0, M1, .* and 107 more"):
        suite("roller").entry("NOPE!")
