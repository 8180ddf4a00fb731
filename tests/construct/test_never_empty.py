"""For every valid expression and every built-in device there is a program, whatever the sizes."""

import re
from math import prod

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import op_candidates
from rollergen.emit import emit
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.tile.rules import AlignmentRules
from tests.agreement import readers

T = rg.tensor


def matmul(m, n, k, dtype="float32"):
    return lambda: rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype))


def conv(image, weight, **arguments):
    return lambda: rg.ops.conv2d(T("X", image), T("W", weight), **arguments)


MATMULS = {
    f"matmul {m}x{n}x{k}": matmul(m, n, k)
    for m, n, k in [
        (1000, 1000, 1000), (997, 997, 997), (4097, 4097, 4097), (127, 511, 1023), (3, 1000003, 5), (1, 1, 1),
        (1, 1, 1000003), (1, 1000003, 1), (1000003, 1, 7), (2, 3, 5), (1, 7919, 7919), (31, 1, 524287),
    ]
} | {f"matmul of {dtype}": matmul(127, 131, 137, dtype) for dtype in ("float16", "bfloat16", "float64", "int8")}  # fmt: skip

SHAPES = [
    (), (1,), (7,), (1000003,), (997, 991), (1, 1, 1), (3, 1, 5, 1, 7, 1, 2, 1), (2, 3, 2, 3, 2, 3, 2, 3), (104729, 1),
    (13, 1009, 3),
]  # fmt: skip
BY_SHAPE = {
    "relu": lambda s: rg.ops.relu(T("X", s)),
    "exp of a sum of two": lambda s: rg.ops.exp(rg.ops.add(T("X", s), T("Y", s))),
    "sum of all": lambda s: rg.ops.sum(T("X", s)),
    "sum over the first": lambda s: rg.ops.sum(T("X", s), 0),
    "max over the last": lambda s: rg.ops.amax(T("X", s), -1),
    "sum over every other": lambda s: rg.ops.sum(T("X", s), tuple(range(0, len(s), 2))),
    "argmax": lambda s: rg.ops.argmax(T("X", s), -1),
    "softmax over the last": lambda s: rg.ops.softmax(T("X", s), -1),
    "softmax over the first": lambda s: rg.ops.softmax(T("X", s), 0),
    "layer_norm": lambda s: rg.ops.layer_norm(T("X", s), s[-1:]),
    "transpose": lambda s: rg.ops.permute(T("X", s), tuple(reversed(range(len(s))))),
    "rotated axes": lambda s: rg.ops.permute(T("X", s), (*range(1, len(s)), 0)),
}
OF_SCALARS = {"relu", "exp of a sum of two"}

OTHERS = {
    "convolution of primes": conv((1, 7, 31, 37), (11, 7, 3, 3), padding=1),
    "convolution of one point": conv((1, 1, 5, 5), (1, 1, 5, 5)),
    "convolution of long strides": conv((3, 13, 29, 31), (17, 13, 5, 3), stride=3, padding=2),
    "convolution of 1x1 images": conv((1, 997, 1, 1), (991, 997, 1, 1)),
    "convolution of a large window": conv((1, 3, 101, 103), (5, 3, 31, 29), padding=15),
    "dilated convolution": conv((2, 5, 23, 29), (7, 5, 3, 3), dilation=3, padding=3),
    "grouped convolution": conv((1, 15, 13, 17), (9, 5, 3, 3), groups=3, padding=1),
    "depthwise convolution": lambda: rg.ops.depthwise_conv2d(T("X", (1, 13, 31, 29)), T("W", (39, 1, 5, 5)), stride=2),
    "transposed convolution": lambda: rg.ops.conv_transpose2d(T("X", (1, 7, 13, 11)), T("W", (7, 5, 3, 3)), stride=2),
    "conv1d": lambda: rg.ops.conv1d(T("X", (1, 7, 1009)), T("W", (5, 7, 7)), padding=3),
    "conv3d": lambda: rg.ops.conv3d(T("X", (1, 3, 7, 11, 13)), T("W", (5, 3, 3, 3, 3)), padding=1),
    "max pooling": lambda: rg.ops.max_pool2d(T("X", (1, 7, 31, 29)), 3, stride=2, padding=1),
    "mean pooling": lambda: rg.ops.avg_pool2d(T("X", (1, 7, 31, 29)), 3, padding=1, count_include_pad=False),
    "attention": lambda: rg.ops.attention(T("q", (3, 7, 5)), T("k", (3, 11, 5)), T("v", (3, 11, 13))),
    "attention to one row": lambda: rg.ops.attention(T("q", (1, 1, 64)), T("k", (1, 4099, 64)), T("v", (1, 4099, 64))),
    "softmax of a million": lambda: rg.ops.softmax(T("X", (3, 1000003)), -1),
    "outer product": lambda: rg.einsum("i,j->ij", T("a", (997,)), T("b", (1009,))),
    "dot product": lambda: rg.einsum("i,i->", T("a", (1000003,)), T("b", (1000003,))),
    "eight axes by four": lambda: rg.einsum(
        "abcdefgh,abcd->efgh", T("X", (2, 3, 2, 3, 2, 3, 2, 5)), T("Y", (2, 3, 2, 3))
    ),
    "batches of one": lambda: rg.ops.batch_matmul(T("A", (1, 3, 1, 5, 7)), T("B", (1, 3, 1, 7, 1))),
    "broadcast": lambda: rg.ops.add(T("X", (997, 1)), T("Y", (1, 991))),
    "concat": lambda: rg.ops.concat([T("X", (3, 7)), T("Y", (5, 7))], 0),
}

