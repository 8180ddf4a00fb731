"""Values: every operation and dtype, alone and in vectors, here against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollergen.emit import emit
from rollergen.expr.index import Index
from rollergen.expr.primitives import FUNCTIONS
from rollergen.expr.values import (
    Binary,
    Cast,
    Combiner,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Unary,
    Var,
    Within,
    named_combiner,
)
from tests.lower.builders import elementwise, ix, load, row_reduction
from tests.lower.devices import DEVICES
from tests.lower.harness import difference, execute
from tests.lower.reference import numpy_dtype

F32 = "float32"
N = 100
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, -3e38], np.float32)


def x_load(dtype=F32, name="X", elements=N):
    return load(name, ix("i"), shape=(elements,), dtype=dtype)


def compute(value, x, device="cpu", dtype=None, lanes=16, **more):
    program = elementwise(value, x.size, device, lanes, dtype)
    arrays = execute(emit(program, DEVICES[device]), program, {"X": x, **more})
    return arrays["Y"].array.copy()


def units_apart(got, want):
    """Distance in units in the last place of float32."""
    want32 = want.astype(np.float32)
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want32)).astype(np.float64)


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize(
    ("op", "low", "high", "units"),
    [("exp", -87, 88.7, 1.5), ("exp", -1, 1, 1.5), ("tanh", -12, 12, 3), ("tanh", -1, 1, 3), ("erf", -5, 5, 3), ("erf", -1, 1, 3), ("log", 1e-3, 3, 1.5), ("log", 0.99, 1.01, 1.5), ("log", 1e-30, 1e30, 1.5)],
)
def test_transcendental_functions_err_by_few_units_in_the_last_place(op, low, high, units, device):
    x = np.linspace(low, high, 20000, dtype=np.float32)
    reference = {"exp": np.exp, "tanh": np.tanh, "erf": np.vectorize(math.erf), "log": np.log}[op](x.astype(np.float64))
    got = compute(Unary(op, x_load(elements=x.size), F32), x, device)
    assert units_apart(got, reference).max() <= units


def test_erf_is_odd_reaches_one_and_never_exceeds_it():
    x = np.concatenate([np.linspace(0, 4.5, 30001), [1e-45, 1e-40, 1e-30, 5, 1e30, np.inf]]).astype(np.float32)
    got = compute(Unary("erf", x_load(elements=2 * x.size), F32), np.concatenate([x, -x]))
    np.testing.assert_array_equal(got[x.size :], -got[: x.size])
    np.testing.assert_array_equal(np.signbit(got[x.size :]), True)
    assert got.max() == 1 and (got[: x.size][x >= 4] == 1).all()


def test_exp_is_right_at_the_ends_of_its_range():
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 88.722839, 88.8, 1e30, -87.4, -100, -103.9, -105, -1e30], np.float32)
    got = compute(Unary("exp", x_load(elements=x.size), F32), x)
    with np.errstate(over="ignore"):
        want = np.exp(x.astype(np.float64)).astype(np.float32)
    assert np.isnan(got[0])
    np.testing.assert_allclose(got[1:8], want[1:8], rtol=3e-7)
    np.testing.assert_allclose(got[8:], want[8:], atol=2e-45)  # denormals: to one step


def test_log_is_right_at_the_ends_of_its_range():
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, -1, 1, 1e-45, 1e-40, 1.1754944e-38, 3.4028235e38], np.float32)
    got = compute(Unary("log", x_load(elements=x.size), F32), x)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(got, np.log(x.astype(np.float64)), rtol=2e-7)


@pytest.mark.parametrize(("device", "units"), [("cpu", 1), ("v100", 1), ("mali", 1.5)])  # the last without float64
@pytest.mark.parametrize(("low", "high", "exponents"), [(0, 4, 30), (0.99, 1.01, 5000), (1e-38, 1e-30, 1), (1e30, 3e38, 1)])
def test_powers_err_by_one_unit_in_the_last_place(low, high, exponents, device, units):
    rng = np.random.default_rng(3)
    x, z = rng.uniform(low, high, 20000).astype(F32), rng.uniform(-exponents, exponents, 20000).astype(F32)
    value = Binary("pow", x_load(elements=x.size), x_load(name="Z", elements=x.size), F32)
    got = compute(value, x, device, Z=z)
    with np.errstate(over="ignore"):
        want = x.astype(np.float64) ** z
    kept = (want > 1.2e-38) & (want < 3.4e38)
    assert kept.sum() > 1000 and units_apart(got[kept], want[kept]).max() <= units
    assert np.isinf(got[want > 3.5e38]).all() and (got[want < 1e-46] == 0).all()


@pytest.mark.parametrize("device", ["cpu", "mali"])
def test_powers_of_special_numbers_are_those_of_the_standard(device):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, -2.5, 1e-45, 2.0**24, -(2.0**24) + 1]
    x, z = (a.reshape(-1).astype(F32) for a in np.meshgrid(special, special))
    value = Binary("pow", x_load(elements=x.size), x_load(name="Z", elements=x.size), F32)
    got = compute(value, x, device, Z=z)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, np.power(x, z), rtol=2e-7)


@pytest.mark.parametrize("device", ["cpu", "mali"])
def test_powers_of_a_constant_that_is_no_number_are_no_numbers(device):
    """No compiler knows better: the text converts no such constant to an integer."""
    x = np.array([0.0, 1.0, -1.0, 0.5, 3.0, -2.5, np.inf, 1e30] * 8, F32)
    constant, load = Const(np.nan, F32), x_load(elements=x.size)
    want = np.where(x == 1, 1, np.nan)
    np.testing.assert_array_equal(compute(Binary("pow", load, constant, F32), x, device), want)
    want = np.where(x == 0, 1, np.nan)
    np.testing.assert_array_equal(compute(Binary("pow", constant, load, F32), x, device), want)


def test_powers_use_no_float64_on_a_device_without():
    value = Binary("pow", x_load(elements=64), x_load(name="Z", elements=64), F32)
    texts = {name: emit(elementwise(value, 64, name, 4, None), DEVICES[name]).text for name in ("mi50", "mali")}
    assert "double" in texts["mi50"] and "double" not in texts["mali"]


ENDS = [0.0, 5e-324, 1e-310, 2.0**-1022, 1e-300, 1e-20, 0.1, 1 / 3, 0.5, 1.0, 1 + 2.0**-52, 1.5, 2.0, 2.5, 3.0, 26.0,
        709.7, 745.2, 1074.0, 2.0**31 + 0.5, 2.0**52 + 1, 2.0**53, 1e19, 1e300, 1.7976931348623157e308, np.inf]  # fmt: skip
"""Of float64: zero, denormal numbers, whole ones that are odd, even or too large to be odd, the ends of the range."""
WIDE = np.array([np.nan, *ENDS, *(-x for x in ENDS)])


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_float64_powers_of_special_numbers_are_those_of_the_standard_for_any_number_of_lanes(lanes):
    """To one unit in the last place; NumPy's are those of the C library, within one unit themselves."""
    x, z = (a.reshape(-1) for a in np.meshgrid(WIDE, WIDE))
    value = Binary("pow", x_load("float64", elements=x.size), x_load("float64", "Z", x.size), "float64")
    got = compute(value, x, lanes=lanes, Z=z)
    with np.errstate(all="ignore"):
        want = np.power(x, z)
    np.testing.assert_allclose(got, want, rtol=2 * 2.0**-52, atol=5e-324)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_float64_powers_by_a_constant_are_right_at_denormal_numbers():
    x = np.array([1e-310, 5e-324, 0.0, 0.25] * 4)
    for exponent in (0.5, 1.0, -0.5, 3.0):
        value = Binary("pow", x_load("float64", elements=x.size), Const(exponent, "float64"), "float64")
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(compute(value, x, lanes=8), np.power(x, exponent), rtol=4e-16)


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("op", ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "abs", "floor", "round"])
@pytest.mark.every(11)
def test_float64_functions_are_right_at_the_ends_of_their_ranges(op, lanes):
    reference = {"rsqrt": lambda x: 1 / np.sqrt(x), "erf": np.vectorize(math.erf), "round": np.rint}.get(op) or getattr(np, op)
    with np.errstate(all="ignore"):
        want = reference(WIDE)
    got = compute(Unary(op, x_load("float64", elements=WIDE.size), "float64"), WIDE, lanes=lanes)
    np.testing.assert_allclose(got, want, rtol=4 * 2.0**-52, atol=5e-324)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("op", ["tanh", "erf", "floor", "round", "sqrt"])
