"""Lanes at known places of a short window: two reads and a shuffle, and nothing read before the first or behind the
last."""

import numpy as np
import pytest

import rollergen as rg
from rollergen import ops
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import Index
from rollergen.lower.expressions import Inside
from rollergen.lower.lane_windows import lane_window
from rollergen.lower.nest import Lane
from rollergen.lower.vectors import needed
from rollergen.program.lane_windows import window_places
from tests.lower.devices import AVX512
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program

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


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize(("factor", "extent"), [((13, 6), 6), ((10, 7), 7), ((23, 12), 12), ((5, 8), 8)])
def test_lanes_behind_the_end_of_a_row_are_chosen_from_no_window(width, factor, extent):
    offset = ROW * 48 + LANE * factor[0] // factor[1]
    window = lane_window(RANGES, offset, (Inside(LANE, 0, extent),), Lane("lane", width))
    used = min(width, extent)
    assert window.order[used:] == (-1,) * (width - used) and not needed(window.whole, RANGES)
    assert places(window)[:used] == [lane * factor[0] // factor[1] for lane in range(used)]


def test_the_model_counts_as_windows_what_the_text_chooses_from_windows():
    random = np.random.default_rng(3)
    known = {"i": (0, 6), "n": (0, 5)}
    found = []
    for _ in range(400):
        up, down, shift, lanes, vectors = (int(random.integers(*of)) for of in ((1, 30), (1, 14), (-3, 4), (3, 5), (1, 3)))
        width = 1 << lanes
        extent = int(random.integers(2, width + 1)) if vectors == 1 else vectors * width
        modelled = window_places(ROW * 100 + (Index.axis("x") * up + shift) // down, "x", width, extent)
        at = LANE + (Index.axis("n") * width if vectors > 1 else 0)
        tests = (Inside(at, 0, extent),) if vectors == 1 else ()
        lowered = lane_window(known, ROW * 100 + (at * up + shift) // down, tests, Lane("lane", width))
        assert (modelled is None) == (lowered is None), (up, down, shift, width, extent)
        if lowered is not None:
            first = min(places(lowered)[: len(modelled)])
            assert [place - first for place in places(lowered)[: len(modelled)]] == list(modelled)
        found.append(modelled is not None)
    assert 80 < sum(found) < 320


def turns(x, rows):
    """Where output x of a transposed convolution of that stride reads: its row of taps, then its element."""
    tap = (x + 1) % rows
    return tap * 1024 + (x - tap + 1) // rows


@pytest.mark.parametrize("width", [8, 16])
def test_rows_that_take_turns_are_two_windows(width):
    offset = ROW * 5000 + turns(Index.axis("n") * width + LANE, 2)
    window = lane_window(RANGES | {"n": (0, 9)}, offset, (), Lane("lane", width))
    first = turns(1, 2)
    assert window.width == width // 2 and places(window) == [turns(lane, 2) - first for lane in range(width)]
    assert window_places(ROW * 5000 + turns(Index.axis("x"), 2), "x", width, 10 * width) == tuple(places(window))


@pytest.mark.parametrize("offset", [turns(LANE, 3), turns(LANE + ROW, 2)])
def test_three_rows_and_turns_that_differ_are_none(offset):
    assert lane_window(RANGES, offset, (), Lane("lane", 16)) is None
    assert window_places(offset.substitute({"lane": Index.axis("x")}), "x", 16, 64) is None


def test_tests_of_lanes_become_those_of_their_ends():
    tests = (Inside(ROW * 8 + (LANE + 1) // 2 - 1, 0, 56),)
    window = lane_window(RANGES, ROW * 8 + (LANE + 1) // 2 - 1, tests, Lane("lane", 16))
    assert window.whole == (Inside(ROW * 8 - 1, 0, 56), Inside(ROW * 8 + 7, 0, 56))


@pytest.mark.parametrize(
    ("offset", "width"),
    [
        ((ROW + LANE) // 2, 16),  # where lanes lie depends on i
        (LANE * 3, 8),  # longer than two vectors
        (LANE // 2, 4),  # few lanes
        (ROW * 5, 16),  # one element for all
    ],
)
def test_others_are_none(offset, width):
    assert lane_window(RANGES, offset, (), Lane("lane", width)) is None


@pytest.mark.parametrize("columns", [17, 19, 24, 26, 28, 45])
@pytest.mark.parametrize("begins", [0, 1])
def test_the_last_lanes_of_rows_that_take_turns_are_read_by_two_masked_vectors(columns, begins):
    A = rg.tensor("A", (2, 5, (columns + begins + 1) // 2))
    turned = lambda i, x: A[(x + begins) % 2, i, (x + begins) // 2] * 2 + 1
    (best,) = construct(canonicalize(rg.compute((5, columns), turned, name="Y")), AVX512, top_k=1)
    source = emit(best.program, AVX512)
    assert "__builtin_shufflevector(load_lanes16(" in source.text and "_lanes[lane]" not in source.text
    inputs = random_inputs(best.program, columns)
    found = execute(source, best.program, inputs)
    assert all(buffer.zones_intact() for buffer in found.values())
    np.testing.assert_array_equal(found["Y"].array.reshape(5, columns), run_program(best.program, inputs)["Y"])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("factor", [2, 3])
def test_a_picture_that_grows_passes_the_gate(dtype, factor):
    x = rg.tensor("X", (1, 2, 17, 33), dtype)
    kernel = rg.build(ops.interpolate(x, scale_factor=factor), "cpu", cache=False, top_k=2)
    given = np.arange(2 * 17 * 33).reshape(x.shape).astype(dtype)
    np.testing.assert_array_equal(kernel(given), given.repeat(factor, 2).repeat(factor, 3))


@pytest.mark.parametrize("pool", [ops.adaptive_avg_pool2d, ops.adaptive_max_pool2d])
@pytest.mark.parametrize(("side", "to"), [(13, 6), (10, 7), (23, 12), (11, 8)])
def test_adaptive_pooling_reads_windows_and_passes_the_gate(pool, side, to):
    x = rg.tensor("X", (2, 3, side, side))
    pooled = pool(x, to)
    kernel = rg.build(pooled, "cpu", cache=False, top_k=2)
    given = np.random.default_rng(0).random(x.shape, np.float32)
    np.testing.assert_allclose(kernel(given), pooled.evaluate(given), rtol=1e-6)


def test_bilinear_interpolation_shuffles_within_rows_and_passes_the_gate():
    x = rg.tensor("X", (1, 3, 28, 56))
    larger = ops.interpolate(x, (56, 112), mode="bilinear")
    kernel = rg.build(larger, "cpu", cache=False, top_k=2)
    given = np.random.default_rng(0).random(x.shape, np.float32)
    np.testing.assert_allclose(kernel(given), larger.evaluate(given), rtol=1e-5, atol=1e-6)
    text = emit(rg.construct(larger, AVX512, top_k=1)[0], AVX512, "opencl").text
    assert text.count("__builtin_shufflevector") == 4  # two neighbours of each of two rows
