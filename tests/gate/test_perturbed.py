"""Evaluations with roundings of other sizes: what they can reach is right, what they cannot is not."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.expr import reference
from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate import perturbed
from rollergen.gate.perturbed import within_rounding
from rollergen.gate.tolerance import unit_roundoff

ops, T = rg.ops, rg.tensor


def allowed(tensor, arrays, got, points):
    want = tensor.evaluate(**arrays)[tuple(points)]
    return within_rounding(tensor, arrays, points, np.atleast_1d(got), np.atleast_1d(want))


def everywhere(tensor):
    return tuple(axis.ravel() for axis in np.indices(tensor.shape))


def randomly(dtype, *shape, seed=0):
    return (np.random.default_rng(seed).random(shape) * 2 - 1).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_sum_of_products_that_lacks_one_term_is_wrong(dtype):
    x, y = (
        randomly("float32", *shape, seed=n).astype(numpy_dtype(dtype)) for n, shape in enumerate([(8, 500), (500, 9)])
    )
    product = ops.matmul(T("x", (8, 500), dtype), T("y", (500, 9), dtype))
    wide = x.astype(float) @ y.astype(float)
    short = wide - np.outer(x[:, 250].astype(float), y[250].astype(float))
    at = everywhere(product)
    right = allowed(product, {"x": x, "y": y}, wide.astype(numpy_dtype(dtype)).ravel(), at)
    wrong = allowed(product, {"x": x, "y": y}, short.astype(numpy_dtype(dtype)).ravel(), at)
    assert right.all()
    hidden = (np.abs(short - wide) <= 3 * unit_roundoff(dtype) * np.abs(wide)).ravel()
    assert (wrong & ~hidden).mean() < 0.02
    assert hidden.mean() < 0.5


def test_what_is_left_of_equal_numbers_may_be_any_rounding_error_of_theirs():
    given = T("x", (6, 50), "float64")
    spread = ops.mean(ops.pow(ops.sub(given, ops.mean(given, (1,), keepdims=True)), 2), (1,))
    x = np.full((6, 50), 0.1) * np.arange(1, 7)[:, None]
    assert allowed(spread, {"x": x}, np.full(6, 3e-32), everywhere(spread)).all()
    assert not allowed(spread, {"x": x}, np.full(6, 3e-20), everywhere(spread)).any()


def test_errors_that_many_terms_share_add_up():
    """All of a row's elements are off by the error of its mean: 2,000 of them by 2,000 times it, not by 45 times."""
    given = T("x", (2000,), "float32")
    total = ops.sum(ops.sub(given, ops.mean(given, (0,), keepdims=True)), (0,))
    x = randomly("float32", 2000) + np.float32(1000)
    mean = np.float32(x.astype(float).mean())
    shared = 2000 * 2.0**-24 * 1000
    assert allowed(total, {"x": x}, shared, ()).all()
    assert abs((x.astype(float) - mean).sum()) < shared
    assert not allowed(total, {"x": x}, 1e4 * shared, ()).any()


def test_a_value_that_rounding_makes_equal_to_another_may_take_either_branch_and_no_third():
    narrow = ops.cast(T("x", (4,), "float32"), "bfloat16")
    chosen = ops.where(ops.equal(narrow, T("y", (4,), "bfloat16")), 7, narrow)
    x = np.array([1.001, 1.001, 1.0, 2.0], np.float32)
    y = np.array([1.0, 3.0, 1.0, 2.0])
    arrays = {"x": x, "y": y.astype(numpy_dtype("bfloat16"))}
    bf16 = lambda *values: np.array(values).astype(numpy_dtype("bfloat16"))
    at = everywhere(chosen)
    assert allowed(chosen, arrays, bf16(7, 1, 7, 7), at).all()
    assert list(allowed(chosen, arrays, bf16(9, 7, 5, 4), at)) == [False] * 4


def test_what_passes_the_range_of_a_narrow_dtype_on_the_way_may_be_nan_and_nothing_else_may():
    given = T("x", (16,), "float16")
    squares = ops.var(ops.mul(given, given), (0,))
    large, small = (np.linspace(1, 2, 16) * size for size in (240, 2))
    nan = np.float16(np.nan)
    assert allowed(squares, {"x": large.astype(np.float16)}, nan, ()).all()
    assert not allowed(squares, {"x": small.astype(np.float16)}, nan, ()).any()


def test_an_exponential_of_a_large_rounded_sum_is_held_to_that_sum_s_error():
    sums = ops.cast(ops.sum(ops.cast(T("x", (3, 64), "float16"), "float32"), (1,)), "float16")
    grown = ops.cast(ops.exp(ops.sub(ops.cast(sums, "float32"), 60)), "float32")
    x = np.full((3, 64), 0.93, np.float16) + randomly("float16", 3, 64) * np.float16(0.01)
    exact = x.astype(float).sum(axis=1)
    kept = exact.astype(np.float16).astype(float)
    assert allowed(grown, {"x": x}, np.exp(kept - 60).astype("float32"), everywhere(grown)).all()
    assert not allowed(grown, {"x": x}, np.exp(exact - 58).astype("float32"), everywhere(grown)).any()