def test_functions_of_a_zero_keep_its_sign(op, device):
    x = np.array([-0.0, 0.0] * 16 + [-0.3, 0.3], F32)
    got = compute(Unary(op, x_load(elements=x.size), F32), x, device)
    assert list(np.signbit(got[:32])) == [True, False] * 16 and (got[:32] == 0).all()
    assert op not in ("floor", "round") or list(got[32:]) == [{"floor": -1, "round": 0}[op], 0]


@pytest.mark.parametrize("op", ["sqrt", "rsqrt"])
def test_roots_of_vectors_wider_than_the_language_s_are_right(op):
    x = np.geomspace(1e-30, 1e30, 640, dtype=np.float32)
    got = compute(Unary(op, x_load(elements=x.size), F32), x, lanes=64)
    np.testing.assert_allclose(got, np.sqrt(x) if op == "sqrt" else 1 / np.sqrt(x), rtol=3e-7)


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
@pytest.mark.parametrize("lanes", [1, 4, 16, 64])
def test_angles_are_right_beside_large_ones_infinities_and_nan(op, lanes):
    """A vector function that reduces all its lanes as the largest one needs was wrong in the small ones."""
    small = np.geomspace(1e-4, 100, 640, dtype=np.float32).reshape(10, 64)
    for other in (2e4, 4e4, 1e9, 3e38, np.inf, np.nan):
        x = small.copy()
        x[:, ::7] = other
        with np.errstate(invalid="ignore"):
            want = getattr(np, op)(x.ravel().astype(np.float64))
        got = compute(Unary(op, x_load(elements=x.size), F32), x.ravel(), lanes=lanes)
        np.testing.assert_allclose(got, want, rtol=4e-7, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("op", ["tanh", "erf"])
def test_odd_functions_keep_nan_and_limits(op):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, 40.0, -40.0], np.float32)
    got = compute(Unary(op, x_load(elements=x.size), F32), x)
    np.testing.assert_array_equal(got, np.array([np.nan, 1, -1, 0, 1, -1], np.float32))


