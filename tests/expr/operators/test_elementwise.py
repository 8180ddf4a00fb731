"""Elementwise operators and activations equal NumPy's and PyTorch's."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.expr.reads import given_tensors
from tests.expr.operators.oracle import F, agree, given, torch

ops = rg.ops

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "erf": torch.erf, "floor": torch.floor, "round": torch.round, "relu": F.relu, "leaky_relu": F.leaky_relu,
    "gelu": F.gelu, "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "maximum": np.maximum,
    "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_tensor_equal_pytorchs(name):
    (x,), arrays, (t,) = given((3, 5), positive=name in ("log", "sqrt", "rsqrt"))
    agree(getattr(ops, name)(x), arrays, UNARY[name](t))


@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((3, 1, 5), (4, 1)), ((5,), (2, 3, 5)), ((1,), (3,))])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_tensors_broadcast_as_numpys(name, shapes):
    (x, y), (a, b), _ = given(*shapes, positive=True)
    agree(getattr(ops, name)(x, y), [a, b], BINARY[name](a, b))


@pytest.mark.parametrize("name", BINARY)
def test_either_operand_may_be_a_number(name):
    (x,), (a,), _ = given((3, 5), positive=True)
    agree(getattr(ops, name)(x, 2), [a], BINARY[name](a, 2))
    agree(getattr(ops, name)(0.5, x), [a], BINARY[name](0.5, a))


def test_rounding_is_to_even_and_keeps_large_values_and_nan():
    a = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -(2.0**53), np.inf, np.nan])
    np.testing.assert_array_equal(ops.round(rg.tensor("x", (9,))).evaluate(a), np.rint(a))


@pytest.mark.parametrize("slope", [0.0, 0.2, 2])
def test_a_leaky_slope_may_be_anything(slope):
    (x,), arrays, (t,) = given((3, 5))
    agree(ops.leaky_relu(x, slope), arrays, F.leaky_relu(t, slope))


def test_gelu_has_a_tanh_form():
    (x,), arrays, (t,) = given((3, 5))
    agree(ops.gelu(x, "tanh"), arrays, F.gelu(t, approximate="tanh"))


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.5), (None, 0.1), (0.1, None), (-1, 1)])
def test_clip_equals_numpys(low, high):
    (x,), (a,), _ = given((3, 5))
    agree(ops.clip(x, low, high), [a], np.clip(a, low, high))


def test_clip_takes_tensors_as_limits():
    (x, low), (a, b), _ = given((3, 5), (5,))
    agree(ops.clip(x, low, 2), [a, b], np.clip(a, b, 2))


def test_where_broadcasts_three_operands():
    (x, y), (a, b), _ = given((3, 1), (5,))
    keep = rg.tensor("keep", (4, 1, 1), "bool")
    mask = np.array([True, False, True, True]).reshape(4, 1, 1)
    agree(ops.where(keep, x, y), [mask, a, b], np.where(mask, a, b))
    agree(ops.where(keep, 1.0, y), [mask, b], np.where(mask, 1.0, b))
    agree(ops.where(ops.greater(x, y), x, 0), [a, b], np.where(a > b, a, 0))


@pytest.mark.parametrize("dtype", ["int32", "int8", "float64", "float16", "bool"])
def test_cast_has_the_dtype_asked_for(dtype):
    (x,), (a,), _ = given((3, 5))
    found = ops.cast(x, dtype)
    assert found.dtype == dtype
    wanted = a if "float" in dtype else (a != 0 if dtype == "bool" else np.trunc(a))
    np.testing.assert_array_equal(found.evaluate(a), wanted)


@pytest.mark.parametrize("dtype", ["int32", "int8", "float16"])
def test_arithmetic_keeps_the_dtype(dtype):
    x = rg.tensor("x", (3,), dtype)
    for result in (ops.add(x, 1), ops.mul(x, x), ops.maximum(x, 0), ops.relu(x), ops.neg(x), ops.clip(x, 0, 1)):
        assert result.dtype == dtype


ONE_OPERAND = sorted(
    {"gelu", "leaky_relu", "relu", "rsqrt", "silu", "sqrt", *(row.name for row in FORMULAS.values() if row.operands == 1)}
    - {"bitwise_not", "threshold"}
)


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_functions_are_torch_s_at_the_ends_of_their_ranges(name):
    """sinh of large numbers was NaN, acosh of large negative ones a number; gelu of infinity is NaN in torch alone."""
    sizes = np.array([0, 1e-300, 1e-40, 1e-8, 0.5, 1, 1.001, 2.5, 20, 88.9, 89.3, 700, 709.5, 1e4, 1e9, 1e20, 1e300])
    x = np.concatenate([sizes, -sizes, [np.nan, *([] if name == "gelu" else [np.inf, -np.inf])]])
    wanted = (getattr(torch, name, None) or getattr(F, name))(torch.tensor(x))
    with np.errstate(all="ignore"):
        agree(getattr(ops, name)(rg.tensor("x", x.shape, "float64")), [x], wanted)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_quotients_rounded_down_are_python_s(dtype):
    """-1 of a negative number by infinity, NaN of an infinity; 1.0 // 0.1 is 9 though 1.0 / 0.1 rounds to 10."""
    ends = np.array([0.0, 0.1, 0.3, 1.0, 2.5, 7.0, 1e3, 6e4, np.inf]).astype(dtype)
    a, b = (one.ravel() for one in np.meshgrid([*ends, *-ends, np.nan], [*ends, *-ends, np.nan]))
    x, y = (rg.tensor(name, a.shape, dtype) for name in "xy")
    wanted = torch.div(torch.tensor(a), torch.tensor(b), rounding_mode="floor").numpy()
    with np.errstate(all="ignore"):
        agree(x // y, [a, b], wanted)
        found = rg.build(x // y, "cpu", profile=False)(a.astype(dtype), b.astype(dtype))
        np.testing.assert_array_equal(found, wanted.astype(dtype))


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2.5, 1.0])
def test_a_power_is_the_same_of_one_exponent_and_of_many(exponent):
    """That of IEEE 754: NumPy's of one for all elements is a root, which of -infinity is NaN."""
    values = np.array([-np.inf, -0.0, np.inf, 4.0, -1.0])
    one, many = np.array([exponent]), np.full(5, exponent)
    made = [ops.pow(rg.tensor("x", (5,)), rg.tensor("y", y.shape)).evaluate(values, y) for y in (one, many)]
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], torch.pow(torch.tensor(values), torch.tensor(many)))


