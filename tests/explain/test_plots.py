"""Plots show the numbers of the explanation and of the space, and name the extra that they need."""

import re
import sys

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DeviceError

A, B = rg.tensor("A", (256, 192)), rg.tensor("B", (192, 128))
PRODUCT = rg.ops.matmul(A, B)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_conversions_are_no_operations(dtype):
    """So that no dot lies above the roof of the matrix instruction."""
    x, w = rg.tensor("x", (1024, 1024), dtype), rg.tensor("w", (1024, 1024), dtype)
    plot = rg.build(rg.ops.matmul(x, w, transpose_b=True), "a100").plot()
    (stage,) = plot.facts["stages"]
    assert stage["flops"] == 2 * 1024**3
    roof = max(line.get_ydata()[0] for line in plot.figure.get_axes()[1].lines if line.get_marker() == "None")
    assert dots(plot.figure.get_axes()[1])[0][1] < roof


@pytest.fixture(scope="module")
def kernel():
    return rg.build(PRODUCT, "v100")


def texts(plot):
    return re.findall(r"<text[^>]*>([^<]+)</text>", plot._repr_svg_())


def dots(panel):
    """(operations a byte, GFLOP/s) of each predicted point."""
    lines = [one for one in panel.lines if one.get_marker() == "o" and one.get_markerfacecolor() != "none"]
    return sorted((one.get_xdata()[0], one.get_ydata()[0]) for one in lines)


def test_a_kernels_plot_has_a_bar_for_each_limiter_and_a_dot_for_each_memory(kernel):
    plot = kernel.plot()
    (stage,) = plot.facts["stages"]
    assert {one["name"] for one in stage["limiters"]} <= set(texts(plot))
    bars, roofline = plot.figure.get_axes()
    assert sorted(bar.get_width() for bar in bars.patches) == sorted(1e6 * one["seconds"] for one in stage["limiters"])
    flops = 2 * 256 * 192 * 128
    assert stage["flops"] == flops
    at = flops / plot.facts["predicted_seconds"] / 1e9
    assert dots(roofline) == sorted((flops / count, at) for count in stage["traffic_bytes"].values())


def test_no_dot_lies_above_its_roofs(kernel):
    """Of a V100: 14 TFLOP/s, 900 GB/s, less than which the spec says it reaches."""
    *_, (intensity, gflops) = dots(kernel.plot().figure.get_axes()[1])
    assert gflops < min(14_131, intensity * 900)


def test_each_launch_has_its_bars_but_those_that_run_once():
    w = rg.tensor("w", (192, 128), constant=True)
    several = rg.build(rg.ops.softmax(rg.ops.matmul(A, w), -1), "v100").plot()
    launches = [one for one in several.facts["stages"] if not one["once"]]
    assert len(launches) > 1 and len(several.figure.get_axes()) == len(launches) + 1


def test_what_computes_nothing_shows_bandwidths():
    plot = rg.build(rg.ops.transpose(A, 0, 1), "v100").plot()
    assert {"GB/s", "dram", "l2"} <= set(texts(plot))


def test_what_launches_nothing_has_no_plot():
    nothing = rg.build(rg.ops.relu(rg.tensor("x", (0, 3))), "v100")
    with pytest.raises(ArgumentError, match="nothing is launched"):
        nothing.plot()


@pytest.mark.parametrize(("suffix", "head"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_plot_is_saved_as_its_path_says_and_always_the_same(kernel, suffix, head, tmp_path):
    written = [kernel.plot().save(tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab"]
    assert written[0].startswith(head) and written[0] == written[1]


def test_notebooks_shrink_a_plot_to_their_page(kernel):
    (opened,) = re.findall(r"<svg [^>]*>", kernel.plot()._repr_svg_())
    assert 'style="max-width: 100%; height: auto"' in opened and "viewBox" in opened


def test_another_suffix_is_refused(kernel, tmp_path):
    with pytest.raises(ArgumentError, match=r"expected a file in \.svg, \.png, \.pdf"):
        kernel.plot().save(tmp_path / "a.bmp")


def test_without_matplotlib_the_extra_is_named(kernel, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    for draw in (kernel.plot, lambda: rg.plot_space(PRODUCT, "v100")):
        with pytest.raises(DeviceError, match=r'matplotlib is missing .*pip install "rollergen\[plots\]"'):
            draw()


def test_a_space_has_a_row_for_each_program_by_rising_prediction():
    rows = rg.plot_space(PRODUCT, "v100", count=40).facts
    seconds = [one["predicted_seconds"] for one in rows]
    best = rg.construct(PRODUCT, "v100", 1)[0]
    assert len(rows) == 50 and sum(one["constructed"] for one in rows) == 10 and seconds == sorted(seconds)
    assert seconds[0] == rg.predict(best, "v100").seconds
    least = 4 * (256 * 192 + 192 * 128 + 256 * 128)
    assert all(one["memory"] == "dram" and one["bytes"] >= least for one in rows)
    assert all(one["operations"] >= 2 * 256 * 192 * 128 for one in rows)


def test_padding_counts_as_operations():
    rows = rg.plot_space(rg.ops.matmul(rg.tensor("A", (100, 64)), rg.tensor("B", (64, 100))), "v100", count=40).facts
    assert max(one["operations"] for one in rows) > 2 * 100 * 64 * 100


def test_some_of_a_space_are_measured_from_the_best_to_the_worst():
    plot = rg.plot_space(PRODUCT, "cpu", count=12, measured=3)
    timed = [at for at, one in enumerate(plot.facts) if one["measured_seconds"]]
    assert timed == [0, 10, 21] and "3 of them, measured" in texts(plot)


@pytest.mark.parametrize(("name", "value"), [("count", 0), ("count", 2.5), ("measured", -1), ("measured", True)])
def test_counts_are_whole_numbers_in_range(name, value):
    with pytest.raises(ArgumentError, match=f"{name} is .*; expected an integer of at least"):
        rg.plot_space(PRODUCT, "v100", **{name: value})


def test_an_absent_device_measures_nothing():
    with pytest.raises(DeviceError, match=r"v100 .* is not present"):
        rg.plot_space(PRODUCT, "v100", count=4, measured=2)


def test_a_picture_in_no_directory_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    kernel = rg.build(rg.ops.relu(rg.tensor("A", (64,))), "v100", profile=False)
    with pytest.raises(ArgumentError, match=r"none/x.svg cannot be written: .*none is no directory"):
        kernel.plot().save(tmp_path / "none" / "x.svg")