@pytest.mark.parametrize("op", [*FUNCTIONS, "abs", "neg"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.every(11)
def test_unary_operations(op, dtype):
    x = np.random.default_rng(1).uniform(0.1, 3, N)
    x = x if op in ("log", "sqrt", "rsqrt", "log1p") else (x - 1.5) / (2 if op in ("asin", "acos") else 1)
    program = elementwise(Unary(op, x_load(dtype), dtype), N, lanes=16 if dtype == F32 else 8)
    assert difference(program, {"X": x.astype(dtype)}, tolerance=1e-6 if dtype == F32 else 1e-14) is None


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "max", "min", "pow", "atan2"])
def test_binary_operations(op, device):
    value = Binary(op, x_load(), x_load(name="Z"), F32)
    inputs = {"X": np.random.default_rng(1).uniform(0.5, 2, N).astype(F32), "Z": np.random.default_rng(2).uniform(0.5, 2, N).astype(F32)}
    assert difference(elementwise(value, N, device), inputs, tolerance=1e-6) is None


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_max_and_min_keep_nan_from_either_side(op, device):
    x, z = (a.reshape(-1) for a in np.meshgrid(SPECIAL, SPECIAL))
    x, z = x.copy(), z.copy()
    program = elementwise(Binary(op, x_load(elements=64), x_load(name="Z", elements=64), F32), 64, device)
    got = execute(emit(program, DEVICES[device]), program, {"X": x, "Z": z})["Y"].array
    np.testing.assert_array_equal(got, {"max": np.maximum, "min": np.minimum}[op](x, z))


