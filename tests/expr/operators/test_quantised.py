"""Quantised operators equal their formulas in NumPy."""

import numpy as np
import pytest

import rollergen as rg
from tests.expr.operators.oracle import agree, given

ops = rg.ops
rng = np.random.default_rng(5)


def int8(*shape):
    return rng.integers(-128, 128, shape)


@pytest.mark.parametrize(("scale", "zero"), [(0.25, 0), (0.013, 5), (3.0, -128)])
def test_quantize_rounds_shifts_and_saturates(scale, zero):
    (x,), (a,), _ = given((5, 7))
    a = a * 100 * scale
    found = ops.quantize(x, scale, zero)
    assert found.dtype == "int8"
    agree(found, [a], np.clip(np.rint(a / scale) + zero, -128, 127))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_per_axis_has_a_scale_for_each_slice(axis):
    (x,), (a,), _ = given((5, 7))
    count = x.shape[axis]
    s, z = rg.tensor("s", (count,)), rg.tensor("z", (count,), "int32")
    scales, zeros = rng.uniform(0.01, 0.1, count), rng.integers(-9, 9, count)
    along = (count, 1) if axis == 0 else (1, count)
    wanted = np.clip(np.rint(a / scales.reshape(along)) + zeros.reshape(along), -128, 127)
    agree(ops.quantize(x, s, z, axis), [a, scales, zeros], wanted)
    agree(ops.quantize(x, s, axis=axis), [a, scales], np.clip(np.rint(a / scales.reshape(along)), -128, 127))


def test_dequantize_undoes_it():
    q = rg.tensor("q", (5, 7), "int8")
    a = int8(5, 7)
    agree(ops.dequantize(q, 0.25, -3), [a], (a + 3) * 0.25)
    s, z = rg.tensor("s", (7,)), rg.tensor("z", (7,), "int32")
    scales, zeros = rng.uniform(0.01, 0.1, 7), rng.integers(-9, 9, 7)
    agree(ops.dequantize(q, s, z, axis=-1), [a, zeros, scales], (a - zeros) * scales)
    assert ops.dequantize(q, 0.5, dtype="float16").dtype == "float16"


@pytest.mark.parametrize("transposed", [False, True])
def test_quantized_matmul_scales_an_exact_product(transposed):
    a, b = int8(5, 9), int8(9, 7)
    operands = rg.tensor("a", (5, 9), "int8"), rg.tensor("b", (7, 9) if transposed else (9, 7), "int8")
    arrays = [a, b.T if transposed else b]
    found = ops.quantized_matmul(*operands, 0.5, 0.125, transpose_b=transposed)
    assert found.dtype == "float32"
    agree(found, arrays, (a @ b) * 0.5 * 0.125)
    vectors = rg.tensor("sa", (5,)), rg.tensor("sb", (7,)), rg.tensor("bias", (7,))
    rows, columns, bias = rng.uniform(0.1, 1, 5), rng.uniform(0.1, 1, 7), rng.standard_normal(7)
    agree(
        ops.quantized_matmul(*operands, *vectors, transpose_b=transposed), [*arrays, rows, columns, bias],
        (a @ b) * rows[:, None] * columns + bias,
    )  # fmt: skip
    whole = rg.tensor("sa", ()), rg.tensor("sb", (7,))
    scaled = ops.quantized_matmul(*operands, *whole, transpose_b=transposed)
    agree(scaled, [*arrays, np.asarray(0.25), columns], (a @ b) * 0.25 * columns)
