"""Conditions as values: compared, combined, chosen, cast and stored, whatever they come from."""

from itertools import product

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from tests.agreement.readers import device, run_opencl, small_integers

N = 77
KEPT = (("F", "float32"), ("D", "float64"), ("I", "int8"), ("L", "int64"))
F, D, I, L = (rg.tensor(name, (N,), dtype) for name, dtype in KEPT)  # noqa: E741
P, Q = rg.tensor("P", (N,), "bool"), rg.tensor("Q", (N,), "bool")
KINDS = {
    "float32": lambda k: F[k] < 0,
    "float64": lambda k: D[k] >= 1,
    "int8": lambda k: I[k] != 0,
    "int64": lambda k: L[k] <= 1,
    "stored": lambda k: P[k],
    "index": lambda k: k < 37,
    "one of all": lambda k: F[3] == 0,
}
"""Conditions that a vector holds in lanes of 4, 8, 1, 8, 1 and 4 bytes, and one that all lanes share."""
OPERATIONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "chosen": lambda a, b: rg.select(a, b, Q_or_not(b)),
    "nested": lambda a, b: (a == ~b) != (a | b),
}


def Q_or_not(condition):
    return condition != True  # noqa: E712  (a literal among conditions)


def bits(operation):
    """One bit for each pair of kinds."""
    pairs = list(product(KINDS.values(), repeat=2))

    def body(k):
        total = rg.cast(0, "int64")
        for a, b in pairs:
            total = total * 2 + rg.cast(operation(a(k), b(k)), "int64")
        return total

    return rg.compute((N,), body)


def assert_right(expression, name):
    spec = device(name)
    program = construct(canonicalize(expression), spec, top_k=1)[0].program
    arrays = small_integers(program)
    (want,) = [expression.evaluate(**arrays)]
    assert np.array_equal(run_opencl(program, arrays, spec)[program.outputs[0].name], want)


@pytest.mark.every(11)
@pytest.mark.parametrize("name", ["cpu", "mi50"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_conditions_of_every_pair_of_kinds(operation, name):
    assert_right(bits(OPERATIONS[operation]), name)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64"])
def test_a_comparison_of_conditions_is_stored_and_cast(dtype):
    assert_right(rg.compute((N,), lambda k: rg.cast((F[k] < 0) == Q[k], dtype)), "cpu")


@pytest.mark.parametrize("operator", ["equal", "not_equal"])
def test_operators_compare_tensors_of_conditions(operator):
    assert_right(getattr(rg.ops, operator)(P, Q), "cpu")
