"""The operators that must be right at full size, where the loops and tails are that small sizes lack."""

import time

import rollergen as rg
from rollergen.construct import construct
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from tests.agreement import readers

T = rg.tensor


def _matmul(m, n, k):
    return lambda: rg.ops.matmul(T("A", (m, k)), T("B", (k, n)))


def _conv(image, filters, kernel, **arguments):
    groups = arguments.get("groups", 1)
    return lambda: rg.ops.conv2d(
        T("X", image), T("W", (filters, image[1] // groups, kernel, kernel)), **arguments
    )  # fmt: skip


def _fused():
    product = rg.ops.matmul(T("A", (1024, 1024)), T("B", (1024, 1024)))
    return rg.ops.relu(rg.ops.bias_add(product, T("bias", (1024,)), axis=-1))


FULL_SIZE = {
    "matmul 1024^3": _matmul(1024, 1024, 1024),
    "matmul 997^3": _matmul(997, 997, 997),
    "matmul 128x4096x4096": _matmul(128, 4096, 4096),
    "matmul 1x4096x4096": _matmul(1, 4096, 4096),
    "matmul 127x511x1023": _matmul(127, 511, 1023),
    "conv 3x3": _conv((1, 64, 56, 56), 64, 3, padding=1),
    "conv 7x7 stride 2": _conv((1, 3, 224, 224), 64, 7, stride=2, padding=3),
    "conv 1x1": _conv((1, 64, 56, 56), 256, 1),
    "conv grouped": _conv((1, 64, 56, 56), 64, 3, padding=1, groups=4),
    "conv dilated": _conv((1, 64, 56, 56), 64, 3, padding=2, dilation=2),
    "batch matmul": lambda: rg.ops.batch_matmul(T("A", (12, 128, 64)), T("B", (12, 64, 128))),
    "sum over the first axis": lambda: rg.ops.sum(T("X", (4096, 1024)), axis=0),
    "sum over the last axis": lambda: rg.ops.sum(T("X", (4096, 1024)), axis=1),
    "softmax": lambda: rg.ops.softmax(T("X", (4096, 1024)), axis=-1),
    "transpose": lambda: rg.ops.permute(T("X", (4096, 4096)), (1, 0)),
    "matmul, bias, relu": _fused,
}


def run_case(name: str, device_name: str) -> dict:
    """One row of the table; ``state`` is right, wrong: ..., or does not fit: ..."""
    spec, expression = readers.device(device_name), FULL_SIZE[name]()
    tolerance = 1e-6 if "softmax" in name else 0.0
    row: dict = {"operator": name, "device": device_name}
    try:
        program = construct(canonicalize(expression), spec, top_k=1)[0].program
    except DoesNotFitError as error:
        return {**row, "state": f"does not fit: {error}"}
    arrays = readers.small_integers(program)
    try:
        start = time.perf_counter()
        result, blocks = readers.interpreted(program, arrays, spec, most_blocks=40)
        readers.assert_values(expression, program, result.outputs, arrays, result.written, tolerance)
        readers.assert_traffic(program, result.traffic, spec, blocks)
        row["interpreted_s"] = round(time.perf_counter() - start, 2)
        row["blocks"] = [len(blocks.get(s.name, range(s.blocks))) for s in program.stages]
        start = time.perf_counter()
        got = readers.run_opencl(program, arrays, spec, optimised=True)
        readers.assert_values(expression, program, got, arrays, None, tolerance)
        row["opencl_s"] = round(time.perf_counter() - start, 2)
    except AssertionError as error:
        return {**row, "state": f"wrong: {error}"}
    return {**row, "state": "right"}
