"""A result is compared with the definition where the gate would compare it, within the gate's tolerance."""

import numpy as np

import rollergen as rg
from rollergen.gate.oracle import compare, expression_oracle
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
    assert compare(PROGRAM, inputs, (c,), ORACLE) == (393, "")  # 192 edges, 192 anywhere, 9 corners


def test_a_slightly_wrong_corner_is_named():
    inputs, c = result()
    c[-1, -1] *= 1.0001
    compared, wrong = compare(PROGRAM, inputs, (c,), ORACLE)
    assert compared == 393 and "compared elements of C are wrong" in wrong