@pytest.mark.parametrize("swap", [False, True])
def test_max_with_a_number_keeps_nan(swap):
    x = np.resize(SPECIAL, 48).astype(np.float32)
    sides = (Const(0.0, F32), x_load(elements=48)) if swap else (x_load(elements=48), Const(0.0, F32))
    np.testing.assert_array_equal(compute(Binary("max", *sides, F32), x), np.maximum(x, 0))


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_comparisons_logic_and_select(device):
    x, z = x_load(), x_load(name="Z")
    condition = Binary("or", Binary("lt", x, z, "bool"), Unary("not", Binary("ge", x, Const(0.0, F32), "bool"), "bool"), "bool")
    value = Select(Binary("and", condition, Binary("ne", z, Const(1.0, F32), "bool"), "bool"), x, Binary("mul", z, Const(2.0, F32), F32), F32)
    assert difference(elementwise(value, N, device)) is None


def test_a_mask_selects_values_of_another_width():
    condition = Binary("gt", x_load(), Const(0.0, F32), "bool")
    wide = Cast(x_load(name="Z", dtype="float64"), "float64")
    assert difference(elementwise(Select(condition, wide, Const(0.5, "float64"), "float64"), N, lanes=8)) is None


def test_a_condition_is_stored_as_zeros_and_ones():
    value = Binary("gt", x_load(), Const(0.0, F32), "bool")
    for device in ("cpu", "v100"):
        assert difference(elementwise(value, N, device, dtype="bool")) is None