def test_elements_taken_from_the_next_place_are_wrong():
    normed = ops.layer_norm(ops.mul(T("x", (5, 33), "float32"), 3), (33,))
    x = randomly("float32", 5, 33)
    right = normed.evaluate(x)
    at = everywhere(normed)
    assert allowed(normed, {"x": x}, right.astype("float32").ravel(), at).all()
    assert not allowed(normed, {"x": x}, np.roll(right, 1, axis=1).astype("float32").ravel(), at).any()


def test_a_judgement_repeats_itself():
    tensor = ops.softmax(T("x", (4, 9), "float32"), 1)
    x = randomly("float32", 4, 9)
    made = [perturbed._Perturbed({"x": x}, tensor, 3, 8.0).tensor(tensor, everywhere(tensor)) for _ in range(2)]
    other = perturbed._Perturbed({"x": x}, tensor, 4, 8.0).tensor(tensor, everywhere(tensor))
    assert np.array_equal(*made) and not np.array_equal(made[0], other)


def test_one_place_errs_alike_whoever_reads_it():
    """A tensor read in two ways at one place is one value: their difference is exactly 0."""
    once = ops.exp(ops.mul(T("x", (40,), "float32"), 3))
    differ = rg.compute((40,), lambda i: once[i] - once[39 - (39 - i)])
    sample = perturbed._Perturbed({"x": randomly("float32", 40)}, differ, 0, 8.0).tensor(differ, (np.array([3, 17]),))
    assert np.array_equal(sample, [0.0, 0.0])


class TestProducts:
    """What a product's partial products may become, in whatever order they come about."""

    factors = np.array([-2.0] * 200 + [0.0] + [0.5] * 10, np.float32)

    def judged(self, x, got, dtype="float32"):
        product = ops.prod(T("x", x.shape, dtype), (0,))
        return bool(allowed(product, {"x": x}, np.asarray(got, dtype), ()).all())

    def test_zero_after_an_overflow_on_the_way_may_be_nan(self):
        assert self.judged(self.factors, np.nan)
        assert self.judged(self.factors, 0.0)
        assert not self.judged(self.factors, 1.0)

    def test_zero_with_no_overflow_on_the_way_is_never_nan(self):
        assert not self.judged(self.factors[100:], np.nan)
        assert not self.judged(self.factors.astype(np.float64), np.nan, "float64")

    def test_factors_apart_may_overflow_and_vanish_though_their_product_is_ordinary(self):
        mixed = np.array([4.0] * 80 + [0.25] * 80, np.float32)
        assert self.judged(mixed, 1.0) and self.judged(mixed, np.inf) and self.judged(mixed, np.nan)
        assert not self.judged(mixed, -np.inf)
        assert not self.judged(mixed[70:90], np.inf)


def test_an_element_without_axes_is_judged_where_what_it_reads_is_summed():
    total = ops.prod(ops.pad(ops.sum(T("x", (5, 3)), (1,)), (1, 1), "replicate"), (0,))
    x = randomly("float32", 5, 3)
    assert allowed(total, {"x": x}, total.evaluate(x=x).astype(np.float32), ()).all()


@pytest.mark.parametrize("got", [np.inf, -np.inf, np.nan])
def test_what_no_rounding_makes_infinite_may_not_be(got):
    x = randomly("float32", 4, 50)
    total = ops.sum(T("x", (4, 50)), (1,))
    assert not allowed(total, {"x": x}, np.full(4, got), everywhere(total)).any()


@pytest.mark.parametrize(("dtype", "beyond"), [("float8_e5m2", -np.inf), ("float8_e4m3fn", np.nan), ("float16", -np.inf)])
def test_what_rounded_factors_take_out_of_the_range_is_what_the_dtype_makes_of_it(dtype, beyond):
    """Two factors on either side of the middle between two numbers: they nearly cancel, and rounded they do not."""
    unit, largest = unit_roundoff(dtype), 2.0 ** np.floor(np.log2(float(ml_dtypes.finfo(dtype).max)))
    product = ops.matmul(ops.cast(T("x", (1, 2)), dtype), T("w", (2, 1), dtype))
    arrays = {
        "x": np.float32([[(1 + 1.1 * unit) * 2 / unit, (1 + 0.9 * unit) * 2 / unit]]),  # rounded: 4 apart
        "w": np.array([[-largest], [largest]]).astype(numpy_dtype(dtype)),
    }
    assert allowed(product, arrays, np.float64(beyond), everywhere(product)).all()
    assert not allowed(product, arrays, np.inf, everywhere(product)).any()


