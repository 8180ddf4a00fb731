"""The language: axes and SymPy in index slots, dtypes, reductions."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr import guards
from rollergen.expr.index import Index
from rollergen.expr.reference import Evaluation
from rollergen.expr.slots import IndexExpr, axis, index_of
from rollergen.expr.sympy_forms import index_form, to_sympy
from rollergen.expr.values import Load, walk
from rollergen.expr.views import recombine, reduced

quick = settings(max_examples=100, deadline=None)
EXTENTS = {"i": 5, "j": 7}
RANGES = {name: (0, extent - 1) for name, extent in EXTENTS.items()}
POINTS = dict(zip(EXTENTS, np.meshgrid(*(np.arange(e) for e in EXTENTS.values()), indexing="ij"), strict=True))

indices = st.recursive(
    st.one_of(st.sampled_from([Index.axis("i"), Index.axis("j")]), st.integers(-9, 9).map(Index.of)),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, c: a * c, inner, st.integers(-4, 4)),
        st.builds(lambda a, d: a // d, inner, st.integers(1, 6)),
        st.builds(lambda a, d: a % d, inner, st.integers(1, 6)),
    ),
    max_leaves=5,
)


def at_points(index):
    return np.broadcast_to(index.evaluate(POINTS), POINTS["i"].shape)


@quick
@given(indices)
def test_an_index_survives_the_way_to_sympy_and_back(index):
    assert np.array_equal(at_points(index_form(sympy.sympify(to_sympy(index)))), at_points(index))


def test_a_remainder_of_a_multiple_of_a_remainder_survives_sympy():
    index = Index.axis("i") % 5 * 2 % 3
    assert np.array_equal(at_points(index_form(to_sympy(index))), at_points(index))


@quick
@given(indices)
def test_recombined_and_reduced_indices_have_equal_values(index):
    assert np.array_equal(at_points(recombine(index)), at_points(index))
    assert np.array_equal(at_points(reduced(index, RANGES)), at_points(index))


@quick
@given(st.integers(2, 6), st.integers(2, 6), st.integers(2, 6))
def test_the_digits_of_a_number_recombine_to_it(a, b, c):
    p = Index.axis("p")
    digits = (p // (b * c)) * (b * c) + ((p % (b * c)) // c) * c + p % c
    assert recombine(digits) == p
    assert recombine((p % (b * c + 1)) // c * c + p % c) != p % (b * c + 1)  # c does not divide b * c + 1
    other = (p // (b * c)) * (b * c) + ((p // c) % b) * c + p % c
    assert recombine(other) == p


comparisons = st.tuples(indices, st.sampled_from(["__lt__", "__le__", "__gt__", "__ge__"]), st.integers(-6, 12))


@quick
@given(st.lists(comparisons, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_bounds_of_a_condition_hold_exactly_where_it_does(parts, conjunction, negate):
    conditions = []
    for index, operation, constant in parts:
        conditions.append(getattr(IndexExpr(index, EXTENTS), operation)(constant))
    condition = conditions[0]
    for other in conditions[1:]:
        condition = condition & other if conjunction else condition | other
    condition = ~condition if negate else condition
    truth = np.broadcast_to(Evaluation({}).value(condition.value, POINTS, 2), POINTS["i"].shape)
    bounds = guards.bounds_of(condition.value)
    if bounds is not None:
        held = np.ones(truth.shape, bool)
        for bound in bounds:
            held &= bound.evaluate(POINTS)
        assert np.array_equal(held, truth)
    else:
        assert len(parts) > 1  # a single comparison always has this form
    for bound in guards.implied_bounds(condition.value):
        assert np.all(np.broadcast_to(bound.evaluate(POINTS), truth.shape)[truth])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (lambda i, j: sympy.floor((i + 1) / 2), "(i + 1)//2"),
        (lambda i, j: sympy.Mod(i + j, 3), "(i + j)%3"),
        (lambda i, j: sympy.floor(i / 2 + sympy.Rational(3, 4)), "(2*i + 3)//4"),
        (lambda i, j: 2 * (i + sympy.Integer(3)) - j, "2*i - j + 6"),
        (lambda i, j: i // sympy.Integer(4), "(i)//4"),
        (lambda i, j: sympy.Symbol("i", integer=True) + 1, "i + 1"),
        (lambda i, j: np.int64(3) * i, "3*i"),
        (lambda i, j: 7 - i, "-i + 7"),
    ],
)
def test_sympy_and_numpy_integers_stand_in_index_slots(form, expected):
    index, _ = index_of(form(axis("i", 5), axis("j", 7)), "A", 0)
    assert np.array_equal(at_points(index), eval(expected, {}, POINTS))


def test_ceiling_is_a_negated_floor():
    index, _ = index_of(sympy.ceiling(axis("i", 5) / 2), "A", 0)
    assert np.array_equal(at_points(index), -(-POINTS["i"] // 2))


def test_a_sympy_relation_is_a_condition():
    A = rg.tensor("A", (8,))
    shifted = rg.compute((8,), lambda i: rg.select(sympy.floor(i / 2) >= 1, A[i], 0))
    assert list(shifted.evaluate(np.arange(8.0))) == [0, 0, 2, 3, 4, 5, 6, 7]
    both = rg.compute((8,), lambda i: rg.select(sympy.And(i >= sympy.Integer(2), sympy.Mod(i, 2) < 1), A[i], 0))
    assert list(both.evaluate(np.arange(8.0))) == [0, 0, 2, 0, 4, 0, 6, 0]


def test_parameter_names_become_axis_names():
    A = rg.tensor("A", (4, 3))
    assert rg.compute((3, 4), lambda column, row: A[row, column]).producer.axes == (("column", 3), ("row", 4))
    assert [n for n, _ in rg.compute((4, 3), lambda *x: A[x]).producer.axes] == ["x0", "x1"]


def test_default_arguments_are_not_axes():
    A = rg.tensor("A", (4,))
    assert rg.compute((2,), lambda i, step=2: A[i * step]).shape == (2,)


@pytest.mark.parametrize(
    ("dtype", "accumulator", "result"),
    [
        ("float16", "float32", "float16"),
        ("bfloat16", "float32", "bfloat16"),
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("int8", "int32", "int32"),
        ("int32", "int32", "int32"),
        ("int64", "int64", "int64"),
    ],
)
def test_reductions_accumulate_and_return_the_normative_dtypes(dtype, accumulator, result):
    product = rg.ops.matmul(rg.tensor("A", (4, 3), dtype), rg.tensor("B", (3, 5), dtype))
    reduction = next(n for n in walk(product.producer.body) if hasattr(n, "bodies"))
    assert (reduction.dtype, product.dtype) == (accumulator, result)
    # Operands are widened before they are multiplied.
    assert {n.dtype for n in walk(reduction.bodies[0]) if not isinstance(n, Load)} == {accumulator}


@pytest.mark.parametrize(
    ("values", "one", "expected"),
    [
        (np.array([-2, 0.875], ml_dtypes.float8_e5m2), 1.0, 1.75),
        (np.array([-100, 127], np.int8), 1, 28),
    ],
)
def test_conditions_in_a_reduction_are_of_the_numbers_that_they_choose_between(values, one, expected):
    """Else a remainder is not corrected where the narrow dtype rounds (1.875 is 2) or wraps its operands."""
    x, y = (rg.tensor(name, (1,), str(values.dtype)) for name in "xy")
    k = rg.reduce_axis("k", 1)
    taken = rg.compute((1,), lambda i: rg.sum(rg.remainder(x[i + k], y[i + k] + one, "floor"), axis=k))
    assert float(taken.evaluate(values[:1], values[1:])[0]) == expected


def test_acc_and_dtype_override_the_rule():
    A, k = rg.tensor("A", (4, 3), "float16"), rg.reduce_axis("k", 3)
    total = rg.compute((4,), lambda i: rg.sum(A[i, k], axis=k, acc="float64", dtype="float32"))
    assert total.dtype == "float32"
    assert next(n for n in walk(total.producer.body) if hasattr(n, "bodies")).dtype == "float64"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int64"])
def test_python_scalars_take_the_dtype_of_what_they_meet(dtype):
    A = rg.tensor("A", (4,), dtype)
    assert rg.compute((4,), lambda i: 2 * A[i] + 1).dtype == dtype
    assert rg.compute((4,), lambda i: rg.maximum(0, A[i])).dtype == dtype
    assert rg.compute((4,), lambda i: rg.select(i >= 1, A[i], 0)).dtype == dtype


def test_dtypes_may_be_given_as_numpy_dtypes():
    assert rg.tensor("A", (4,), dtype=np.int8).dtype == "int8"
    assert rg.tensor("A", (4,), dtype=np.dtype("float16")).dtype == "float16"


def test_values_are_not_simplified():
    A = rg.tensor("A", (2,))
    arrays = [np.array([np.nan, np.inf])]
    assert np.isnan(rg.compute((2,), lambda i: A[i] * 0).evaluate(*arrays)).all()
    assert np.isnan(rg.compute((2,), lambda i: A[i] - A[i]).evaluate(*arrays)).all()


def test_reads_under_a_condition_may_leave_the_tensor_elsewhere():
    A = rg.tensor("A", (4,))
    for shifted in (
        rg.compute((6,), lambda i: rg.select((i >= 1) & (i < 5), A[i - 1], 0)),
        rg.compute((6,), lambda i: rg.select(~((i < 1) | (i >= 5)), A[i - 1], 0)),
        rg.compute((6,), lambda i: rg.select((i < 1) | (i > 4), 0, A[i - 1])),
    ):
        assert list(shifted.evaluate([1.0, 2.0, 3.0, 4.0])) == [0, 1, 2, 3, 4, 0]


def test_importing_rollergen_imports_neither_numpy_nor_sympy():
    code = "import sys, rollergen; print({'numpy', 'sympy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_both_signs_are_two_constants(order):
    A = rg.tensor("A", (4,))
    for zero in order:
        kernel = rg.build(rg.compute((4,), lambda i, zero=zero: A[i] / zero), "cpu", profile=False, cache=False)
        assert kernel(np.ones(4, "float32"))[0] == np.copysign(np.inf, zero)
        assert kernel.interpret(np.ones(4, "float32"))[0] == np.copysign(np.inf, zero)