def test_a_power_of_one_half_is_a_root():
    values = np.array([-np.inf, -1.0, 0.0, 2.0, np.inf])
    made = ops.pow(rg.tensor("x", (5,), "float64"), 0.5)
    agree(made, [values], torch.pow(torch.tensor(values), 0.5))
    assert "sqrt" in rg.build(made, "v100").source and "pow(" not in rg.build(made, "v100").source


def test_integers_of_64_bits_to_a_negative_power_are_0_but_for_1():
    a, b = np.array([2**63 - 1, 1 - 2**63, -1, -1, 1, 3]), np.array([-1, -2, -3, -2, -5, -1])
    x, y = (rg.tensor(name, a.shape, "int64") for name in "xy")
    agree(ops.pow(x, y), [a, b], torch.pow(torch.tensor(a), torch.tensor(b)))


@pytest.mark.parametrize("name", sorted(row.name for row in FORMULAS.values() if row.operands == 2))
def test_arrays_come_in_the_order_of_the_operands(name):
    """Inputs are found as they appear in the formula, whichever operand that mentions first."""
    dtype = "int32" if name.startswith("bitwise") else "bool" if name.startswith("logical") else "float32"
    x, y = rg.tensor("x", (3,), dtype), rg.tensor("y", (3,), dtype)
    assert [one.label for one in given_tensors((getattr(ops, name)(x, y),))] == ["x", "y"]
