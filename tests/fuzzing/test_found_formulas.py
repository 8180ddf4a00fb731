"""What the fuzzer of formulas has found, each with the seed that showed it."""

import numpy as np
import pytest

import rollergen as rg


def interpreted(tensor, device, *arrays):
    return rg.build(tensor, device, top_k=1, profile=False, cache=False).interpret(*arrays)


@pytest.mark.parametrize("device", ["ipu", "ipu2", "v100", "cpu"])
def test_a_tensor_of_which_nothing_is_read_has_a_home_all_the_same(device):
    """Seed 60070: a guard that never holds left a machine of tiles no box of the tensor to deal."""
    x, y = rg.tensor("x", (3, 5)), rg.tensor("y", (3,))

    def body(i, j):  # j at most 1 and at least 4
        at = i % 2 + j - 5
        return rg.select((j <= 1) & (at >= 0) & (at < 5), x[j, at], 2.0) + y[i]

    never = rg.compute((3, 4), body)
    rows = np.arange(3, dtype=np.float32)
    made = interpreted(never, device, np.ones((3, 5), np.float32), rows)
    assert np.array_equal(made, np.broadcast_to(rows[:, None] + 2, (3, 4)))
