"""What the fuzzer has found, each with the seed that showed it."""

import pytest

import rollergen as rg
from rollergen.dropped import every_drop_raises
from rollergen.errors import ExpressionError
from tests.fuzzing.recipes import Line, Recipe
from tests.fuzzing.trial import Trials


@pytest.fixture(scope="module")
def trials():
    trials = Trials()
    yield trials
    trials.close()


def recipe(*lines):
    """The last target is the expression; shapes and dtypes are those that the lines give."""
    made = [line.partition(" = ") for line in lines]
    return Recipe(tuple(Line(target, text, (), "") for target, _, text in made))


def test_a_quotient_of_the_innermost_axis_is_not_copied_as_a_vector(trials):
    """Seed 1070: construction asked for vectors of two elements where the program's own check allows one."""
    found = recipe(
        'x = T("x", (5, 14, 4, 6), "float32")', "s = ops.sum(x, (2,), keepdims=False)", "y = ops.reshape(s, (70, 6))"
    )
    for device in ("k80", "v100", "mi50", "cpu"):
        assert trials.failure(found, device) is None


def test_an_infinite_factor_of_a_sum_is_not_tried(trials):
    """Seed 59: infinity times a sum is not the sum of infinities of either sign; the oracle's order is one of many."""
    found = recipe(
        'x = T("x", (8, 13), "float64")', 'y = T("y", (19, 13, 2), "float64")', 'v = rg.einsum("ba,yaz->yza", x, y)'
    )
    assert trials.failure(found, "mi50") is None


def test_what_is_kept_in_a_narrower_dtype_errs_by_its_rounding(trials):
    """Seeds 300150 and 400274: a product of rounded values was held to the accuracy of one that is never stored."""
    outer = recipe(
        'x0 = T("x0", (3, 1), "bfloat16")', 'x1 = T("x1", (1, 2), "bfloat16")', "v2 = ops.matmul(x0, x1)",
        'x3 = T("x3", (2, 2), "bfloat16")', "v4 = ops.matmul(v2, x3)",
    )  # fmt: skip
    assert trials.failure(outer, "ipu") is None
    normed = recipe(
        'v1 = T("v1", (4, 2), "float16")', "v2 = ops.rms_norm(v1, (2,))", 'x3 = T("x3", (2, 8), "float16")',
        "v4 = ops.matmul(v2, x3)",
    )  # fmt: skip
    assert trials.failure(normed, "cpu") is None


def test_an_infinite_factor_that_a_fused_axis_repeats_is_not_tried(trials):
    """Seeds 300026 and 400099: the factor is read, or packed, at k // 2, so that it could be taken out of the sum."""
    read = recipe(
        'v2 = T("v2", (2, 2, 1), "float32")', 'x3 = T("x3", (1, 2, 2, 2), "float32")',
        'v4 = rg.einsum("abc,cyaz->zbc", v2, x3)',
    )  # fmt: skip
    assert trials.failure(read, "k80") is None
    packed = recipe(
        'x0 = T("x0", (18, 2, 15), "bfloat16")', 'x4 = T("x4", (3, 15, 9), "bfloat16")',
        'v5 = rg.einsum("abc,ycz->azb", x0, x4)',
    )  # fmt: skip
    assert trials.failure(packed, "cpu") is None


def test_denormals_are_not_tried_where_the_order_of_rounded_values_decides(trials):
    """Seeds 301742 and 300506: zero after rounding, and in the definition not."""
    place = recipe(
        'v2 = T("v2", (1, 8), "float32")', 'v3 = ops.cast(v2, "float16")', "v4 = ops.argmin(v3, (0, 1), keepdims=True)"
    )
    assert trials.failure(place, "cpu") is None
    choice = recipe(
        'x0 = T("x0", (48, 3), "float32")', 'v2 = ops.cast(x0, "bfloat16")', 'x3 = T("x3", (48, 3), "bfloat16")',
        "v4 = ops.where(ops.less(v2, x3), v2, -2)",
    )  # fmt: skip
    assert trials.failure(choice, "mi50") is None


def test_matrix_instructions_run_here_as_what_they_compute(trials):
    """Seed 300232: OpenCL C has no words for them."""
    product = recipe('x0 = T("x0", (2, 9), "float16")', 'x1 = T("x1", (9, 2), "float16")', "v2 = ops.matmul(x0, x1)")
    assert trials.failure(product, "a100") is None


