"""Panels of which each step of a reduction reads several lines, asked for ahead of the steps that read them."""

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import cuts
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.explain.explanation import decisions
from rollergen.program.check import check
from rollergen.program.loops import AHEAD_BYTES, panel_part, prefetches_lines
from rollergen.program.model import predict_stage
from rollergen.program.rprogram import SERIAL
from tests.agreement.readers import interpreted, run_opencl
from tests.agreement.test_quantized_activations import arrays_of, stored, weighted
from tests.program.hand_devices import AVX512

OPTIONS = BuildOptions()


def words(k, n, options=OPTIONS):
    """One row times weights of four bits in words: four lines and one of scales a step."""
    return construct(cuts(weighted("uint4", 1, k, n, 32, 8), AVX512, options, None)[0], AVX512, options, top_k=1)[0]


def asking(program, asks=True):
    """The program with its last stage's innermost serial loop to prefetch, or none."""
    *before, last = program.stages
    innermost = max(p for p, loop in enumerate(last.loops) if loop.kind == SERIAL)
    return replace(program, stages=(*before, replace(last, prefetch=innermost if asks else -1)))


def numbers(program):
    rng = np.random.default_rng(0)
    return {buffer.name: rng.random(buffer.shape, np.float32) for buffer in program.inputs}


def limiter(program, name):
    prediction = predict_stage(program.stages[-1], AVX512)
    return next((one.clocks for one in prediction.limiters if one.name == name), 0)


def test_words_of_many_weights_are_asked_for():
    stage = words(4096, 4096).program.stages[-1]
    assert prefetches_lines(stage)
    assert f"lines are asked for {AHEAD_BYTES} bytes ahead of their use" in decisions(stage, AVX512)
    without = BuildOptions(shapes=replace(OPTIONS.shapes, prefetch=False))
    assert words(4096, 4096, without).program.stages[-1].prefetch == -1


def few(rows, weights):
    """The best program of those that ask for no next panel."""
    product = rg.ops.matmul(rg.tensor("x", (rows, weights[0])), rg.tensor("w", weights, constant=True))
    made = construct(cuts(product, AVX512, OPTIONS, None)[0], AVX512, OPTIONS, top_k=20)
    return next(one.program for one in made if panel_part(one.program.stages[-1]) is None)


FROM_MEMORY, FROM_THE_SECOND_CACHE = (4096, 4096), (256, 1024)


@pytest.mark.parametrize(
    ("rows", "weights", "asked"),
    [
        (1, FROM_MEMORY, False), (4, FROM_MEMORY, False), (10, FROM_MEMORY, True),
        (1, FROM_THE_SECOND_CACHE, False), (4, FROM_THE_SECOND_CACHE, True),
    ],
)  # fmt: skip
def test_panels_of_floats_are_where_arithmetic_takes_as_long_as_memory_or_a_cache(rows, weights, asked):
    stage = few(rows, weights).stages[-1]
    assert (stage.prefetch >= 0 and prefetches_lines(stage)) is asked


def test_panels_that_are_read_again_are_not():
    product = rg.ops.matmul(rg.tensor("x", (128, 4096)), rg.tensor("w", (4096, 1024), constant=True))
    for one in construct(cuts(product, AVX512, OPTIONS, None)[0], AVX512, OPTIONS, top_k=6):
        stage = one.program.stages[-1]
        assert not (stage.prefetch >= 0 and prefetches_lines(stage))


