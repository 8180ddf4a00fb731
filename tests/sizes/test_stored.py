"""Kernels for all sizes in the store: one entry each, by which the next build constructs and checks nothing."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import CacheWarning
from rollergen.store import admin
from rollergen.store.cache import forget_failures
from rollergen.store.location import store_path

T = rg.tensor


def expression(high=6, width=16, name="x"):
    return rg.ops.relu(rg.ops.linear(T(name, (rg.dim("S", 1, high), width)), T("w", (8, width), constant=True)))


def built(device="cpu", expr=None, **given):
    return rg.build(expression() if expr is None else expr, device, **given)


def rows(table):
    with closing(sqlite3.connect(store_path())) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.fixture
def found_alone(monkeypatch):
    """Called, it lets nothing be constructed or checked from then on."""

    def refused(*_args, **_named):
        raise AssertionError("the kernel was to be found")

    def refuse():
        monkeypatch.setattr("rollergen.sizes.build.regime_map", refused)
        monkeypatch.setattr("rollergen.sizes.build._passed", refused)

    return refuse


def test_a_kernel_for_all_sizes_is_one_entry_and_found_again(found_alone):
    made = built()
    assert (rows("models"), rows("kernels")) == (1, 0)
    found_alone()
    found = built()
    assert found.programs == made.programs and found.sources == made.sources
    assert found.explain(as_dict=True) == made.explain(as_dict=True)
    for size in (2, 5):
        x, w = np.ones((size, 16), np.float32), np.eye(8, 16, dtype=np.float32)
        np.testing.assert_array_equal(found(x, w), x @ w.T)
    assert not admin.verify(store_path(), deep=True).problems


@pytest.mark.parametrize(
    "other",
    [
        lambda: built(expr=expression(7)), lambda: built(expr=expression(name="y")), lambda: built(sizes={"S": [5]}),
        lambda: built(options=rg.BuildOptions(epsilon=1.0)), lambda: built(profile=False), lambda: built("v100"),
        lambda: built(cache=False),
    ],
    ids=["range", "name", "sizes", "options", "checks", "device", "cache"],
)  # fmt: skip
def test_another_kernel_is_not_taken_for_it(found_alone, other):
    built()
    found_alone()
    with pytest.raises(AssertionError, match="was to be found"):
        other()


def test_a_damaged_entry_is_told_of_and_built_anew(found_alone):
    made = built("v100")
    with closing(sqlite3.connect(store_path())) as connection, connection:
        connection.execute("UPDATE models SET steps = replace(steps, '\"count\":', '\"count\":1')")
    forget_failures()
    with pytest.warns(CacheWarning, match="is not what was written"):
        again = built("v100")
    assert again.programs == made.programs
    found_alone()
    assert built("v100").programs == made.programs
