"""Elements apart, of which each output reads one of a line (1 x 1 convolutions with a stride, products of slices): copied
side by side first, and all readers agree."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, assert_values, device, interpreted, run_opencl, small_integers
from tests.lower.devices import AVX512

T, K = rg.tensor, rg.reduce_axis("k", 13)
ROUNDED = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Relative errors of results that are stored in these."""


def convolved(image, filters, stride, groups=1, dtype="float32", constant=False):
    operator = {3: rg.ops.conv1d, 4: rg.ops.conv2d, 5: rg.ops.conv3d}[len(image)]
    w = T("w", (filters, image[1] // groups, *[1] * (len(image) - 2)), dtype, constant=constant)
    return rg.ops.relu(operator(T("x", image, dtype), w, stride=stride, groups=groups))


def channels_last(dtype):
    x = rg.ops.permute(T("x", (2, 7, 9, 12), dtype), (0, 3, 1, 2))
    return rg.ops.permute(rg.ops.conv2d(x, T("w", (17, 12, 1, 1), dtype), stride=(3, 2)), (0, 2, 3, 1))


def of_slices(dtype):
    a, b = T("a", (39, 26), dtype), T("b", (13, 48), dtype)
    return rg.compute((19, 16), lambda i, j: rg.sum(a[2 * i + 1, 2 * K] * b[K, 3 * j], axis=K))


def read_twice(dtype):
    x, w, v = (T(name, shape, dtype) for name, shape in (("x", (13, 40)), ("w", (9, 13)), ("v", (9, 13))))
    return rg.compute((9, 12), lambda i, j: rg.sum(x[K, 2 * j] * w[i, K] + x[K, 3 * j + 1] * v[i, K], axis=K))


CASES = {
    "lines": lambda: convolved((2, 5, 17), 8, 3),
    "an image": lambda: convolved((1, 16, 9, 8), 20, 2, constant=True),
    "two images, strides that differ": lambda: convolved((2, 6, 7, 9), 17, (3, 1), dtype="float64"),
    "groups": lambda: convolved((1, 12, 8, 8), 18, 2, groups=3, dtype="int8"),
    "volumes": lambda: convolved((2, 4, 4, 5, 6), 9, (1, 2, 3), dtype="float16"),
    "channels last": lambda: channels_last("bfloat16"),
    "slices of both factors": lambda: of_slices("float32"),
    "one operand at two strides": lambda: read_twice("int32"),
}


def candidates_over_copies(op, spec, count=2):
    found = [one for one in variants(op, spec) if "side by side" in one.name]
    return [one for each in found for one in serial_candidates(each, spec, AlignmentRules(), count, Ledger())]


@pytest.mark.parametrize("name", CASES)
def test_readers_agree_on_elements_copied_side_by_side(name):
    expression, spec = CASES[name](), device("cpu")
    graph = canonicalize(expression)
    found = candidates_over_copies(graph.tensor_ops[0], spec)
    assert found
    for one in found[:2]:
        program = program_of(graph, spec, (one,)).program
        check(program, spec)
        assert any(buffer.name.endswith("_side_by_side") for buffer in program.temporaries)
        arrays = small_integers(program)
        result, blocks = interpreted(program, arrays, spec, 1 << 20)
        assert_traffic(program, result.traffic, spec, blocks)
        for got in (result.outputs, run_opencl(program, arrays, spec)):
            assert_values(expression, program, got, arrays, tolerance=ROUNDED.get(program.outputs[0].dtype, 0))


def test_the_model_sees_what_the_copy_saves():
    (op,) = canonicalize(convolved((1, 512, 28, 28), 1024, 2, constant=True)).tensor_ops
    (direct,) = [one for one in variants(op, AVX512) if one.name == "direct"]
    plain = serial_candidates(direct, AVX512, AlignmentRules(), 8, Ledger())
    assert min(one.seconds for one in candidates_over_copies(op, AVX512, 8)) < min(one.seconds for one in plain)
