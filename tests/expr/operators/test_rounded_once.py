"""Operators of narrow dtypes round their result alone: what comes before is computed in the accumulator's dtype."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.dtypes import numpy_dtype

T, ops = rg.tensor, rg.ops
NARROW = ("float16", "bfloat16")
LOST = {"float16": 2049, "bfloat16": 257}
"""The least whole number that the dtype does not hold."""

WITH_BIAS = {
    "linear": (ops.linear, 0),
    "conv1d": (ops.conv1d, 1),
    "conv2d": (ops.conv2d, 2),
    "conv3d": (ops.conv3d, 3),
    "conv_transpose2d": (lambda x, w, b: ops.conv_transpose2d(x, ops.permute(w, (1, 0, 2, 3)), b), 2),
    "strided conv_transpose2d": (
        lambda x, w, b: ops.conv_transpose2d(x, ops.permute(w, (1, 0, 2, 3)), b, stride=2),
        2,
    ),
}
"""The operator and how many axes of one element follow the summed one."""
ACTIVATIONS = {
    "gelu": ops.gelu,
    "gelu by tanh": lambda x: ops.gelu(x, "tanh"),
    "silu": ops.silu,
    "sigmoid": ops.sigmoid,
    "leaky_relu": ops.leaky_relu,
}


def interpreted(expr, *arrays):
    return rg.build(expr, "v100", profile=False, cache=False, top_k=1).interpret(*arrays)


@pytest.mark.parametrize("name", WITH_BIAS)
@pytest.mark.parametrize("dtype", NARROW)
def test_a_bias_is_added_before_the_sum_is_rounded(name, dtype):
    count = LOST[dtype]
    operator, axes = WITH_BIAS[name]
    shape, kind = (1, count, *(1,) * axes), numpy_dtype(dtype)
    expr = operator(T("x", shape, dtype), T("w", shape, dtype), T("b", (1,), dtype))
    ones = np.ones(shape, kind)
    found = interpreted(expr, ones, ones, np.array([1 - count], kind))
    assert expr.dtype == dtype and found.ravel()[0] == 1  # a sum that is rounded first is count - 1


def test_an_int8_bias_is_added_in_int32():
    expr = ops.linear(T("x", (1, 2), "int8"), T("w", (1, 2), "int8"), T("b", (1,), "int8"))
    hundred = np.full((1, 2), 100, np.int8)
    assert expr.dtype == "int32"
    assert interpreted(expr, hundred, hundred, np.array([-1], np.int8)) == 2 * 100 * 100 - 1


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", NARROW)
def test_activations_are_the_definition_rounded_once(name, dtype):
    values = np.linspace(-4, 4, 257).astype(numpy_dtype(dtype))
    expr = ACTIVATIONS[name](T("x", values.shape, dtype))
    found = interpreted(expr, values).astype(np.float64)
    wanted = expr.evaluate(values)
    unit = np.spacing(np.abs(wanted).astype(np.float16)) if dtype == "float16" else np.abs(wanted) * 2**-7
    assert (np.abs(found - wanted) <= 0.51 * unit.astype(np.float64) + 1e-7).all()


def test_quantising_divides_before_it_rounds_to_steps():
    values = np.linspace(-0.4, 0.4, 4001).astype(np.float16)  # quotients of float16 reach halves that none of these are
    expr = ops.quantize(T("x", values.shape, "float16"), 0.0029)
    assert (interpreted(expr, values) == expr.evaluate(values)).all()


def test_products_of_int8_beyond_float16_are_scaled_before_they_are_rounded():
    k = 8
    expr = ops.quantized_matmul(T("a", (1, k), "int8"), T("b", (k, 1), "int8"), 0.01, 0.01, dtype="float16")
    a = np.full((1, k), 127, np.int8)
    assert abs(float(interpreted(expr, a, a.T)[0, 0]) - 127 * 127 * k / 1e4) < 0.01  # 129,032 itself is beyond 65,504


def test_int32_values_beyond_float16_are_scaled_before_they_are_rounded():
    expr = ops.dequantize(T("q", (1,), "int32"), 0.001, dtype="float16")
    assert interpreted(expr, np.array([100_000], np.int32)) == 100