def test_vectors_of_halves_need_no_alignment_of_their_own(trials):
    """Seeds 600033 and 301799: PoCL's functions for them promise LLVM 16 bytes; rows of 18 elements ended the
    process."""
    rows = recipe(
        'x0 = T("x0", (9, 18), "float16")', "v1 = ops.reshape(x0, (3, 3, 18))", "v5 = ops.mul(v1, 2)",
        "v6 = rg.compute((3, 3, 18), lambda i0, i1, i2: v5[i0, i1 // 2, i2])",
    )  # fmt: skip
    assert trials.failure(rows, "cpu") is None
    place = recipe(
        'x0 = T("x0", (17,), "float16")', "v1 = ops.minimum(x0, x0)",
        "v2 = rg.compute((17,), lambda i0: rg.select(i0 < 8, v1[(i0 + 1) % 17], v1[i0]))",
        "v3 = ops.argmin(v2, (0,), keepdims=False)",
    )  # fmt: skip
    assert trials.failure(place, "cpu") is None


def test_what_is_left_of_equal_numbers_is_held_to_their_own_rounding(trials):
    """Seeds 300816, 301911 and 400033: sums and variances that cancel were held to a share of their own size."""
    equal = recipe(
        'x0 = T("x0", (48, 2), "float64")', "v1 = ops.maximum(x0, 2)", 'x2 = T("x2", (2, 33), "float64")',
        "v3 = ops.matmul(v1, x2)", "v5 = ops.var(v3, (0,), keepdims=False)", "v7 = ops.sum(v5, (0,), keepdims=False)",
    )  # fmt: skip
    assert trials.failure(equal, "cpu") is None
    mean = recipe(
        'x0 = T("x0", (8, 8, 2), "float32")', "v1 = ops.layer_norm(x0, (2,))",
        "v2 = ops.mean(v1, (0, 1, 2), keepdims=True)",
    )  # fmt: skip
    assert trials.failure(mean, "cpu") is None


def test_a_narrow_value_beyond_its_range_may_make_what_follows_not_a_number(trials):
    """Seed 400314: the variance of squares some of which float16 does not hold."""
    found = recipe(
        'x4 = T("x4", (6, 300), "float16")', "v1 = ops.add(x4, 3)", "v5 = ops.sum(v1, (1,), keepdims=False)",
        "v6 = ops.mul(v5, v5)", "v7 = ops.var(v6, (0,), keepdims=False)",
    )  # fmt: skip
    assert trials.failure(found, "cpu") is None


def test_a_value_that_rounding_makes_equal_to_another_may_be_chosen_as_equal(trials):
    """Seed 400554: one of 408 sums was equal to what it was compared with after bfloat16's rounding only."""
    found = recipe(
        'x0 = T("x0", (9, 5, 14, 9), "bfloat16")', "v1 = ops.upsample_nearest(x0, scale_factor=2)",
        'x2 = T("x2", (16, 5, 1, 1), "bfloat16", constant=True)', "v3 = ops.conv2d(v1, x2, stride=3, padding=1)",
        'x4 = T("x4", (9, 16, 10, 7), "bfloat16")', "v5 = ops.where(ops.not_equal(v3, x4), v3, -2)",
    )  # fmt: skip
    assert trials.failure(found, "cpu") is None


def test_a_softmax_of_large_rounded_sums_is_held_to_their_rounding(trials):
    """Seed 301810: bfloat16's rounding of sums of some hundred, which exp makes a factor."""
    found = recipe(
        'x0 = T("x0", (7, 3, 4), "bfloat16")', 'x1 = T("x1", (13, 7, 5), "bfloat16")',
        'v2 = rg.einsum("abc,yaz->czy", x0, x1)', 'x3 = T("x3", (13, 10, 2, 5), "bfloat16")',
        'v4 = rg.einsum("abc,cyzb->y", v2, x3)', "v5 = ops.softmax(v4, 0)",
    )  # fmt: skip
    assert trials.failure(found, "cpu") is None


