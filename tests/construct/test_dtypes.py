"""Every element type has programs, and those compute what the definition says."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.errors import DtypeError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import INTEGERS, is_float
from rollergen.hal.load import load_device
from rollergen.program.interpreter import interpret
from tests.program.hand_devices import AVX512, TURING
from tests.tensor_ops import evaluate_program, small_integers

EPSILON = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
"""Half the distance of neighbours, relative: what one rounding may change."""


@pytest.mark.every(11)
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
            assert np.array_equal(got, want.astype(got.dtype))  # modulo its range, as integers wrap


def _sum_and_largest(dtype, component):
    """Component of (sum, largest of squares) along the first of two axes."""
    A, k = rg.tensor("A", (160, 24), dtype), rg.reduce_axis("k", 160)
    both = lambda a, b: (a[0] + b[0], rg.maximum(a[1], b[1]))
    return rg.compute((24,), lambda j: rg.reduce(both, (0, 0), (A[k, j], A[k, j] * A[k, j]), axis=k)[component])


@pytest.mark.parametrize("device", [AVX512, load_device("cortex-a53")], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ["float64", "int64", "float32", "int32"])
@pytest.mark.parametrize("expression", [lambda t: _sum_and_largest(t, 0), lambda t: _sum_and_largest(t, 1),
                                        lambda t: rg.ops.argmax(rg.tensor("A", (160, 24), t), 0)])  # fmt: skip
def test_a_tuple_is_reduced_along_a_leading_axis_in_every_dtype(expression, dtype, device):
    """Its partial results do not wait in an output, which holds one component, however wide that is."""
    ranked = construct(canonicalize(expression(dtype)), device)
    for one in ranked[:2]:
        arrays = small_integers(one.program)
        (output,) = one.program.outputs
        got = interpret(one.program, arrays, device).outputs[output.name]
        assert np.array_equal(got, evaluate_program(one.program, arrays)[output.name])


@pytest.mark.parametrize(("dtype", "make"), [
    ("float64", lambda x: rg.ops.mul(x, 2.0)), ("float64", lambda x: rg.ops.sum(x, -1)),
    ("float64", lambda x: rg.ops.cast(x, "float32")),
    ("float32", lambda x: rg.ops.cast(rg.ops.mul(rg.ops.cast(x, "float64"), 0.1), "float32")),
])  # fmt: skip
def test_float64_is_refused_where_no_instruction_computes_in_it(dtype, make):
    with pytest.raises(DtypeError, match="is computed in float64, for which mali-g71 has no instruction; expected float32"):
        rg.build(make(rg.tensor("x", (8, 8), dtype)), "mali-g71")
