"""Windows of images whose channels are innermost: neighbours along a line in a tile, where windows overlap."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import UNROLL
from tests.agreement.readers import run_opencl
from tests.program.hand_devices import AVX512


def pooled(operator, size, stride, padding):
    """Windows of an image of 9 x 9 pixels of 32 channels, channels last."""
    x = rg.tensor("x", (1, 9, 9, 32))
    made = operator(rg.ops.permute(x, (0, 3, 1, 2)), size, stride=stride, padding=padding)
    return rg.ops.permute(made, (0, 2, 3, 1))


def neighbours(expression):
    (op,) = canonicalize(expression).tensor_ops
    return [one for one in variants(op, AVX512) if one.name == "direct, neighbours"]


def in_tiles(expression):
    """The programs whose tiles have several pixels of a line."""
    made = rg.construct(expression, AVX512, top_k=40)
    along = [neighbours(expression)[0].roles.m]
    return [
        one for one in made
        if [x.axis for x in one.stages[-1].loops if x.kind == UNROLL and x.axis in along and x.extent > 1]
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 2, 1), (3, 1, 1), (3, 2, 0), (5, 1, 2), (4, 2, 1)])
@pytest.mark.parametrize("operator", [rg.ops.max_pool2d, rg.ops.avg_pool2d])
def test_windows_that_overlap_have_neighbours_in_a_tile(operator, size, stride, padding):
    expression = pooled(operator, size, stride, padding)
    image = np.random.default_rng(0).integers(-9, 9, (1, 9, 9, 32)).astype(np.float32)
    alone = [one for one in rg.construct(expression, AVX512, top_k=40) if one not in in_tiles(expression)]
    (wanted,) = interpret(alone[0], {"x": image}, AVX512).outputs.values()
    assert in_tiles(expression)
    for program in in_tiles(expression)[:3]:
        (found,) = interpret(program, {"x": image}, AVX512).outputs.values()
        (given,) = run_opencl(program, {"x": image}, AVX512).values()
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_allclose(given, wanted, rtol=0 if operator is rg.ops.max_pool2d else 1e-6)


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 3), (2, 3)])
def test_windows_that_share_nothing_have_none(size, stride):
    assert not neighbours(pooled(rg.ops.max_pool2d, size, stride, 0))


def test_windows_along_the_vectors_are_taken_line_by_line():
    assert not neighbours(rg.ops.max_pool2d(rg.tensor("x", (1, 32, 9, 9)), 3, stride=2, padding=1))


def test_windows_along_a_remainder_of_axis_and_tap_have_none():
    """What neighbours share of ``(i + k) % 7`` is no number of steps."""
    x, k = rg.tensor("x", (24, 61)), rg.reduce_axis("k", 3)
    windows = rg.compute((2, 5), lambda i, j: rg.sum(x[j, 0] * x[(k + j + i) % 7, i - k + 11], axis=k))
    assert not neighbours(windows)
