"""Whole tensors have torch's operators and methods, and take part in NumPy's functions."""

import copy
import inspect
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError
from rollergen.expr.methods import METHODS, NUMPYS, OTHERWISE
from tests.expr.operators.oracle import agree, given, torch

OPERATORS = {
    "A + B": lambda a, b: a + b, "2 - A": lambda a, b: 2 - a, "A * 3": lambda a, b: a * 3, "1 / A": lambda a, b: 1 / a,
    "A // B": lambda a, b: a // b, "7 // A": lambda a, b: 7 // a, "A ** 2": lambda a, b: a**2, "-A": lambda a, b: -a,
    "abs(A)": lambda a, b: abs(a), "A @ B.T": lambda a, b: a @ b.T, "A < B": lambda a, b: a < b,
    "A <= 1": lambda a, b: a <= 1, "1 > A": lambda a, b: a < 1, "A >= B": lambda a, b: a >= b,
    "a chain": lambda a, b: (a @ b.T + 1).exp().sum(dim=0) / 3, "2 ** A": lambda a, b: 2**a,
    "reshape": lambda a, b: a.reshape(5, 3), "permute": lambda a, b: a.permute(1, 0), "clip": lambda a, b: a.clip(1, 2),
    "unfold": lambda a, b: a.unfold(1, 3, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_tensors_is_torchs(name):
    tensors, arrays, others = given((3, 5), (3, 5), positive=True)
    wanted, found = OPERATORS[name](*others), OPERATORS[name](*tensors)
    agree(found, arrays[: len(rg.ops.add(*tensors).shape) if "B" in name or name == "a chain" else 1], wanted)


WHOLE = {
    "A % B": lambda a, b: a % b, "7 % B": lambda a, b: 7 % b, "A & B": lambda a, b: a & b, "6 | A": lambda a, b: 6 | a,
    "A ^ B": lambda a, b: a ^ b, "~A": lambda a, b: ~a, "A << B": lambda a, b: a << b, "A >> B": lambda a, b: a >> b,
    "-64 >> B": lambda a, b: -64 >> b, "3 << B": lambda a, b: 3 << b, "(+A) * 2": lambda a, b: (+a) * 2,
    "A.mT": lambda a, b: a.mT,
    "(A > 0) & B | ~(A > 3)": lambda a, b: (a > 0) & b | ~(a > 3),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_an_operator_of_tensors_of_integers_is_torchs(name):
    arrays = {"A": np.arange(-7, 8).reshape(3, 5), "B": np.array([1, 2, 3, 4, 5])}
    tensors = [rg.tensor(key, array.shape, array.dtype) for key, array in arrays.items()]
    found, wanted = WHOLE[name](*tensors), WHOLE[name](*map(torch.tensor, arrays.values()))
    values = found.evaluate(*(array for key, array in arrays.items() if key in name))
    assert found.dtype == str(wanted.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(values, wanted.numpy())


@pytest.mark.parametrize(("symbol", "of"), [("&", lambda x: x & 1), ("<<", lambda x: x << 1)])
def test_bits_of_floats_are_refused(symbol, of):
    with pytest.raises(DtypeError, match="x has dtype float32; expected an integer one"):
        of(rg.tensor("x", (5,)))


@pytest.mark.parametrize("name", ["sum", "split", "absolute", "unfold"])
def test_editors_see_the_arguments_of_methods(name):
    method, of = getattr(rg.tensor("x", (5, 4)), name), getattr(rg.ops, OTHERWISE.get(name, name))
    assert [*inspect.signature(method).parameters] == [*inspect.signature(of).parameters][1:]


def test_remainders_of_floats_are_torchs():
    values = np.array([1.5, -0.75, 4.0])
    assert np.array_equal((2 % rg.tensor("x", (3,))).evaluate(values), (2 % torch.tensor(values)).numpy())


OF_ANOTHER_MEANING = {"dequantize", "equal", "resize", "where"}
"""Operators whose first argument is not torch's tensor, or that mean something else."""


def test_methods_are_the_operators_that_are_methods_of_torch_too():
    named = {name for name in dir(rg.ops) if not name.startswith("_")} - OF_ANOTHER_MEANING
    assert {name for name in named if hasattr(torch.Tensor, name)} - {*METHODS} == set()
    assert all(hasattr(torch.Tensor, name) and hasattr(rg.ops, OTHERWISE.get(name, name)) for name in METHODS)
    x = rg.tensor("x", (3, 5))
    assert set(METHODS) <= set(dir(x)) and all(callable(getattr(x, name)) for name in METHODS)
    with pytest.raises(AttributeError, match="a tensor has no attribute 'summ'; did you mean sum"):
        _ = x.summ


@pytest.mark.parametrize("name", ["exp", "floor", "rint", "negative", "sqrt", "arctan", "arcsinh"])
def test_numpys_functions_of_a_tensor_are_expressions(name):
    (x,), (a,), _ = given((3, 5), positive=True)
    function = getattr(np, name)
    agree(function(x), [a], function(a))
    assert hasattr(rg.ops, NUMPYS.get(name, name))


def test_numbers_of_numpy_stand_on_either_side():
    (x,), (a,), _ = given((3, 5))
    agree(np.float32(2) * x, [a], 2 * a)
    agree(np.multiply(x, np.int64(3)), [a], 3 * a)


@pytest.mark.parametrize("name", ["exp", "floor", "rint", "negative", "sqrt", "arctan", "absolute", "sin", "log1p"])
def test_numpys_functions_of_an_element_are_those_of_the_language(name):
    (x,), (a,), _ = given((3, 5), positive=True)
    function = getattr(np, name)
    agree(rg.compute((3, 5), lambda i, j: function(x[i, j])), [a], function(a))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize(
    "operation",
    [
        lambda n, e: n * e, lambda n, e: e - n, lambda n, e: n - e, lambda n, e: n / e, np.maximum, np.arctan2,
        lambda n, e: n < e, lambda n, e: n == e,
    ],
)  # fmt: skip
def test_a_number_of_numpy_beside_an_element_is_as_weak_as_pythons(kind, operation):
    x = rg.tensor("x", (3, 5), "float16")
    made, expected = (rg.compute((3, 5), lambda i, j, n=n: operation(n, x[i, j])) for n in (kind(1), kind(1).item()))
    a = np.linspace(0.5, 2, 15, dtype=np.float16).reshape(3, 5)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made.evaluate(a), expected.evaluate(a))


def test_numbers_of_numpy_count_in_indices():
    (x,), (a,), _ = given((6, 5))
    agree(rg.compute((3, 5), lambda i, j: x[np.int64(2) * i + np.int32(1), j]), [a], a[1::2])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda e: np.cosh(e), "numpy.cosh of <float32 expression x[i]>; expected rg.exp, rg.log, "),
        (lambda e: np.sin(e, dtype="float64"), "numpy.sin of <float32 expression x[i]>, dtype='float64'; expected "),
        (lambda e: np.add.reduce(e), "numpy.add.reduce of <float32 expression x[i]>"),
        (lambda e: np.ones(5) * e, "numpy.multiply of a numpy.ndarray of shape (5,) and dtype float64"),
        (lambda e: rg.ops.sin(e), "got one element, <float32 expression x[i]>; rg.sin takes elements"),
    ],
)
def test_what_elements_do_not_have_is_refused_with_what_they_have(make, said):
    x = rg.tensor("x", (5,))
    with pytest.raises(ExpressionError, match=re.escape(said)):
        rg.compute((5,), lambda i: make(x[i]))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: np.ones(5) + x, 'rg.tensor("x", (5,), "float64") stands for it'),
        (lambda x: np.add.reduce(x), "numpy.add.reduce of x"),
        (lambda x: np.add(x, 1, dtype="float64"), "numpy.add of x, 1, dtype='float64'"),
        (lambda x: np.hypot(x, x), "numpy.hypot of x, x; expected one of"),
        (lambda x: bool(x < 1), "the truth of"),
    ],
)
def test_what_numpy_cannot_do_with_tensors_is_refused(make, said):
    with pytest.raises(ExpressionError) as caught:
        make(rg.tensor("x", (5,)))
    assert said in str(caught.value)


