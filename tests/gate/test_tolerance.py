"""Tolerances follow from dtypes and lengths: right results pass, a missing term does not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import rounded
from rollergen.expr.index import Index
from rollergen.expr.splitting import split_reduction
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Cast, Const, Load, Partial, Select, Unary, Within, named_combiner
from rollergen.gate.differences import differences
from rollergen.gate.tolerance import accuracies, exact_magnitude, order_decides, unit_roundoff
from tests import programs

F32 = "float32"


def dot(length, dtype=F32, accumulator=F32):
    """S[i] = sum_k X[i, k] Y[i, k], accumulated as told."""
    operands = (Load(Buffer(name, (64, length), dtype), (Index.axis("i"), Index.axis("k"))) for name in "XY")
    x, y = (Cast(o, accumulator) if dtype != accumulator else o for o in operands)
    total = Reduction("r", named_combiner("sum", accumulator), ("k",), (Binary("mul", x, y, accumulator),))
    result = Partial("r", accumulator)
    return TensorOp(
        Buffer("S", (64,), dtype, "output"), (Axis("i", 64), Axis("k", length, "reduce")), (Index.axis("i"),),
        result if dtype == accumulator else Cast(result, dtype), (total,),
    )  # fmt: skip


def inputs_of(op):
    return tuple(load.buffer for load in op.loads())


def variance(op):
    return accuracies((op,), inputs_of(op))["S"].variance


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5000), st.integers(0, 2**32 - 1), st.sampled_from(["sequential", "pairwise", "lanes"]))
def test_any_order_of_summation_in_float32_passes(length, seed, order):
    rng = np.random.default_rng(seed)
    x, y = (rng.random((64, length), dtype=np.float32) * 2 - 1 for _ in range(2))
    terms = x * y
    if order == "sequential":
        got = np.add.accumulate(terms, axis=1)[:, -1]
    elif order == "pairwise":
        got = terms.sum(axis=1)
    else:
        got = np.add.accumulate(np.pad(terms, ((0, 0), (0, -length % 16))).reshape(64, -1, 16), axis=1)[:, -1].sum(1)
    want = np.einsum("ik,ik->i", x.astype(np.float64), y.astype(np.float64))
    assert not differences(got, want, variance(dot(length)), F32, exact=False).any()


@pytest.mark.parametrize("length", [1, 10, 1000, 20000])
def test_a_sum_that_lacks_one_term_fails_nearly_everywhere(length):
    rng = np.random.default_rng(length)
    x, y = (rng.random((64, length)) * 2 - 1 for _ in range(2))
    want, short = (x * y).sum(axis=1), (x[:, 1:] * y[:, 1:]).sum(axis=1)
    assert differences(short.astype(np.float32), want, variance(dot(length)), F32, exact=False).mean() > 0.9


def test_each_product_of_a_sum_may_be_flushed_to_zero():
    """As instructions of AVX512-BF16 do, and compilers for GPUs where denormal numbers count as zeros."""
    known = accuracies((dot(3),), inputs_of(dot(3)))["S"]
    tiny = float(np.finfo(F32).tiny)
    got, want = np.zeros(2, np.float32), np.array([2.99, 4.01]) * tiny  # one more for the sum itself
    assert differences(got, want, known.variance, F32, False, known.absolute).tolist() == [False, True]


def test_a_sum_in_parts_may_lose_as_many_products_as_a_whole_one():
    whole = dot(64)
    parts = split_reduction(whole, "k", 4)
    one, several = (accuracies(ops, inputs_of(whole))["S"].flushed for ops in ((whole,), parts))
    assert several == one + 4 * np.finfo(F32).tiny  # and the parts' sums


def test_a_sum_of_what_is_read_as_it_is_loses_no_denormal_number():
    x, k = rg.tensor("x", (64, 10)), rg.reduce_axis("k", 10)
    (total,) = canonicalize(rg.compute((64,), lambda i: rg.sum(x[i, k], axis=k), name="S")).tensor_ops
    assert accuracies((total,), (x.buffer,))["S"].absolute == 0.0


def test_narrow_operands_accumulated_widely_have_the_wide_variance():
    assert variance(dot(100, "float16", F32)) == variance(dot(100)) == 101 * unit_roundoff(F32) ** 2


def test_accumulation_in_a_narrow_dtype_is_allowed_that_dtypes_roundings():
    assert variance(dot(100, "float16", "float16")) == 101 * unit_roundoff("float16") ** 2


def test_a_narrow_output_may_be_off_by_half_a_unit_and_little_more():
    want = np.array([1.0, 1.0])
    got = np.array([1.0, 1.0 + 2**-9], np.float16)  # two units in the last place
    assert differences(got, want, variance(dot(10, "float16", F32)), "float16", exact=False).tolist() == [False, True]


def test_a_copy_must_match_bit_for_bit():
    op = programs.ALL["transpose"].stages[0].op
    made = accuracies((op,), inputs_of(op))["Y"]
    assert made.variance == 0
    want = np.array([0.1, 0.2])
    got = np.array([0.1, np.nextafter(np.float32(0.2), np.float32(1))], np.float32)
    assert differences(got, want.astype(np.float32).astype(np.float64), 0.0, F32, exact=False).tolist() == [False, True]


@pytest.mark.parametrize(
    ("length", "magnitude"),
    [
        (2**20, 4),  # 2^20 terms of at most 16: 2^24
        (2**20 + 1, 2),
        (2**22 + 1, 1),
        (2**24 + 1, None),
    ],
)
def test_whole_numbers_are_exact_exactly_as_far_as_float32_holds_every_partial_sum(length, magnitude):
    assert exact_magnitude((dot(length),), inputs_of(dot(length))) == magnitude


def test_a_narrow_output_limits_whole_numbers_too():
    assert exact_magnitude((dot(128, "float16", F32),), inputs_of(dot(128, "float16"))) == 4  # 128 * 16 = 2^11
    assert exact_magnitude((dot(129, "float16", F32),), inputs_of(dot(129, "float16"))) == 2


def test_functions_and_divisions_are_never_exact():
    assert exact_magnitude((programs.ALL["cpu_softmax"].stages[0].op,), (Buffer("X", (10, 100)),)) is None


def test_quantised_results_are_not_exact_where_a_scale_puts_them_next_to_a_tie():
    factors = rg.tensor("X", (4, 9), "uint8"), rg.tensor("W", (9, 4), "int8")
    quantised = lambda scale: rg.ops.quantized_matmul(*factors, 1.0, 0.3, scale=scale, dtype="uint8")
    for scale in (1.0, 0.7):
        assert exact_magnitude(canonicalize(quantised(scale)).tensor_ops, tuple(f.buffer for f in factors)) is None


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (lambda x: Binary("mul", x, Const(0.5, F32), F32), False),
        (lambda x: Binary("mul", x, Const(3.0, F32), F32), True),
        (lambda x: Binary("max", x, Const(float("-inf"), F32), F32), False),
        (lambda x: Select(Binary("lt", x, Const(0, F32), "bool"), Unary("neg", x, F32), x, F32), True),
        (lambda x: Unary("sqrt", x, F32), False),
    ],
)
def test_exactness_of_elementwise_values(value, exact):
    x = Load(Buffer("X", (8,)), (Index.axis("i"),))
    op = TensorOp(Buffer("S", (8,)), (Axis("i", 8),), (Index.axis("i"),), value(x))
    assert (exact_magnitude((op,), (x.buffer,)) is not None) == exact


@pytest.mark.parametrize("fill, most", [(0, 4), (3.0, 4), (-1.5, None), (2.0**23, None)])
def test_what_is_read_outside_an_array_counts_for_exactness(fill, most):
    """Seed 9600200: sums of -1.5 rounded to float8_e5m2 were to be exact, and every candidate was refused."""
    x = Load(Buffer("X", (8,)), (Index.axis("i"),), (Within(Index.axis("i") - 1, 0, 8),), fill)
    body = Binary("add", Binary("mul", x, Const(3.0, F32), F32), x, F32)
    op = TensorOp(Buffer("S", (8,)), (Axis("i", 8),), (Index.axis("i"),), body)
    assert exact_magnitude((op,), (x.buffer,)) == most


def test_not_a_number_and_infinities_match_only_themselves():
    want = np.array([np.nan, np.inf, -np.inf, np.nan, np.inf])
    got = np.array([np.nan, np.inf, np.inf, 0.0, np.nan], np.float32)
    for exact in (False, True):
        assert differences(got, want, 1e-14, F32, exact).tolist() == [False, False, True, True, True]


def rounded_quotient(op="round", scale=0.1, dtype="int8"):
    """Y[i] = X[i] / scale, made whole."""
    x = Load(Buffer("X", (1000,), F32), (Index.axis("i"),))
    quotient = Binary("div", x, Const(scale, F32), F32)
    whole = quotient if op == "cast" else Unary(op, quotient, F32)
    return TensorOp(Buffer("Y", (1000,), dtype, "output"), (Axis("i", 1000),), (Index.axis("i"),), Cast(whole, dtype))


@pytest.mark.parametrize("op", ["round", "floor", "cast"])
def test_next_to_a_jump_either_side_is_right_and_no_third(op):
    made = accuracies((rounded_quotient(op),), (Buffer("X", (1000,), F32),))["Y"]
    want, got = np.array([3.0, 3.0, 3.0, 3.0]), np.array([2, 3, 4, 5], np.int8)
    assert differences(got, want, made.variance, "int8", False, made.steps).tolist() == [False, False, False, True]


def test_a_jump_grows_with_what_it_is_multiplied_by():
    y = rounded_quotient(dtype="float32")
    scaled = TensorOp(y.output, y.axes, y.target, Binary("mul", y.result, Const(0.5, F32), F32))
    assert accuracies((scaled,), (Buffer("X", (1000,), F32),))["Y"].steps == 0.5


def test_whole_numbers_do_not_jump():
    x = Load(Buffer("X", (1000,), F32), (Index.axis("i"),))
    y = TensorOp(Buffer("Y", (1000,), "int8", "output"), (Axis("i", 1000),), (Index.axis("i"),), Cast(Unary("round", x, F32), "int8"))
    assert accuracies((y,), (x.buffer,))["Y"].steps == 0.0


def test_beyond_the_range_of_the_dtype_an_infinity_of_the_same_sign_is_right_and_nothing_else():
    got = np.array([np.inf, -np.inf, np.inf, 3e38, np.inf], np.float32)
    want = np.array([4e39, 4e39, 1e30, 4e39, np.nan])
    assert differences(got, want, 1e-10, "float32", False).tolist() == [False, True, True, True, True]


def test_a_copy_in_a_narrower_dtype_is_exact_and_a_rounded_value_that_is_read_again_is_not():
    """The rounding of an output is that of its dtype; a later definition reads it as an error of its own."""
    x, y = rg.tensor("x", (8, 8), "bfloat16"), rg.tensor("y", (8, 8), "bfloat16")
    kept, read = rg.ops.matmul(x, y), rg.ops.matmul(rg.ops.matmul(x, y), y)
    tensor_ops = canonicalize(read).tensor_ops
    known = accuracies(tensor_ops, canonicalize(read).inputs)
    one = accuracies(canonicalize(kept).tensor_ops, canonicalize(kept).inputs)
    (temporary, output) = (d.output.name for d in tensor_ops)
    assert known[temporary].variance == next(a for name, a in one.items() if name not in "xy").variance
    assert known[output].variance > unit_roundoff("bfloat16") ** 2 > known[temporary].variance
    copied = canonicalize(rg.ops.t(rg.ops.matmul(rg.ops.relu(x), y)))
    assert not order_decides(copied.tensor_ops, copied.inputs)
    placed = canonicalize(rg.ops.argmax(rg.ops.matmul(x, y), (0,)))
    assert order_decides(placed.tensor_ops, placed.inputs)
    plain = canonicalize(rg.ops.argmax(x, (0,)))
    assert not order_decides(plain.tensor_ops, plain.inputs)


def test_float64_is_rounded_to_bfloat16_once():
    """ml_dtypes rounds to float32 first, which loses on which side of a tie a number lies."""
    above, below = (1 + 2.0**-8) * (1 + 2.0**-52), (1 + 3 * 2.0**-8) * (1 - 2.0**-52)
    numbers = np.array([above, -above, below, 1 + 2.0**-8, 1 + 3 * 2.0**-8, np.inf, np.nan, 1e39, 0.0, 2.0**-140])
    got = rounded(numbers, "bfloat16").astype(np.float64)
    wanted = [1 + 2.0**-7, -1 - 2.0**-7, 1 + 2.0**-7, 1, 1 + 2.0**-6, np.inf, np.nan, np.inf, 0, 0]
    np.testing.assert_array_equal(got, wanted)
