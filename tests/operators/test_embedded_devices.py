"""Ten operators on an embedded GPU and on an ARM core: valid programs whose source computes the definition here."""

import math

import pytest

from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.lints import WARNING, lint
from rollergen.hal.load import load_device
from rollergen.program.check import check
from tests.agreement.readers import device, run_opencl
from tests.operators.test_builds import CASES, assert_values

DEVICES = ("mali-g71", "cortex-a53")
TEN = (
    "matmul", "batch_matmul", "conv2d", "depthwise_conv2d", "max_pool2d", "sum", "softmax", "layer_norm", "relu",
    "transpose",
)  # fmt: skip


def case_of(name):
    return next(case for key, case in CASES.items() if key.replace(",", "").split()[0] == name)


@pytest.mark.parametrize("name", TEN)
@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.every(11)
def test_programs_are_valid_and_their_source_computes_the_definition(device_name, name):
    case, spec = case_of(name), device(device_name)
    expression = case.make()
    (ranked,) = construct(canonicalize(expression), spec, top_k=1)
    check(ranked.program, spec)
    assert math.isfinite(ranked.seconds) and ranked.seconds > 0
    arrays = case.arrays(ranked.program.inputs)
    found = run_opencl(ranked.program, arrays, spec)
    assert_values(expression, ranked.program, found, arrays, None, case.tolerance)


@pytest.mark.parametrize("device_name", DEVICES)
def test_their_specs_pass_the_checks_and_call_no_figure_measured(device_name):
    spec = load_device(device_name)
    assert [str(one) for one in lint(spec) if one.severity == WARNING] == []
    assert {kind for kind, _ in dict(spec.provenance).values()} == {"datasheet", "derived", "assumed"}
    assert [one.how for one in spec.verified] == ["executed elsewhere"]
