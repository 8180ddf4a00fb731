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


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16"])
def test_quantize_saturates_at_the_ends_of_its_dtype(dtype):
    (x,), (a,), _ = given((5, 7))
    info = np.iinfo(dtype)
    a = a * info.max
    found = ops.quantize(x, 0.5, 3, dtype=dtype)
    assert found.dtype == dtype
    agree(found, [a], np.clip(np.rint(a / 0.5) + 3, info.min, info.max))


def test_quantize_to_float8_rounds_no_integers_and_saturates():
    found = ops.quantize(rg.tensor("x", (3,)), 0.5, dtype="float8_e4m3fn")
    agree(found, [np.array([0.1875, 300.0, -0.5])], [0.375, 448.0, -1.0])
    with pytest.raises(rg.errors.ExpressionError, match="zero_point is 1; expected an integer from 0 to 0"):
        ops.quantize(rg.tensor("x", (3,)), 0.5, 1, dtype="float8_e5m2")


def test_a_scale_for_each_block():
    x, s, z = rg.tensor("x", (2, 7)), rg.tensor("s", (2, 3)), rg.tensor("z", (2, 3), "uint8")
    a, scales, zeros = rng.standard_normal((2, 7)) * 9, rng.random((2, 3)) + 0.1, rng.integers(0, 9, (2, 3))
    by, at = (np.repeat(one, 3, axis=1)[:, :7] for one in (scales, zeros))
    wanted = np.clip(np.rint(a / by) + at, 0, 255)
    agree(ops.quantize(x, s, z, 1, dtype="uint8", block_size=3), [a, scales, zeros], wanted)
    q = rg.tensor("q", (2, 7), "uint8")
    agree(ops.dequantize(q, s, z, 1, block_size=3), [wanted.astype(np.uint8), zeros, scales], (wanted - at) * by)
    with pytest.raises(rg.errors.ShapeError, match=r"s has shape \(2, 3\); expected \(2, 4\), one for each block"):
        ops.dequantize(q, s, 0, 1, block_size=2)


def test_a_product_with_zero_points_is_quantised_again():
    a, b = rng.integers(0, 256, (3, 5)), int8(5, 4)
    operands = rg.tensor("a", (3, 5), "uint8"), rg.tensor("b", (5, 4), "int8")
    found = ops.quantized_matmul(
        *operands, 0.5, 0.25, a_zero_point=120, b_zero_point=3, scale=16.0, zero_point=100, dtype="uint8"
    )
    agree(found, [a, b], np.clip(np.rint((a - 120) @ (b - 3) * 0.125 / 16) + 100, 0, 255))


def test_a_quantised_convolution_is_padded_with_the_zero_point():
    torch = pytest.importorskip("torch")
    x, w = rng.integers(0, 256, (1, 2, 6, 5)), int8(3, 2, 3, 3)
    tensors = rg.tensor("x", x.shape, "uint8"), rg.tensor("w", w.shape, "int8")
    wanted = torch.conv2d(torch.tensor(x - 128.0), torch.tensor(w + 1.0), padding=1).numpy() * 0.125
    agree(ops.quantized_conv2d(*tensors, 0.5, 0.25, padding=1, x_zero_point=128, w_zero_point=-1), [x, w], wanted)


@pytest.mark.parametrize("numbers", [[-1.0, 0.0, 1.55], [2.0, 3.0, 5.1], [-7.0, -3.0, -5.1], [0.0, 0.0, 0.0]])
def test_dynamic_quantisation_takes_in_the_range_and_zero(numbers):
    a = np.array(numbers)
    low, high = min(a.min(), 0), max(a.max(), 0)
    scale = (high - low) / 255 or 1.0
    zero = np.clip(np.rint(-low / scale), 0, 255)
    q, found, point = ops.dynamic_quantize(rg.tensor("x", (3,)))
    agree(found, [a], scale)
    agree(point, [a], zero)
    agree(q, [a], np.clip(np.rint(a / scale) + zero, 0, 255))
    assert (q.dtype, point.dtype, found.shape) == ("uint8", "uint8", ())


def test_casts_saturate_or_wrap_as_they_are_told():
    x = rg.tensor("x", (6,))
    numbers = np.array([-1.5, 255.9, 300.0, 5e9, -np.inf, np.nan])
    agree(ops.cast(x, "uint8", overflow="saturate"), [numbers], [0, 255, 255, 255, 0, 0])
    agree(ops.cast(x, "int32", overflow="saturate"), [numbers], [-1, 255, 300, 2**31 - 1, -(2**31), 0])
    agree(ops.cast(x, "uint8", overflow="wrap"), [np.array([-1.5, 255.9, 300.0, 256.0, -256.0, 513.0])], [255, 255, 44, 0, 0, 1])
    wide = rg.tensor("i", (3,), "int64")
    agree(ops.cast(wide, "uint8", overflow="saturate"), [np.array([-1, 256, 7])], [0, 255, 7])
    agree(ops.cast(wide, "uint8"), [np.array([-1, 256, 7])], [255, 0, 7])
    half = ops.cast(rg.tensor("h", (3,), "float16"), "int32", overflow="saturate")
    agree(half, [np.array([-np.inf, np.inf, -65504.0])], [-(2**31), 2**31 - 1, -65504])
    with pytest.raises(rg.errors.ExpressionError, match="overflow is 'clip'; expected None"):
        ops.cast(x, "int8", overflow="clip")