def test_a_reduction_read_at_several_places_is_computed_once(trials):
    """Seed 950442: a mirrored border of a convolution of a log-softmax was one stage of 25 reductions, which took
    PoCL's compiler more than a minute."""
    found = recipe(
        'x0 = T("x0", (5, 5, 5, 5), "float64")', "v1 = ops.log_softmax(x0, 0)",
        'x2 = T("x2", (5, 1, 5, 5), "float64", constant=True)',
        "v3 = ops.depthwise_conv2d(v1, x2, stride=2, padding=2)",
        'v4 = ops.pad(v3, (0, 2, 1, 0, 0, 2, 2, 3), "reflect")',
    )  # fmt: skip
    assert trials.failure(found, "v100") is None
    assert trials.never_compiled == 0


def test_a_product_that_passes_the_range_on_the_way_to_zero_may_be_nan(trials):
    """Seeds 900730 and 950728: 2^924, then zero; and one element, whose evaluation has no dimensions."""
    found = recipe(
        'x0 = T("x0", (7, 11, 12, 2), "float32")', 'x1 = T("x1", (7, 11, 12, 2), "float32")',
        "v2 = ops.where(ops.greater(x0, x1), x0, -2)", "v3 = ops.prod(v2, (1, 0, 2, 3), keepdims=True)",
        "v5 = ops.layer_norm(v3, (1,))",
    )  # fmt: skip
    assert trials.failure(found, "cpu") is None
    bordered = recipe(
        'x0 = T("x0", (2346,), "float32")', 'x1 = T("x1", (2346, 10), "float32")', 'v2 = rg.einsum("a,ay->a", x0, x1)',
        'v3 = ops.pad(v2, (1, 1), "replicate")', "v4 = ops.prod(v3, (0,), keepdims=False)",
    )  # fmt: skip
    assert trials.failure(bordered, "h200") is None


def test_integers_wrap_around_in_the_definition_too(trials):
    """Seed 900983: squares of quantised values leave int8, in the kernel and the interpreter but not in the oracle."""
    found = recipe(
        'v1 = T("v1", (38, 23, 8), "float16")', 'x2 = T("x2", (1, 23, 2), "float16")',
        "v3 = ops.conv1d(v1, x2, stride=1, padding=0, dilation=1)", "v4 = ops.quantize(v3, 0.31, -3)",
        "v5 = ops.mul(v4, v4)", 'x6 = T("x6", (3, 1, 3), "int8")',
        "v7 = ops.conv1d(v5, x6, stride=1, padding=2, dilation=1)", "v8 = ops.argmin(v7, (0, 1, 2), keepdims=False)",
    )  # fmt: skip
    for device in ("mi50", "cpu"):
        assert trials.failure(found, device) is None


def test_an_identity_that_is_none_is_refused_before_anything_is_constructed():
    """Seeds 900618 and 901057: over an axis of one element the definition is that element, a kernel's result its
    size."""
    sizes = "lambda a, b: rg.maximum(rg.abs(a), rg.abs(b))"
    for read, fits in (("x0[i0, k]", False), ("rg.abs(x0[i0, k])", True)):
        found = recipe(
            'x0 = T("x0", (8, 1), "float32")', 'k = rg.reduce_axis("k", 1)',
            f"v5 = rg.compute((8,), lambda i0: rg.reduce({sizes}, 0, {read}, axis=k))",
        )  # fmt: skip
        if fits:
            assert found.outputs()[0].shape == (8,)
        else:
            with pytest.raises(ExpressionError, match="identity 0 is none of"):
                found.outputs()


def test_a_load_whose_guard_alone_varies_repeats_its_element(trials):
    """Seed 1010015: the three elements of a concatenation each read the one that there is, where it is theirs."""
    found = recipe(
        'x0 = T("x0", (1,), "float32")', "v1 = ops.mean(x0, (0,), keepdims=True)",
        "v2 = ops.concat([v1, ops.neg(v1), v1], 0)",
    )  # fmt: skip
    assert trials.failure(found, "a100") is None


def test_a_square_that_wraps_around_is_not_taken_for_positive(trials):
    """Seed 1200849: overflow of C's signed integers is undefined, so a compiler dropped the comparison with 0."""
    found = recipe(
        'x0 = T("x0", (387,), "int32")', "v1 = ops.mul(x0, x0)", "v2 = ops.mul(v1, v1)", "v3 = ops.mul(v2, v2)",
        "v4 = ops.mul(v3, v3)", "v5 = ops.relu(v4)",
    )  # fmt: skip
    for device in ("cpu", "v100", "ipu2"):
        assert trials.failure(found, device) is None


