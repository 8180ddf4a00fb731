"""Every element type has programs, and those compute what the definition says."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import INTEGERS, is_float
from rollergen.program.interpreter import interpret
from tests.definitions import evaluate_program, small_integers
from tests.program.hand_devices import AVX512, TURING

EPSILON = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
"""Half the distance of neighbours, relative: what one rounding may change."""


@pytest.mark.parametrize("device", [AVX512, TURING], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [*EPSILON, *INTEGERS])
def test_a_contraction_longer_than_any_k_block_is_right_in_every_dtype(dtype, device):
    """k = 80 exceeds the shortest block of a CPU's space: partial sums would wait in a narrow output."""
    graph = canonicalize(rg.ops.matmul(rg.tensor("A", (9, 80), dtype), rg.tensor("B", (80, 21), dtype)))
    ranked = construct(graph, device)
    assert ranked
    for one in ranked[:3]:
        arrays = small_integers(one.program)
        (output,) = one.program.outputs
        want = evaluate_program(one.program, arrays)[output.name]
        got = np.asarray(interpret(one.program, arrays, device).outputs[output.name])
        if is_float(dtype):
            error = np.abs(got.astype(np.float64) - want)
            assert (error <= EPSILON[dtype] * np.abs(want)).all()  # exact sums, rounded once as they are stored
        else:
            assert np.array_equal(got, want)
