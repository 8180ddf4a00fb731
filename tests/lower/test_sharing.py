"""What occurs several times in a value is found by structure and computed once."""

import re

import pytest

import rollergen as rg
from rollergen.expr.index import Index
from rollergen.expr.values import Binary, Buffer, Const, Load, Unary
from rollergen.lower.expressions import shared

F32 = "float32"


def x():
    return Load(Buffer("X", (9,)), (Index.axis("i"),))


def exp(value):
    return Unary("exp", value, F32)


def test_equal_parts_share_a_number_whoever_they_are():
    a, b = exp(x()), exp(x())
    found = shared(Binary("add", a, b, F32)).numbers
    assert found[id(a)] == found[id(b)]


def test_what_is_inside_a_shared_part_only_is_not_shared_itself():
    inner = exp(x())
    a, b = exp(inner), exp(exp(x()))
    found = shared(Binary("add", a, b, F32)).numbers
    assert id(a) in found and id(inner) not in found


def test_zero_and_minus_zero_differ():
    a, b = (Binary("add", x(), Const(zero, F32), F32) for zero in (0.0, -0.0))
    assert id(a) not in shared(Binary("mul", a, b, F32)).numbers


def test_parts_common_to_several_values_are_shared():
    a = exp(x())
    assert id(a) in shared(Binary("mul", a, x(), F32), Binary("add", a, x(), F32)).numbers


@pytest.mark.parametrize(
    ("device", "function", "occurrences"), [("cpu", r"exp_f32x\d+\(", 2), ("v100", r"\bexpf\(", 1)]
)
def test_a_diamond_calls_its_function_once(device, function, occurrences):
    """Where the language lacks the function, its definition is the second occurrence."""
    x = rg.tensor("x", (64, 100))
    power = rg.ops.exp(x)
    joined = rg.ops.add(rg.ops.mul(power, 2.0), rg.ops.relu(power), name="y")
    source = rg.build(joined, device, profile=False, top_k=1).source
    assert len(re.findall("= " + function, source)) == 1 and len(re.findall(function, source)) == occurrences
