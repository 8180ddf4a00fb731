"""What the fuzzer of formulas has found, each with the seed that showed it."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.program.interpreter import interpret
from tests.fuzzing.formulas.trials import results


def interpreted(tensor, device, *arrays):
    return rg.build(tensor, device, top_k=1, profile=False, cache=False).interpret(*arrays)


@pytest.mark.parametrize("device", ["ipu", "ipu2", "v100", "cpu"])
def test_a_tensor_of_which_nothing_is_read_has_owners_all_the_same(device):
    """Seed 60070: a guard that never holds left a machine of tiles no box of the tensor to deal."""
    x, y = rg.tensor("x", (3, 5)), rg.tensor("y", (3,))

    def body(i, j):  # j at most 1 and at least 4
        at = i % 2 + j - 5
        return rg.select((j <= 1) & (at >= 0) & (at < 5), x[j, at], 2.0) + y[i]

    never = rg.compute((3, 4), body)
    rows = np.arange(3, dtype=np.float32)
    made = interpreted(never, device, np.ones((3, 5), np.float32), rows)
    assert np.array_equal(made, np.broadcast_to(rows[:, None] + 2, (3, 4)))


def windows(inside, outside):
    """A window of y, whose positions of two axes may be walked as one over padded lines, times x or plus x."""
    y, k = rg.tensor("y", (6, 11)), rg.reduce_axis("k", 3)

    def body(i, j):
        at = i * 3 + k * 2
        return rg.sum(rg.select(at < 6, y[at, j + k * 3], 3.0) * inside(i, j), axis=k) + outside(i, j)

    return rg.compute((2, 4), body)


@pytest.mark.parametrize("device", ["cortex-a53", "cpu", "mi50"])
@pytest.mark.parametrize("where", ["packed", "read in the sum", "read after the sum"])
def test_the_padding_of_a_window_s_lines_reads_nothing_of_other_operands(where, device):
    """Seeds 1700028 and 2000058: positions in the padding, which are not stored, read beyond the end of x."""
    x = rg.tensor("x", (2,) if where == "packed" else (2, 7))
    reads = {"packed": lambda i, j: x[((j + 1) // 2 + 1) // 3]}.get(where, lambda i, j: x[i, j * 2])
    made = windows(lambda i, j: 1.0, reads) if "after" in where else windows(reads, lambda i, j: 0.0)
    arrays = {"x": np.arange(x.shape[-1] * 2.0)[: np.prod(x.shape)].reshape(x.shape), "y": np.arange(66.0).reshape(6, 11)}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    want = expected(arrays["x"], arrays["y"], where)
    for program in rg.construct(made, device, 10):
        got = interpret(program, arrays, rg.load_device(device)).outputs
        assert np.array_equal(got[program.outputs[0].name], want)


def expected(x, y, where):
    at = lambda i, j: x[((j + 1) // 2 + 1) // 3] if where == "packed" else x[i, j * 2]
    found = np.zeros((2, 4))
    for i, j, k in np.ndindex(2, 4, 3):
        window = y[i * 3 + k * 2, j + k * 3] if i * 3 + k * 2 < 6 else 3.0
        found[i, j] += window if "after" in where else window * at(i, j)
    return found + (np.array([[at(i, j) for j in range(4)] for i in range(2)]) if "after" in where else 0)


@pytest.mark.parametrize("dtype", ["uint16", "int8", "uint8", "int16"])
@pytest.mark.parametrize("step", [0, 1])
def test_a_condition_in_a_sum_compares_what_is_read_as_widely_as_numbers(dtype, step):
    """Seed 8000368: what was read stayed narrow beside a number of the sum's dtype; vectors of both do not compare."""
    x, k = rg.tensor("x", (4, 18), dtype), rg.reduce_axis("k", 2)
    chosen = lambda value: rg.select(value >= 3, rg.cast(5, dtype), rg.cast(1, dtype))
    largest = lambda i: rg.reduce(rg.maximum, 0, chosen(x[i, k * step]), axis=k)
    kernel = rg.build(rg.compute((4,), lambda i: rg.cast(largest(i), dtype)), "cpu", top_k=1, profile=False, cache=False)
    read = np.arange(72).reshape(4, 18).astype(dtype) % 5
    assert np.array_equal(kernel(read), np.where(read[:, : 1 + step] >= 3, 5, 1).max(1))


def test_text_for_gpus_is_run_as_it_is_written():
    """Seed 7000255: PoCL's optimiser lost the store of every element, whose condition a read between barriers has."""
    k = rg.reduce_axis("k", 32)
    x, y = rg.tensor("x", (49, 34), "int16", constant=True), rg.tensor("y", (9, 33), "int16", constant=True)

    def body(i, j):
        row, column = (k - (j + 3) % 7) // 4 + 2, j + k - 1
        inside = (row < 9) & (column >= 0)
        return rg.cast(rg.sum(x[k + j + i, j + k] * rg.select(inside, y[row, column], -5), axis=k), "int16")

    made = rg.compute((9, 3), body, name="made")
    arrays = {"x": np.arange(49 * 34).reshape(49, 34) % 11 - 5, "y": np.arange(9 * 33).reshape(9, 33) % 7 - 3}
    arrays = {name: array.astype(np.int16) for name, array in arrays.items()}
    ran, right = (results([made], arrays, how, 7000255)[0] for how in ("run:mi50", "mi50"))
    assert np.array_equal(ran, right) and np.array_equal(right, made.evaluate(**arrays))


@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize("step", [0, 1])
def test_a_second_sum_inside_the_vectors_of_the_first_leaves_no_candidate_out(device, step):
    """Seed 9300995: vectors along the first axis were to be read inside the loop over the second."""
    x, y = rg.tensor("x", (88,), "int32"), rg.tensor("y", (8,), "int32")
    k0, k1 = rg.reduce_axis("k0", 9), rg.reduce_axis("k1", 2)
    body = lambda i, j: rg.sum(x[i * 3 + k0 + step * 16 * k1] * y[(k1 + j) % 4] * 3, axis=(k0, k1))
    made = rg.compute((2, 2), body)
    arrays = {"x": np.arange(88, dtype=np.int32), "y": np.arange(8, dtype=np.int32) - 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        programs = rg.construct(made, device, 10)
    for program in programs:
        got = interpret(program, arrays, rg.load_device(device)).outputs
        assert np.array_equal(got[program.outputs[0].name], made.evaluate(**arrays))


def test_a_fraction_beyond_an_array_is_no_whole_number_to_the_check():
    """Seed 9600200: the sum is rounded to -4 or -5 in float8_e5m2, which the check took for exact."""
    x, k = rg.tensor("x", (45, 11), "float8_e5m2"), rg.reduce_axis("k", 4)
    body = lambda i, j: rg.sum(rg.select(j >= k, x[j * 2 + k * 3, j - k], -1.5), axis=k) - 1.0
    kernel = rg.build(rg.compute((1, 1), body), "cpu", cache=False)  # raises where no candidate passes
    assert kernel(np.ones((45, 11), ml_dtypes.float8_e5m2)) in (-4, -5)
