"""Products of narrow floats converted to float32 beforehand: definition, interpreter and source agree, edges included."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, interpreted, run_opencl, small_integers
from tests.program.hand_devices import AVX512

T = rg.tensor


def matmul(dtype):
    return rg.ops.matmul(T("A", (19, 31), dtype), T("B", (31, 50), dtype))


def constant(dtype):
    return rg.ops.matmul(T("A", (20, 40), dtype), T("B", (40, 70), dtype, constant=True))


def weights_by_rows(dtype):
    return rg.ops.linear(T("X", (6, 48), dtype), T("W", (40, 48), dtype), T("bias", (40,), dtype))


def convolution(dtype):
    return rg.ops.conv2d(T("X", (2, 5, 9, 11), dtype), T("W", (12, 5, 3, 3), dtype), stride=2, padding=1)


def square(dtype):
    """A product of a tensor with itself, which is converted once."""
    x, k = T("X", (24, 24), dtype), rg.reduce_axis("k", 24)
    return rg.compute((24, 24), lambda i, j: rg.sum(x[i, k] * x[k, j], axis=k))


def programs(expression):
    graph, found = canonicalize(expression), {}
    (op,) = graph.tensor_ops
    for variant in variants(op, AVX512):
        if variant.name.startswith("in float32"):
            for one in serial_candidates(variant, AVX512, AlignmentRules(), 1, Ledger()):
                found.setdefault(one.variant, program_of(graph, AVX512, [one]).program)
    return list(found.values())


@pytest.mark.every(7)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [matmul, constant, weights_by_rows, convolution, square])
def test_all_readers_agree_on_operands_converted_beforehand(make, dtype):
    expression = make(dtype)
    found = programs(expression)
    assert found
    for program in found:
        assert {load.dtype for load in program.stages[-1].op.body_loads()} == {"float32"}
        arrays = small_integers(program)
        want = np.asarray(expression.evaluate(*(arrays[buffer.name] for buffer in program.inputs)), np.float64)
        result, blocks = interpreted(program, arrays, AVX512, most_blocks=10_000)
        out = program.outputs[0].name
        assert result.written[out].all()
        np.testing.assert_array_equal(np.asarray(result.outputs[out], np.float64), want)
        assert_traffic(program, result.traffic, AVX512, blocks)
        np.testing.assert_array_equal(np.asarray(run_opencl(program, arrays, AVX512)[out], np.float64), want)


def test_the_model_converts_beforehand_where_elements_are_read_often():
    product = lambda rows: rg.ops.matmul(T("A", (rows, 512), "float16"), T("B", (512, 512), "float16"))
    (many,), (one,) = (construct(canonicalize(product(rows)), AVX512, top_k=1) for rows in (512, 1))
    assert many.variants[0].startswith("in float32") and not one.variants[0].startswith("in float32")
