"""float16 through all readers where the runtime computes with it (`cl_khr_fp16`)."""

import pytest

import rollergen as rg
from tests.agreement.readers import DEVICES, device, run_opencl, runtime, small_integers

T = lambda name, *shape: rg.tensor(name, shape, "float16")
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(T("A", 33, 65), T("B", 65, 47)),
    "matmul in float32": lambda: rg.ops.matmul(T("A", 33, 65), T("B", 65, 47), dtype="float32"),
    "batch_matmul": lambda: rg.ops.batch_matmul(T("A", 3, 17, 20), T("B", 3, 20, 31)),
    "conv2d": lambda: rg.ops.conv2d(T("X", 2, 5, 11, 13), T("W", 7, 5, 3, 3), stride=2, padding=1),
    "sum over rows": lambda: rg.ops.sum(T("X", 37, 101), axis=1),
    "sum over columns": lambda: rg.ops.sum(T("X", 37, 101), axis=0),
    "max": lambda: rg.ops.amax(T("X", 37, 101), axis=1),
    "relu of a sum": lambda: rg.ops.relu(rg.ops.add(T("X", 37, 101), T("Y", 37, 101))),
    "transpose": lambda: rg.ops.t(T("X", 37, 101)),
    "max_pool2d": lambda: rg.ops.max_pool2d(T("X", 1, 6, 13, 13), 3, 2, 1),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device_name", DEVICES)
def test_float16_agrees_with_the_definition(name, device_name):
    if "cl_khr_fp16" not in runtime().device.extensions:
        pytest.skip(f"{runtime().description} has no float16 arithmetic")
    expr = EXPRESSIONS[name]()
    for program in rg.construct(expr, device(device_name), 2):
        arrays = small_integers(program)
        (found,) = run_opencl(program, arrays, device(device_name)).values()
        assert (found == expr.evaluate(*arrays.values())).all()