@pytest.mark.parametrize(("source", "target"), [("int8", "int32"), ("int32", "float32"), ("float32", "int32"), ("int32", "int64"), ("int64", "float64"), ("float64", "float32")])
def test_casts(source, target):
    program = elementwise(Cast(x_load(source), target), N, lanes=8 if "64" in source + target else 16)
    assert difference(program) is None


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("device", "op"), [("cpu", "mul"), ("v100", "mul"), ("v100", "add"), ("v100", "neg")])
def test_narrow_integers_wrap_around_alone_and_in_vectors(op, device, lanes):
    """C computes with a char as an int; what is compared or widened then is the char all the same."""
    x, three = x_load("int8"), Const(3, "int8")
    made = Unary(op, x, "int8") if op == "neg" else Binary(op, Binary(op, x, x, "int8"), three, "int8")
    large = Select(Binary("gt", made, Const(0, "int8"), "bool"), made, x, "int8")
    values = np.arange(-128, -28, dtype=np.int8)
    for value, dtype in ((made, "int8"), (Cast(made, "int32"), "int32"), (Cast(made, F32), F32), (large, "int8")):
        assert difference(elementwise(value, N, device, lanes, dtype), {"X": values}) is None


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_read_exactly_and_stored_rounded_to_even(dtype, device):
    program = elementwise(Cast(x_load(elements=4096), dtype), 4096, device)
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    assert difference(program, {"X": x}) is None
    value = Cast(Binary("mul", Cast(x_load(dtype, elements=4096), F32), Const(3.0, F32), F32), dtype)
    assert difference(elementwise(value, 4096, device), {"X": x.astype(numpy_dtype(dtype))}) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_to_a_narrow_float_rounds_though_the_register_is_wide(dtype):
    value = Cast(Cast(x_load(), dtype), F32)
    x = np.random.default_rng(0).standard_normal(N).astype(np.float32)
    assert difference(elementwise(value, N), {"X": x}) is None


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_an_index_is_a_number(device):
    index = (ix("i") * 3 - 50) // 7 + ix("i") % 5
    assert difference(elementwise(IndexValue(index), N, device)) is None


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_the_side_of_a_select_that_is_not_chosen_is_not_read(device):
    inside = Binary("lt", IndexValue(ix("i")), Const(60, "int32"), "bool")
    ahead = load("X", ix("i") + 40, shape=(100,))  # beyond the buffer from i = 60 on
    assert difference(elementwise(Select(inside, ahead, Const(-1.0, F32), F32), N, device)) is None


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("index", [ix("i") - 3, ix("i") * 2 - 7, Index.of(99) - ix("i"), (ix("i") // 7) * 3 + ix("i") % 7])
def test_guarded_loads_have_their_fill(index, device):
    value = Load(x_load().buffer, (index,), (Within(index, 5, 90),), 7.0)
    assert difference(elementwise(value, N, device)) is None


@pytest.mark.parametrize("shape", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("name", "dtype", "columns"),
    [
        ("sum", "float32", 64), ("sum", "float32", 5), ("max", "float32", 77), ("min", "int32", 77),
        ("sum", "int64", 77), ("prod", "float64", 77), ("max", "int8", 77),
    ],
)  # fmt: skip
def test_reductions_of_every_kind_with_masked_points(name, dtype, columns, shape):
    x = load("X", ix("i"), ix("j"), shape=(6, columns), dtype=dtype)
    body = Cast(x, "int32") if dtype == "int8" else x
    program = row_reduction(named_combiner(name, body.dtype), (body,), 6, columns, shape=shape)
    rng = np.random.default_rng(0)
    values = rng.integers(1, 3, (6, columns)) if name == "prod" else rng.integers(-90, -3, (6, columns))
    assert difference(program, {"X": values.astype(dtype)}) is None


@pytest.mark.parametrize("combine", ["tree", "shuffle"])
def test_threads_combine_alike_by_tree_and_by_shuffle(combine):
    x = load("X", ix("i"), ix("j"), shape=(10, 77))
    assert difference(row_reduction(named_combiner("sum", F32), (x,), 10, 77, shape="gpu", combine=combine)) is None


def argmax():
    """(largest value, its first position)."""
    l0, r0, l1, r1 = Var("lhs0", F32), Var("rhs0", F32), Var("lhs1", "int32"), Var("rhs1", "int32")
    earlier = Binary("and", Binary("eq", l0, r0, "bool"), Binary("lt", l1, r1, "bool"), "bool")
    left = Binary("or", Binary("gt", l0, r0, "bool"), earlier, "bool")
    both = (Select(left, l0, r0, F32), Select(left, l1, r1, "int32"))
    return Combiner("argmax", (Const(float("-inf"), F32), Const(2**31 - 1, "int32")), both)


@pytest.mark.parametrize("shape", ["cpu", "gpu"])
@pytest.mark.parametrize("columns", [64, 77])
def test_argmax_reduces_pairs(columns, shape):
    x = load("X", ix("i"), ix("j"), shape=(6, columns))
    program = row_reduction(argmax(), (x, IndexValue(ix("j"))), 6, columns, shape=shape)
    assert difference(program) is None


def welford():
    """(count, mean, sum of squared deviations), Chan's parallel form."""
    n, m, s = (Var(f"lhs{c}", F32) for c in range(3))
    k, p, t = (Var(f"rhs{c}", F32) for c in range(3))
    op = lambda name, a, b: Binary(name, a, b, F32)
    count = op("add", n, k)
    safe = op("max", count, Const(1.0, F32))
    delta = op("sub", p, m)
    mean = op("add", m, op("mul", delta, op("div", k, safe)))
    spread = op("add", op("add", s, t), op("mul", op("mul", delta, delta), op("div", op("mul", n, k), safe)))
    return Combiner("welford", (Const(0.0, F32),) * 3, (count, mean, spread))


@pytest.mark.parametrize("shape", ["cpu", "gpu"])
@pytest.mark.parametrize("columns", [64, 77])
def test_welford_gives_the_variance(columns, shape):
    x = load("X", ix("i"), ix("j"), shape=(6, columns))
    variance = Binary("div", Partial("r", F32, 2), Partial("r", F32, 0), F32)
    program = row_reduction(welford(), (Const(1.0, F32), x, Const(0.0, F32)), 6, columns, variance, shape)
    inputs = {"X": np.random.default_rng(0).standard_normal((6, columns)).astype(F32)}
    assert difference(program, inputs, tolerance=1e-5) is None


@pytest.mark.parametrize("shape", ["cpu", "gpu"])
def test_a_factor_that_is_infinite_does_not_leak_from_masked_points(shape):
    x = load("X", ix("i"), ix("j"), shape=(6, 77))
    factor = load("S", ix("i"), shape=(6,))
    program = row_reduction(named_combiner("sum", F32), (Binary("mul", x, factor, F32),), 6, 77, shape=shape)
    inputs = {"X": np.ones((6, 77), np.float32), "S": np.full(6, np.inf, np.float32)}
    assert difference(program, inputs) is None
