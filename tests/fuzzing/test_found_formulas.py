"""What the fuzzer of formulas has found, each with the seed that showed it."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.program.interpreter import interpret


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


def test_what_a_window_s_padding_would_read_of_another_operand_is_not_packed():
    """Seed 1700028: positions of two axes walked as one reach the padding of lines, for which x[...] has no element."""
    x, y, k = rg.tensor("x", (2,)), rg.tensor("y", (6, 11)), rg.reduce_axis("k", 3)

    def body(i, j):
        at = i * 3 + k * 2
        window = rg.select(at < 6, y[at, j + k * 3], 3.0)
        return rg.sum(x[((j + 1) // 2 + 1) // 3] * window, axis=k)

    made = rg.compute((2, 4), body)
    a, b = np.array([2.0, 5.0], np.float32), np.arange(66, dtype=np.float32).reshape(6, 11)
    at = lambda i, j, n: b[i * 3 + n * 2, j + n * 3] if i * 3 + n * 2 < 6 else 3.0
    want = [[sum(a[((j + 1) // 2 + 1) // 3] * at(i, j, n) for n in range(3)) for j in range(4)] for i in range(2)]
    for program in rg.construct(made, "cortex-a53", 10):
        got = interpret(program, {"x": a, "y": b}, rg.load_device("cortex-a53")).outputs
        assert np.array_equal(got[program.outputs[0].name], want)