def test_powers_of_float64_vectors_are_right_at_denormal_numbers(trials):
    """Seed 1350591: PoCL's function for eight lanes; border elements of a pooling window are read as what is there."""
    found = recipe(
        'x1 = T("x1", (14, 3, 6, 2), "float64")', "v5 = ops.pow(ops.abs(x1), 0.5)",
        "v6 = ops.avg_pool2d(v5, (5, 5), stride=1, padding=2)",
    )  # fmt: skip
    assert trials.failure(found, "cpu") is None


def test_halves_that_lie_between_two_others_are_rounded_to_the_even_one_all_alike(trials):
    """Seed 1300612: deviations of 0.25 to 0.5 plus 2, six of 24 a tie of float16's, whose spread is what ties make."""
    found = recipe(
        'x0 = T("x0", (23, 2, 1, 8), "float16")', "v1 = ops.upsample_nearest(x0, scale_factor=3)",
        "v2 = ops.std(v1, (1, 0, 2), keepdims=False)", "v5 = ops.add(v2, 2)", "v6 = ops.std(v5, (0,), keepdims=False)",
    )  # fmt: skip
    assert trials.failure(found, "v100") is None


def test_a_quotient_by_what_keeps_the_sign_of_a_zero_is_an_infinity_of_that_sign(trials):
    """Not drawn by the fuzzer: tanh, floor and round made a positive zero of a negative one; relu may do either."""
    for function in ("tanh", "floor", "relu"):
        found = recipe('x0 = T("x0", (64, 32), "float32")', f"v1 = ops.div(1, ops.{function}(x0))")
        assert trials.failure(found, "cpu") is None


def test_a_product_whose_merged_axes_leave_no_contiguous_one_is_constructed_as_it_is(trials):
    """Seed 1470018: merged, the output's last axis was contiguous in neither factor, and no program was left."""
    found = recipe(
        'x0 = T("x0", (2, 2, 3, 2), "float32")', 'x8 = T("x8", (2, 2, 2, 3), "float32")',
        'v9 = rg.einsum("abcd,adyc->byad", x0, x8)',
    )  # fmt: skip
    for device in ("h200", "mi50"):
        assert trials.failure(found, device) is None


def test_a_bfloat16_below_float16_s_range_is_rounded_there(trials):
    """Seed 1602536: the conversion was taken for exact, as float16 has more bits."""
    found = recipe(
        'x0 = T("x0", (96,), "bfloat16")', 'v1 = ops.cast(x0, "float16")', 'v2 = ops.cast(v1, "float32")',
        "v3 = rg.compute((96,), lambda i0: rg.select(i0 < 48, v2[95 - i0], v2[i0]))",
    )  # fmt: skip
    assert trials.failure(found, "k80") is None


def test_a_running_product_may_pass_the_range_of_its_dtype(trials):
    """Seed 20016: of 113 equal factors float64 still counts what is infinite in float32, and NaN where it is averaged."""
    found = recipe(
        'x0 = T("x0", (113, 4), "float32")', "v1 = ops.cumprod(x0, 0, exclusive=False, reverse=True)",
        "v2 = ops.mean(v1, (0,), keepdims=True)", "v3 = ops.gelu(v2)",
    )  # fmt: skip
    assert trials.failure(found, "cpu") is None


def test_a_number_of_a_narrow_dtype_is_converted_where_it_is_used():
    """Seed 5000367 of formulas: a stage without axes was to convert it beforehand."""
    x, one = rg.tensor("x", (14, 4), "float8_e4m3fn"), rg.tensor("one", (1,), "float8_e4m3fn", constant=True)
    k = rg.reduce_axis("k", 2)
    scaled = rg.compute((1, 2, 1), lambda i, j, h: rg.sum(x[(j - 2) // 7 + 12, 0] * one[0], axis=k))
    with every_drop_raises():
        rg.construct(scaled, "cortex-a53")


def test_a_narrow_integer_that_is_shifted_is_cut_off_before_it_is_widened(trials):
    """Seed 70056: C shifts an unsigned short as an int, and the largest was taken of what no unsigned short holds."""
    found = recipe(
        'x0 = T("x0", (8, 47), "uint16")', "v1 = ops.bitwise_left_shift(x0, x0)", "v2 = ops.amax(v1, (0,), keepdims=True)"
    )
    for device in ("k80", "cpu"):
        assert trials.failure(found, device) is None