CASES = {
    **MATMULS,
    **{
        f"{name} of {'x'.join(map(str, s)) or 'a scalar'}": (lambda make=make, s=s: make(s))
        for name, make in BY_SHAPE.items()
        for s in SHAPES
        if s or name in OF_SCALARS
    },
    **OTHERS,
}


@pytest.mark.parametrize("device_name", readers.DEVICES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(13)
def test_there_is_a_valid_program(name, device_name):
    device, expression = readers.device(device_name), CASES[name]()
    ranked = construct(canonicalize(expression), device, top_k=2)
    assert ranked
    for one in ranked:
        check(one.program, device)
        assert np.isfinite(one.seconds) and one.seconds > 0
    program = ranked[0].program
    assert emit(program, device).launches
    points = sum(prod(axis.extent for axis in stage.op.axes) for stage in program.stages)
    if points <= 20_000:
        arrays = readers.small_integers(program)
        result, _ = readers.interpreted(program, arrays, device, most_blocks=1 << 30)
        readers.assert_values(expression, program, result.outputs, arrays, result.written, tolerance=1e-5)


@pytest.mark.parametrize(("elements", "missing"), [(1 << 27, None), (10**9, 8 * 10**9)])
def test_what_a_device_without_a_backing_store_cannot_hold_is_told_in_bytes(elements, missing):
    device = readers.device("ipu")
    capacity = device.backing.capacity_bytes - device.backing.reserved_bytes
    needed = missing or 2 * 4 * elements
    with pytest.raises(DoesNotFitError) as caught:
        construct(canonicalize(rg.ops.relu(T("X", (elements,)))), device)
    found = re.search(r"take (\d+) bytes .* holds (\d+); (\d+) bytes too many", str(caught.value))
    assert found and tuple(map(int, found.groups())) == (needed, capacity, needed - capacity)


def test_what_just_fits_is_built_and_one_element_more_is_not():
    device = readers.device("ipu")
    elements = (device.backing.capacity_bytes - device.backing.reserved_bytes) // 8
    assert construct(canonicalize(rg.ops.relu(T("X", (elements,)))), device, top_k=1)
    with pytest.raises(DoesNotFitError):
        construct(canonicalize(rg.ops.relu(T("X", (elements + 1,)))), device, top_k=1)


def test_programs_whose_workspace_does_not_fit_are_no_candidates():
    device = readers.device("ipu")
    capacity = device.backing.capacity_bytes - device.backing.reserved_bytes
    longest = capacity // 4 // 128 - 64  # sixteen kilobytes are left: less than the parts of a split sum take
    graph = canonicalize(rg.ops.matmul(T("A", (64, longest)), T("B", (longest, 64))))
    anyhow = op_candidates(graph.tensor_ops[0], device, AlignmentRules(), 10)
    assert any(len(one.stages) > 1 for one in anyhow)
    for one in construct(graph, device):
        assert sum(b.elements * 4 for b in one.program.buffers()) <= capacity
