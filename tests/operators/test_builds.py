"""Every operator builds: run on this machine for cpu, constructed and interpreted for the other devices."""

from itertools import product

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.reads import given_tensors
from tests.agreement.readers import assert_values, device, interpreted, run_opencl
from tests.operators.cases import CASES


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(11)
def test_the_kernel_for_this_machine_computes_the_definition(name):
    case = CASES[name]
    expression = case.make()
    kernel = rg.build(expression, "cpu", profile=False, top_k=1)
    arrays = case.arrays([tensor.buffer for tensor in given_tensors((expression,))])
    found, wanted = kernel(*arrays.values()), expression.evaluate(*arrays.values())
    assert found.shape == expression.shape and str(found.dtype) == expression.dtype
    error = np.abs(found.astype(float) - wanted.astype(float))
    assert np.all(error <= case.tolerance * np.maximum(1, np.abs(wanted)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device_name", ["v100", "mi50", "ipu"])
@pytest.mark.every(13)
def test_the_program_for_other_devices_computes_the_definition(device_name, name):
    case, spec = CASES[name], device(device_name)
    expression = case.make()
    if device_name == "ipu" and any(op.takes() for op in canonicalize(expression).tensor_ops):
        pytest.skip("a machine of tiles takes no elements at places that are read")
    if device_name == "ipu" and any(op.scans for op in canonicalize(expression).tensor_ops):
        pytest.skip("a machine of tiles has no tiles of a scan")
    (ranked,) = construct(canonicalize(expression), spec, top_k=1)
    arrays = case.arrays(ranked.program.inputs)
    result, _ = interpreted(ranked.program, arrays, spec, most_blocks=60)
    assert_values(expression, ranked.program, result.outputs, arrays, result.written, case.tolerance)


COMPOSED = ["var", "std", "logsumexp", "log_softmax", "argmax", "where", "greater", "quantize"]
SIBLINGS = [("mi210", "var"), ("mi210", "argmax"), ("mi210", "where"), ("mi300x", "logsumexp"), ("mi300x", "quantize")]


@pytest.mark.parametrize(("device_name", "name"), [*product(["v100", "mi50", "ipu"], COMPOSED), *SIBLINGS])
@pytest.mark.every(11)
def test_the_source_for_other_devices_computes_the_definition_here(device_name, name):
    case, spec = CASES[name], device(device_name)
    expression = case.make()
    for ranked in construct(canonicalize(expression), spec, top_k=2):
        arrays = case.arrays(ranked.program.inputs)
        found = run_opencl(ranked.program, arrays, spec)
        assert_values(expression, ranked.program, found, arrays, None, case.tolerance)


def test_every_operator_is_among_the_cases():
    built = {name.replace(",", "").split()[0] for name in CASES}
    assert set(rg.ops.__all__) - built == set()
