"""A short run of the second fuzzer with fixed seeds, and the fuzzer itself: its evaluation, its bounds, its shrinking."""

import numpy as np
import pytest

from tests.fuzzing.formulas import trials
from tests.fuzzing.formulas.bounds import LONG, Bounded, applied, differences, exact, settled
from tests.fuzzing.formulas.cases import script, tried
from tests.fuzzing.formulas.contents import numbers
from tests.fuzzing.formulas.drawing import distinct, draw, telling
from tests.fuzzing.formulas.folds import FOLDS
from tests.fuzzing.formulas.nodes import Const, Load, Op, Position, Reduce
from tests.fuzzing.formulas.programs import Program, Tensor
from tests.fuzzing.formulas.reference import evaluated
from tests.fuzzing.formulas.shrink import shrunk


@pytest.mark.parametrize(("seed", "device"), [(0, "cpu"), (1, "cpu"), *((20 + n, d) for n, d in enumerate(trials.INTERPRETED))])
def test_random_formulas_compute_what_numpy_does(seed, device):
    assert not tried(seed, (device,), minimise=False).failures


def test_a_seed_always_gives_the_same_program_and_seeds_differ():
    drawn = [draw(seed)[0].text for seed in range(10)]
    assert [draw(seed)[0].text for seed in range(10)] == drawn
    assert len(set(drawn)) == 10


def test_drawn_programs_reach_indices_dtypes_and_reductions_of_all_kinds():
    programs = [draw(seed)[0] for seed in range(80)]
    text = "\n".join(program.text for program in programs)
    for part in ("//", "%", "- i", "*2 + k", "rg.select((", "~(", "rg.cast(", '"bool"', '"int8"', '"bfloat16"', '"float64"',
                 "rg.prod(", "rg.min(", "rg.reduce(lambda", "2**31 - 1", 'acc="', "!=", "&"):  # fmt: skip
        assert part in text, part
    assert any(end in text for end in ("(-128)", "2147483647", "9223372036854775807"))
    assert sum(len(program.outputs) > 1 for program in programs) > 15


# The evaluation -------------------------------------------------------------------------------


def one(body, shape, **inputs):
    """The value of a tensor computed from arrays of dtypes that they have."""
    tensors = [Tensor(name, array.shape, str(array.dtype), None, "small:0") for name, array in inputs.items()]
    program = Program((*tensors, Tensor("t", shape, body.dtype, body)), ("t",))
    return evaluated(program, inputs)["t"]


def test_integers_wrap_around_in_their_own_dtype():
    x = np.array([127, -128, 5], np.int8)
    load = Load("int8", "x", ("i0",))
    assert one(Op("int8", "add", (load, load)), (3,), x=x).value.tolist() == [-2, 0, 10]
    assert one(Op("int8", "neg", (load,)), (3,), x=x).value.tolist() == [-127, -128, -5]


def test_a_reduction_computes_narrow_operands_in_its_accumulator():
    x = np.full((2, 3), 100, np.int8)
    load = Load("int8", "x", ("i0", "k0"))
    made = one(Reduce("int32", "sum", (Op("int8", "mul", (load, load)),), (("k0", 3),)), (2,), x=x)
    assert made.value.tolist() == [30_000, 30_000] and made.dtype == "int32"


