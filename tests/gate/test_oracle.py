"""A result is compared with the definition where the gate would compare it, within the gate's tolerance."""

import numpy as np

import rollergen as rg
from rollergen.gate.oracle import compare, expression_oracle
from rollergen.gate.points import sample_points
from tests import programs

PROGRAM = programs.gpu_matmul(70, 100, 37)
ORACLE = expression_oracle(
    (rg.ops.matmul(rg.tensor("A", (70, 37)), rg.tensor("B", (37, 100)), name="C"),), PROGRAM.outputs
)


def result():
    rng = np.random.default_rng(0)
    inputs = {"A": rng.random((70, 37), dtype=np.float32), "B": rng.random((37, 100), dtype=np.float32)}
    return inputs, inputs["A"] @ inputs["B"]


def test_a_right_result_is_accepted():
    inputs, c = result()
    compared, wrong = compare(PROGRAM, inputs, (c,), ORACLE)
    assert not wrong and 192 < compared == len(sample_points(PROGRAM, 0)["C"][0])


def test_each_element_is_compared_once():
    """Of a short output: all of it."""
    points = np.transpose(sample_points(PROGRAM, 0)["C"])
    assert len(np.unique(points, axis=0)) == len(points) == compare(PROGRAM, result()[0], (result()[1],), ORACLE)[0]
    short = programs.gpu_matmul(5, 3, 37)
    assert sorted(zip(*sample_points(short, 0)["C"], strict=True)) == [(i, j) for i in range(5) for j in range(3)]


def test_a_slightly_wrong_corner_is_named():
    inputs, c = result()
    c[-1, -1] *= 1.0001
    compared, wrong = compare(PROGRAM, inputs, (c,), ORACLE)
    assert compared > 192 and "compared elements of C are wrong" in wrong
