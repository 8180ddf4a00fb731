"""Calls of any size that update an array of the caller's."""

import numpy as np
import pytest

import rollergen as rg

POS = rg.scalar("pos", "int32", -16, 21)


@pytest.mark.parametrize("outside", ["wrap", "clip"])
def test_a_block_of_any_size_is_put_where_the_position_says(outside):
    ring, rows = rg.tensor("ring", (16, 3)), rg.tensor("rows", (rg.dim("S", 1, 11), 3))
    kernel = rg.build(rg.put(ring, rows + rows, POS, 0, outside), "cpu", profile=False, cache=False)
    assert kernel.signature == "kernel(updated ring: float32[16, 3], rows: float32[S, 3], pos: int32[]) -> ring"
    for size in (1, 5, 11):
        for position in (-16, 0, 3, 14, 21):
            given, block = np.random.rand(16, 3).astype("f"), np.random.rand(size, 3).astype("f")
            first = position if outside == "wrap" else min(max(position, 0), 16 - size)
            want = given.copy()
            want[(first + np.arange(size)) % 16] = 2 * block
            kernel(given, block, position)
            np.testing.assert_array_equal(given, want)


def test_the_array_that_is_updated_tells_its_size():
    cache, row = rg.tensor("cache", (2, rg.dim("S", 1, 26), 4)), rg.tensor("row", (2, 1, 4))
    kernel = rg.build(rg.put(cache, row, POS, 1, "wrap"), "cpu", profile=False, cache=False)
    for size in (1, 3, 26):
        given, one = np.random.rand(2, size, 4).astype("f"), np.random.rand(2, 1, 4).astype("f")
        want = given.copy()
        want[:, 7 % size] = one[:, 0]
        kernel(given, one, 7)
        np.testing.assert_array_equal(given, want)
