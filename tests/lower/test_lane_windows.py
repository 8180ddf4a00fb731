"""Lanes at known places of a short window: two reads and a shuffle, and nothing read that no lane asks for."""

import numpy as np
import pytest

import rollergen as rg
from rollergen import ops
from rollergen.expr.index import Index
from rollergen.lower.expressions import Inside
from rollergen.lower.lane_windows import lane_window
from rollergen.lower.nest import Lane

ROW, LANE = Index.axis("i"), Index.axis("lane")
RANGES = {"i": (0, 6)}


def places(window):
    """Of each lane, behind the first element of the window."""
    behind = (window.second - window.first).const
    return [at if at < window.width else at - window.width + behind for at in window.order]


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_every_lane_is_chosen_from_two_vectors_that_stay_in_the_window(width, factor):
    window = lane_window(RANGES, ROW * 48 + (LANE + 1) // factor - 1, (), Lane("lane", width))
    assert places(window) == [(lane + 1) // factor for lane in range(width)]
    assert window.first == ROW * 48 - 1 and max(places(window)) == (window.second - window.first).const + window.width - 1


def test_tests_of_lanes_become_those_of_their_ends():
    tests = (Inside(ROW * 8 + (LANE + 1) // 2 - 1, 0, 56),)
    window = lane_window(RANGES, ROW * 8 + (LANE + 1) // 2 - 1, tests, Lane("lane", 16))
    assert window.whole == (Inside(ROW * 8 - 1, 0, 56), Inside(ROW * 8 + 7, 0, 56))


@pytest.mark.parametrize(
    ("offset", "width"),
    [
        ((ROW + LANE) // 2, 16),  # where lanes lie depends on i
        (LANE * 3, 8),  # longer than a vector, and elements between that no lane reads
        ((LANE % 2) * 5, 16),  # elements between that no lane reads
        (LANE // 2, 4),  # few lanes
        (ROW * 5, 16),  # one element for all
    ],
)
def test_others_are_none(offset, width):
    assert lane_window(RANGES, offset, (), Lane("lane", width)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("factor", [2, 3])
def test_a_picture_that_grows_passes_the_gate(dtype, factor):
    x = rg.tensor("X", (1, 2, 17, 33), dtype)
    kernel = rg.build(ops.interpolate(x, scale_factor=factor), "cpu", cache=False, top_k=2)
    given = np.arange(2 * 17 * 33).reshape(x.shape).astype(dtype)
    np.testing.assert_array_equal(kernel(given), given.repeat(factor, 2).repeat(factor, 3))


def test_bilinear_interpolation_shuffles_within_rows_and_passes_the_gate():
    x = rg.tensor("X", (1, 3, 28, 56))
    kernel = rg.build(ops.interpolate(x, (56, 112), mode="bilinear"), "cpu", cache=False, top_k=2)
    given = np.random.default_rng(0).random(x.shape, np.float32)
    wanted = ops.interpolate(x, (56, 112), mode="bilinear").evaluate(given)
    np.testing.assert_allclose(kernel(given), wanted, rtol=1e-5, atol=1e-6)
    assert kernel.source.count("__builtin_shufflevector") == 4