def test_conditions_are_joined_and_turned():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    x, y = (rg.tensor(name, (4,), "bool") for name in "xy")
    for found, wanted in ((x & y, a & b), (x | y, a | b), (x ^ y, a ^ b)):
        agree(found, [a, b], wanted)
    agree(~x, [a], ~a)


def test_a_process_that_only_unpickles_a_tensor_has_its_operators():
    code = "import pickle, sys; print((pickle.load(sys.stdin.buffer) + 1).shape)"
    given = pickle.dumps(rg.tensor("x", (5,)))
    ran = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True)
    assert ran.stdout.split() == [b"(5,)"], ran.stderr.decode()


def test_equality_is_identity_and_copies_are_whole():
    x, y = rg.tensor("x", (5,)), rg.tensor("x", (5,))
    assert x == x and x != y and len({x, y}) == 2
    for one in (copy.copy(x), pickle.loads(pickle.dumps(x))):
        assert (one.name, one.shape, one.dtype) == ("x", (5,), "float32")


def test_numpy_s_operators_are_those_of_python():
    A = rg.tensor("A", (3,))
    x = np.array([-1.5, 0.5, 7.0])
    for function, second in ((np.floor_divide, (2,)), (np.positive, ()), (np.fabs, ())):
        agree(function(A, *second) * 1, [x], function(x, *second))


@pytest.mark.parametrize("function", [np.transpose, np.sum, lambda A: np.where(A, 1, 2), lambda A: np.concatenate([A, A])])
def test_other_functions_of_numpy_are_refused_with_the_operator_s_name(function):
    with pytest.raises(ExpressionError, match=r"numpy\.\w+ takes arrays, and a tensor is none; in rg\.ops: did you mean"):
        function(rg.tensor("A", (2, 3)))


def test_a_tensor_is_no_array():
    with pytest.raises(ExpressionError, match="a tensor has no elements"):
        np.asarray(rg.tensor("A", (2, 3)))


def test_numpy_tells_the_shape_of_a_tensor():
    A = rg.tensor("A", (2, 3))
    assert np.shape(A) == (2, 3) and np.ndim(A) == 2


def test_an_array_of_nibbles_in_another_shape_is_told_how_they_are_packed():
    with pytest.raises(ShapeError, match=r"expected \(3, 3\), the bytes that rg.pack makes of int4\[3, 5\]"):
        (rg.tensor("w", (3, 5), "int4") + 1).evaluate(np.zeros((3, 5)))