def test_all_lines_of_a_later_step_are_asked_for_but_no_single_ones():
    program = asking(words(1024, 64).program)
    check(program, AVX512)
    text = emit(program, AVX512, "opencl").text
    asked = re.findall(r"__builtin_prefetch\(\(const void \*\)\(size_t\)\((\w+)_at \+ group0\*64 \+ (\d+)\), 0, 3\);", text)
    assert asked == [("out_weights", str(AHEAD_BYTES // 4 + line * 16)) for line in range(4)]


def test_lines_stay_away_from_the_first_cache_where_several_other_rows_are_read():
    program = asking(few(10, FROM_MEMORY))
    asked = re.findall(r"__builtin_prefetch\(.*\((\w+)_at .*, 0, (\d)\);", emit(program, AVX512, "opencl").text)
    assert set(asked) == {("w_packed", "2"), ("out", "3")}


def windows(channels, side, filters, options=OPTIONS, device=AVX512):
    """A convolution by its taps: 3 x 3, channels last, with constant weights."""
    x, w = rg.tensor("x", (1, side, side, channels)), rg.tensor("w", (filters, channels, 3, 3), constant=True)
    image = rg.compute((1, channels, side, side), lambda n, c, h, v: x[n, h, v, c])
    sums = rg.ops.conv2d(image, w, padding=1)
    last = rg.compute((1, side, side, filters), lambda n, h, v, f: sums[n, f, h, v])
    options = replace(options, winograd=0)
    made = construct(cuts(last, device, options, None)[0], device, options, top_k=40)
    taps = [one.program for one in made if one.program.stages[-1].op.of_role("reduce")[1:]]
    asks = lambda stage: stage.prefetch >= 0 and stage.loops[stage.prefetch].axis == "c"
    return max(taps, key=lambda one: asks(one.stages[-1]))  # the first that does, if any does


def test_each_line_of_a_later_step_of_all_taps_is_asked_for_once():
    program = windows(64, 7, 64)
    stage = program.stages[-1]
    assert stage.loops[stage.prefetch].axis == "c" and stage.loops[stage.prefetch + 1].kind == SERIAL
    asked = re.findall(r"\(w_packed_at \+ (\w+)\*(\d+) \+ (\d+)\), 0, 2\);", emit(program, AVX512, "opencl").text)
    assert {(variable[:2], step) for variable, step, _ in asked} in ({("kx", "32")}, {("ky", "96")})
    found = sorted(int(at) + int(step) * tap for _, step, at in asked for tap in range(3))
    steps = -(-AHEAD_BYTES // (9 * 32 * 4))
    assert found == [steps * 9 * 32 + 16 * line for line in range(9 * 2)]


def test_taps_ask_for_no_weights_of_the_first_cache_and_none_where_nothing_is_asked_for():
    assert windows(16, 14, 32).stages[-1].prefetch == -1
    assert windows(64, 14, 64, BuildOptions(shapes=replace(OPTIONS.shapes, prefetch=False))).stages[-1].prefetch == -1


@pytest.mark.parametrize("kind", ["words", "windows"])
def test_results_and_traffic_are_as_without(kind):
    program = words(1024, 48).program if kind == "words" else windows(64, 5, 64)
    asks, plain = (asking(program, False), program) if kind == "windows" else (asking(program), asking(program, False))
    given = stored(arrays_of(asks, "uint4"), "uint4") if kind == "words" else numbers(asks)
    (one, _), (other, _) = (interpreted(program, given, AVX512, most_blocks=50) for program in (asks, plain))
    assert one.traffic == other.traffic
    for got, want in zip(one.outputs.values(), other.outputs.values(), strict=True):
        assert np.array_equal(got, want)
    for got, want in zip(run_opencl(asks, given, AVX512).values(), run_opencl(plain, given, AVX512).values(), strict=True):
        assert np.array_equal(got, want)


def test_the_model_counts_what_asks_and_no_walks_for_pages_that_were_asked_for():
    asks, plain = (asking(words(4096, 4096).program, asks) for asks in (True, False))
    assert limiter(asks, "issue") > limiter(plain, "issue")
    assert limiter(asks, "tlb 2") < limiter(plain, "tlb 2") / 2


def test_loops_whose_steps_read_no_lines_of_panels_are_refused():
    product = rg.ops.matmul(rg.tensor("A", (8, 64)), rg.tensor("B", (64, 32)))
    program = construct(cuts(product, AVX512, OPTIONS, None)[0], AVX512, OPTIONS, top_k=1)[0].program
    (stage,) = program.stages
    along = [p for p, loop in enumerate(stage.loops) if loop.axis == "k" and loop.kind == SERIAL]
    with pytest.raises(ProgramError, match="prefetch is"):
        check(replace(program, stages=(replace(stage, prefetch=along[0]),)), AVX512)
