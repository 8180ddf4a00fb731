"""Interpreter, emitted source and closed forms agree with the definition and with each other, on every
built-in device, for sizes with odd tails."""

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from tests.agreement.readers import (
    DEVICES,
    assert_traffic,
    assert_values,
    device,
    interpreted,
    run_opencl,
    small_integers,
)

T = rg.tensor


def fused():
    product = rg.ops.matmul(T("A", (37, 40)), T("B", (40, 50)))
    return rg.ops.relu(rg.ops.bias_add(product, T("bias", (50,)), axis=-1))


EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(T("A", (70, 37)), T("B", (37, 100))),
    "matmul with exact tiles": lambda: rg.ops.matmul(T("A", (128, 64)), T("B", (64, 64))),
    "matmul of one row": lambda: rg.ops.matmul(T("A", (1, 65)), T("B", (65, 130))),
    "matmul of one column": lambda: rg.ops.matmul(T("A", (33, 70)), T("B", (70, 1))),
    "matmul, A transposed": lambda: rg.ops.matmul(T("A", (24, 40)), T("B", (24, 52)), transpose_a=True),
    "matmul, B transposed": lambda: rg.ops.matmul(T("A", (40, 24)), T("B", (52, 24)), transpose_b=True),
    "matmul, bias, relu": fused,
    "batch matmul": lambda: rg.ops.batch_matmul(T("A", (3, 17, 20)), T("B", (3, 20, 31))),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (2, 6, 15, 13)), T("W", (9, 6, 3, 3)), padding=1),
    "conv 7x7 stride 2": lambda: rg.ops.conv2d(T("X", (1, 3, 20, 21)), T("W", (8, 3, 7, 7)), stride=2, padding=3),
    "conv 1x1": lambda: rg.ops.conv2d(T("X", (1, 12, 9, 9)), T("W", (10, 12, 1, 1))),
    "conv grouped": lambda: rg.ops.conv2d(T("X", (2, 8, 9, 10)), T("W", (12, 2, 3, 3)), padding=1, groups=4),
    "conv dilated": lambda: rg.ops.conv2d(T("X", (1, 4, 12, 13)), T("W", (5, 4, 3, 3)), padding=2, dilation=2),
    "sum of rows": lambda: rg.ops.sum(T("X", (50, 70)), axis=1),
    "sum of columns": lambda: rg.ops.sum(T("X", (50, 70)), axis=0),
    "sum of everything": lambda: rg.ops.sum(T("X", (50, 70)), axis=(0, 1)),
    "max over the middle": lambda: rg.ops.amax(T("X", (5, 70, 9)), axis=1),
    "softmax": lambda: rg.ops.softmax(T("X", (20, 70)), axis=-1),
    "softmax over columns": lambda: rg.ops.softmax(T("X", (20, 70)), axis=0),
    "transpose": lambda: rg.ops.permute(T("X", (50, 70)), (1, 0)),
    "relu": lambda: rg.ops.relu(T("X", (3, 5, 7))),
    "broadcast add": lambda: rg.ops.add(T("X", (8, 5, 7)), T("Y", (5, 1))),
    "int8 matmul": lambda: rg.ops.matmul(T("A", (20, 33), "int8"), T("B", (33, 18), "int8")),
    "float64 matmul": lambda: rg.ops.matmul(T("A", (20, 33), "float64"), T("B", (33, 18), "float64")),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.every(13)
def test_all_readers_agree_with_the_definition(device_name, name):
    expression, spec = EXPRESSIONS[name](), device(device_name)
    tolerance = 1e-6 if "softmax" in name else 0.0
    for ranked in construct(canonicalize(expression), spec, top_k=2):
        program = ranked.program
        arrays = small_integers(program)
        result, blocks = interpreted(program, arrays, spec, most_blocks=200)
        assert_values(expression, program, result.outputs, arrays, result.written, tolerance)
        assert_traffic(program, result.traffic, spec, blocks)
        assert_values(expression, program, run_opencl(program, arrays, spec), arrays, None, tolerance)