def test_what_no_rounding_makes_finite_may_not_be():
    x = np.zeros(4, np.float32)
    quotient = ops.div(1.0, T("x", (4,)))
    assert not allowed(quotient, {"x": x}, np.full(4, 1e30, np.float32), everywhere(quotient)).any()


def test_the_memory_of_an_evaluation_is_that_of_a_chunk_not_of_all_products(monkeypatch):
    """64^3 products in 2^14 elements at a time: a dozen arrays of 128 KB, where all products are 2 MB each."""
    monkeypatch.setattr(reference, "CHUNK_ELEMENTS", 1 << 14)
    spread = ops.var(ops.matmul(T("x", (64, 64)), T("y", (64, 64))), (0, 1))
    arrays = {"x": randomly("float32", 64, 64), "y": randomly("float32", 64, 64, seed=1)}
    want = np.atleast_1d(spread.evaluate(**arrays))
    tracemalloc.start()
    try:
        assert within_rounding(spread, arrays, (), want.astype(np.float32), want).all()
        assert tracemalloc.get_traced_memory()[1] < 64**3 * 8 * 2
    finally:
        tracemalloc.stop()


def test_ties_of_a_narrow_dtype_all_go_to_the_even_number():
    """0.251 and 0.2568, twelve times each, plus 2: float16 has steps of 2^-9 there, so that all 24 sums are ties, of
    which one kind goes down and the other up."""
    x = (1024 + 4 + 8 * np.array([0, 0, 3, 3] * 6)) * 2.0**-12
    even = np.rint((x + 2) * 2.0**9) * 2.0**-9
    assert np.array_equal(x, x.astype(np.float16)) and np.all(np.abs(even - x - 2) == 2.0**-10)
    spread = ops.std(ops.add(T("x", (24,), "float16"), 2), (0,))
    exact, rounded = (x + 2).std(ddof=1), even.std(ddof=1)
    assert rounded > 1.3 * exact
    for got, right in [(exact, True), (rounded, True), (1.02 * rounded, False), (2 * exact - 1.02 * rounded, False)]:
        assert allowed(spread, {"x": x.astype(np.float16)}, np.float16(got), ()).all() == right


def test_the_larger_of_zeros_of_both_signs_is_either_one_and_that_of_equal_signs_is_that():
    quotient = ops.div(1, ops.maximum(T("x", (3,), "float32"), T("y", (3,), "float32")))
    arrays = {"x": np.array([-0.0, 0.0, -0.0], np.float32), "y": np.array([0.0, 0.0, -0.0], np.float32)}
    at = everywhere(quotient)
    for got, right in ((np.inf, [True, True, False]), (-np.inf, [True, False, True]), (np.nan, [False] * 3)):
        assert list(allowed(quotient, arrays, np.full(3, got, np.float32), at)) == right


@pytest.mark.parametrize(("reduce", "sign"), [(ops.amax, -1), (ops.amin, 1)])
def test_the_extreme_of_a_row_with_zeros_of_both_signs_is_either_one_and_of_equal_signs_is_that(reduce, sign):
    quotient = ops.div(1, reduce(T("x", (3, 5), "float32"), (1,)))
    x = np.array(
        [[-0.0, 0.0, sign, -0.0, sign], [0.0, sign, 0.0, 0.0, sign], [-0.0, -0.0, sign, -0.0, sign]], np.float32
    )
    for got, right in ((np.inf, [True, True, False]), (-np.inf, [True, False, True]), (np.nan, [False] * 3)):
        judged = allowed(quotient, {"x": x}, np.full(3, got, np.float32), everywhere(quotient))
        assert list(judged) == right


def test_signs_of_zeros_of_elements_and_of_rows_are_chosen_apart():
    """Of the elements -max(x, 0) that of x = -0 may be 0; then so may the largest of its row."""
    quotient = ops.div(1, ops.amax(ops.neg(ops.relu(T("x", (2, 3), "float32"))), (1,)))
    x = np.array([[-0.0, -1.0, -2.0], [-3.0, -1.0, -2.0]], np.float32)
    for got, right in ((np.inf, [True, False]), (-np.inf, [True, True])):
        assert list(allowed(quotient, {"x": x}, np.full(2, got, np.float32), everywhere(quotient))) == right


def test_a_recurrence_that_leaves_the_range_may_be_infinite_or_nan_and_is_as_exact_before():
    """Parts that are combined apart are infinite earlier than the row is, and the identity's zero times one is NaN."""
    x = T("x", (1, 100))
    grown = rg.scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x), 1, identity=(1, 0))[1]
    at = np.zeros(5, int), np.array([3, 3, 63, 63, 63])
    got = np.array([69904, np.nan, np.inf, np.nan, 5], np.float32)
    given = {"x": np.full((1, 100), 16, np.float32)}
    assert allowed(grown, given, got, at).tolist() == [True, False, True, True, False]
