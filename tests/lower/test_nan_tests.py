"""A maximum over several chains tells of a NaN wherever it lies, though its chains do not look for it."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.kernel import Kernel

CHAINED = "met_nan"
"""What the text has of chains that are tested in pairs."""


def kernels(expression, count=20, device="cpu"):
    """A kernel of each of the first candidates."""
    built = rg.build(expression, device, profile=False, top_k=count, cache=False)
    return [Kernel(built.device, built.candidates, one) for one in built.candidates]


def chained(found):
    return [one for one in found if CHAINED in one.source]


@pytest.mark.every(7)
@pytest.mark.parametrize(("how", "of_numpy"), [("amax", np.max), ("amin", np.min)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("columns", [1024, 333, 150])
def test_a_nan_shows_wherever_it_lies(how, of_numpy, dtype, columns):
    expression = getattr(rg.ops, how)(rg.tensor("X", (columns, columns), dtype), 1, name="Y")
    found = chained(kernels(expression))[:2]
    assert found
    x = np.random.default_rng(columns).normal(size=(columns, columns)).astype(dtype)
    np.fill_diagonal(x, np.nan)  # of each row another element
    x[3, 3], x[7, 7], x[20, 20:] = np.inf, -np.inf, np.nan
    x[21], x[22] = np.inf, -np.inf
    for kernel in found:
        got = kernel(x).astype(float)
        np.testing.assert_array_equal(got, of_numpy(x.astype(float), axis=1))
        np.testing.assert_array_equal(kernel.interpret(x).astype(float), got)


def test_rows_without_nan_are_as_before():
    expression = rg.ops.amax(rg.tensor("X", (40, 512)), 1, name="Y")
    x = np.random.default_rng(0).normal(size=(40, 512)).astype(np.float32)
    for kernel in chained(kernels(expression)):
        np.testing.assert_array_equal(kernel(x), x.max(1))


def test_a_nan_of_one_block_of_terms_does_not_leave_it():
    """Rows that one thread takes one behind the other begin anew."""
    expression = rg.ops.amax(rg.tensor("X", (64, 256)), 1, name="Y")
    x = np.zeros((64, 256), np.float32)
    x[::2, 100] = np.nan
    for kernel in chained(kernels(expression)):
        np.testing.assert_array_equal(np.isnan(kernel(x)), np.arange(64) % 2 == 0)


def test_halves_are_tested_one_by_one_and_keep_their_nan():
    x = np.random.default_rng(2).normal(size=(64, 512)).astype(np.float16)
    np.fill_diagonal(x, np.nan)
    for kernel in kernels(rg.ops.amax(rg.tensor("X", x.shape, "float16"), 1, name="Y")):
        assert CHAINED not in kernel.source
        np.testing.assert_array_equal(kernel(x), x.max(1))


def test_integers_and_single_chains_have_no_such_tests():
    assert not chained(kernels(rg.ops.amax(rg.tensor("X", (64, 1024), "int32"), 1, name="Y")))
    assert not chained(kernels(rg.ops.sum(rg.tensor("X", (64, 1024)), 1, name="Y")))


def test_a_maximum_over_everything_finds_its_nan():
    expression = rg.ops.amax(rg.tensor("X", (300, 1000)), (0, 1), name="Y")
    x = np.random.default_rng(1).normal(size=(300, 1000)).astype(np.float32)
    for kernel in kernels(expression):
        assert kernel(x) == x.max()
        for at in ((0, 0), (150, 517), (299, 999)):
            spoilt = x.copy()
            spoilt[at] = np.nan
            assert np.isnan(kernel(spoilt))


@pytest.mark.parametrize("device", ["cpu", "cortex-a53"])
def test_each_output_of_a_register_tile_has_lanes_of_its_own_that_met_a_nan(device):
    """Largest differences of rows: of several outputs in registers, each of several chains."""
    a, b, k = rg.tensor("a", (2, 64)), rg.tensor("b", (40, 64)), rg.reduce_axis("k", 64)
    farthest = rg.compute((2, 40), lambda i, j: rg.max(a[i, k] - b[j, k], axis=k))
    kernel = next(one for one in kernels(farthest, device=device) if f"{CHAINED}[" in one.source)
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=(rows, 64)).astype(np.float32) for rows in (2, 40))
    y[7, 50] = np.nan
    np.testing.assert_array_equal(kernel.interpret(x, y), (x[:, None] - y).max(2))
    if device == "cpu":
        np.testing.assert_array_equal(kernel(x, y), (x[:, None] - y).max(2))