def test_reads_follow_quotients_remainders_and_reversed_axes():
    x = np.arange(12, dtype=np.int32)
    made = one(Load("int32", "x", ("(11 - i0)//2 + i0%3",)), (12,), x=x)
    assert made.value.tolist() == [(11 - i) // 2 + i % 3 for i in range(12)]


def test_the_place_of_an_extreme_is_the_first_and_unknown_between_near_rivals():
    x = np.array([[1, 3, 3], [2, 1, 2]], np.float32)
    bodies = (Load("float32", "x", ("i0", "k0")), Position("int32", "k0"))
    made = one(Reduce("int32", "argmax", bodies, (("k0", 3),), 1), (2,), x=x)
    assert made.value.tolist() == [1, 0] and not made.error.any()
    near = Op("float32", "exp", (bodies[0],))
    assert np.isinf(one(Reduce("int32", "argmax", (near, bodies[1]), (("k0", 3),), 1), (2,), x=x).error).all()


def test_exact_operands_must_come_out_correctly_rounded_and_functions_within_their_units():
    a, b = exact(np.array([1.0]), "float32"), exact(np.array([2.0**-24 + 2.0**-40]), "float32")
    total = applied("add", "float32", (a, b))
    up = np.array([1 + 2.0**-23], np.float32)
    assert not differences(up, total)[0] and differences(np.ones(1, np.float32), total)[0]
    power = applied("exp", "float32", (a,))
    near = np.float32(np.e)
    for steps, wrong in ((0, False), (2, False), (9, True)):
        moved = np.array([near + steps * np.spacing(near)])
        assert differences(moved, power)[0] == wrong


def test_sums_of_whole_numbers_are_exact_and_others_admit_any_order_but_no_missing_term():
    rng = np.random.default_rng(0)
    whole = exact(rng.integers(-9, 9, (1, 300)), "float32")
    assert FOLDS["sum"].folded((whole,))[0].error[0] == 0
    x = rng.uniform(1, 2, (1, 300)).astype(np.float32)
    want = FOLDS["sum"].folded((exact(x, "float32"),))[0]
    reverse = np.array([np.add.accumulate(x[0, ::-1], dtype=np.float32)[-1]], np.float32)
    assert not differences(reverse, want)[0]
    assert differences(reverse - x[0, :1], want)[0]


def test_a_comparison_within_the_errors_of_its_operands_is_unknown():
    third = settled(Bounded(np.array([LONG(1) / 3]), np.array([LONG(0)]), "float32"))
    same = applied("eq", "bool", (third, third))
    assert np.isinf(same.error[0])
    assert applied("lt", "bool", (third, exact(np.array([0.5]), "float32"))).error[0] == 0


def test_what_either_choice_gives_is_rounded_where_it_lies():
    """Seed 9200633: the other choice lay in the next binade, where a rounding moves twice as much."""
    one, read = exact(np.array([1.01953125]), "float16"), exact(np.array([np.float32(-0.35013446)]), "float32")
    narrow = applied("cast", "float8_e4m3fn", (one,))
    above = applied("gt", "bool", (narrow, exact(np.array([1.0]), "float8_e4m3fn")))
    chosen = applied("select", "float32", (above, exact(np.array([0.0]), "float32"), exact(np.array([0.25]), "float32")))
    want = applied("sub", "float32", (chosen, read))
    for value in (0.0, 0.25):
        got = np.array([value], np.float32) - read.value.astype(np.float32)
        assert not differences(got, want)[0] and not differences(np.nextafter(got, np.float32(0.5)), want)[0]
    assert differences(np.array([0.65], np.float32), want)[0]


def test_what_may_be_nan_is_unknown_whatever_bounds_the_function_of_it():
    """Seed 9400716: 833 is beyond float8_e4m3fn, which has no infinity; tanh of it is NaN, and no 1."""
    narrow = applied("cast", "float8_e4m3fn", (exact(np.array([833, 448]), "int16"),))
    want = applied("tanh", "float8_e4m3fn", (narrow,))
    assert np.isfinite(want.error).tolist() == [False, True]
    assert not differences(np.array([np.nan, 1.0], np.float32), want).any()


def test_a_float_cast_to_an_integer_is_unknown_beside_a_jump_and_beyond_the_range():
    x = Bounded(np.array([LONG(2.5), LONG(3), LONG(300)]), np.array([LONG(0.1)] * 3), "float64")
    assert np.isfinite(applied("cast", "int8", (x,)).error).tolist() == [True, False, False]


def test_outputs_that_are_mostly_alike_or_unknown_tell_nothing():
    many = exact(np.arange(100), "int32")
    assert telling(many) and distinct(many) == 1
    assert not telling(exact(np.arange(100) // 4, "int32")) and not telling(exact(np.zeros(100, bool), "bool"))
    assert not telling(Bounded(many.value, np.where(many.value < 30, LONG(np.inf), LONG(0)), "int32"))


# Failures -------------------------------------------------------------------------------------


def formula():
    """exp(x[j, i]) + the sum of y, of which a test takes the exponential for a failure."""
    x, y = Tensor("x0", (7, 5), "float32", None, "spread:1"), Tensor("x1", (9,), "float32", None, "spread:2")
    power = Op("float32", "exp", (Load("float32", "x0", ("i1", "i0")),))
    total = Reduce("float32", "sum", (Load("float32", "x1", ("k0",)),), (("k0", 9),))
    body = Op("float32", "add", (power, Op("float32", "mul", (total, Const("float32", 2.0, True)))))
    return Program((x, y, Tensor("t0", (5, 7), "float32", body)), ("t0",))


def test_a_failure_is_made_as_small_as_it_goes():
    small = shrunk(formula(), lambda program: "exp" in program.text)
    assert small.text.splitlines() == [
        'x0 = rg.tensor("x0", (7, 5), "float32")',
        't0 = rg.compute((1, 1), lambda i0, i1: rg.exp(x0[i1, i0]), name="t0")',
    ]


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_a_wrong_element_is_a_failure(device, monkeypatch):
    program = formula()
    arrays = numbers(program)
    wanted = evaluated(program, arrays)
    monkeypatch.setattr(trials, "results", lambda *_: [spoiled(wanted["t0"].value)])
    failure = trials.failure(program, arrays, wanted, device, 0)
    assert failure.kind == "wrong" and failure.text.startswith("t0[2, 3] is") and "1 of 35 elements" in failure.text


def spoiled(value):
    result = value.astype(np.float32)
    result[2, 3] *= 1.001
    return result


def test_an_error_that_is_not_ours_and_a_refusal_are_failures():
    program = Program((Tensor("x0", (1,), "float32"), Tensor("t0", (2,), "float32", Load("float32", "x0", ("i0",)))), ("t0",))
    failure = trials.failure(program, {}, {}, "v100", 0)
    assert failure.kind == "refused: ShapeError"
    unknown = Program((Tensor("t0", (2,), "float32", Load("float32", "x9", ("i0",))),), ("t0",))
    assert trials.failure(unknown, {}, {}, "v100", 0).kind == "raised: NameError"


def test_a_failures_script_runs(capsys):
    exec(script(formula(), "v100", 0), {})
    assert capsys.readouterr().out.startswith("[array([[")
