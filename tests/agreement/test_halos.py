"""Guarded images whose channels lie last: copied with their padding around them, read without tests."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice, program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.padding import with_halo
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, assert_values, device, run_opencl, small_integers
from tests.lower.devices import AVX512


def channels_last(stride, padding, taps, images=1):
    x = rg.tensor("x", (images, 9, 8, 5))
    w = rg.tensor("w", (16, 5, taps, taps), constant=True)
    image = rg.compute((images, 5, 9, 8), lambda n, c, h, v: x[n, h, v, c])
    y = rg.ops.conv2d(image, w, stride=stride, padding=padding)
    n, f, h, v = y.shape
    return rg.compute((n, h, v, f), lambda n, h, v, f: y[n, f, h, v])


CASES = {"stride 2": (2, 1, 3), "5 taps, two images": (1, 2, 5, 2), "more padding than taps": (3, 3, 3)}


@pytest.mark.parametrize("name", CASES)
def test_the_copy_holds_the_padding_and_nothing_is_tested_after_it(name):
    expression = channels_last(*CASES[name])
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    found = choice(op, device("cpu"), rg.BuildOptions(winograd=0).rules, 8).candidates
    one = next(one for one in found if one.variant.startswith("padded"))
    program = program_of(graph, device("cpu"), (one,)).program
    check(program, device("cpu"))
    assert not any(load.guard for load in program.stages[-1].op.body_loads())
    arrays = small_integers(program)
    assert_values(expression, program, interpret(program, arrays, device("cpu")).outputs, arrays)
    assert_values(expression, program, run_opencl(program, arrays, device("cpu")), arrays)


def test_what_is_not_guarded_is_not_copied():
    (op,) = canonicalize(channels_last(1, 0, 3)).tensor_ops
    assert all(with_halo(op, load) is None for load in op.body_loads())


def test_an_index_that_the_guard_of_another_keeps_inside_has_its_halo_too():
    x, w = rg.tensor("x", (4, 2), "int32"), rg.tensor("w", (5, 3), "int32")
    k = rg.reduce_axis("k", 5)
    read = lambda i: rg.select(i < 2, x[i, 1 - i], 7)
    (op,) = canonicalize(rg.compute((4, 3), lambda i, j: rg.sum(read(i) * w[k, j], axis=k), name="y")).tensor_ops
    load = next(load for load in op.body_loads() if load.buffer.name == "x")
    copy, rewritten = with_halo(op, load)
    assert copy.output.shape == (4, 4)
    placed = next(one for one in rewritten.body_loads() if one.buffer == copy.output)
    assert [index.bounds(op.ranges()) for index in placed.indices] == [(0, 3), (0, 3)]
    assert [bound.index.bounds(copy.ranges()) for bound in copy.result.guard] == [(0, 3), (-2, 1)]


def each_channel_alone(shape, taps, stride=1, dilation=1, dtype="float32"):
    x = rg.ops.permute(rg.tensor("x", shape, dtype), (0, 3, 1, 2))
    w = rg.tensor("w", (shape[-1], 1, taps, taps), dtype, constant=True)
    y = rg.ops.conv2d(x, w, stride=stride, padding=taps // 2, dilation=dilation, groups=shape[-1])
    return rg.ops.permute(y, (0, 2, 3, 1))


DEPTHWISE = {
    "a tail of lanes": ((2, 7, 5, 33), 3),
    "stride 2": ((1, 12, 11, 48), 3, 2),
    "one line, 5 taps": ((1, 1, 9, 16), 5),
    "taps apart": ((1, 9, 9, 32), 3, 1, 2),
    "whole numbers": ((1, 6, 6, 64), 3, 1, 1, "int32"),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_readers_of_images_whose_guards_hold_for_whole_vectors_agree_without_a_copy(name):
    expression, cpu = each_channel_alone(*DEPTHWISE[name]), AVX512
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    (variant,) = [one for one in variants(op, cpu) if one.name == "direct"]
    one = next(serial_candidates(variant, cpu, AlignmentRules(), 8, Ledger()))
    program = program_of(graph, cpu, (one,)).program
    check(program, cpu)
    assert [stage.op.output.name for stage in program.stages if not stage.once] == [op.output.name]
    arrays = small_integers(program)
    found = interpret(program, arrays, cpu)
    assert_traffic(program, found.traffic, cpu, {})
    assert_values(expression, program, found.outputs, arrays)
    assert_values(expression, program, run_opencl(program, arrays, cpu), arrays)


def test_a_large_image_of_separate_channels_is_read_where_it_lies():
    best = construct(canonicalize(each_channel_alone((1, 112, 112, 96), 3, 2)), AVX512, top_k=1)[0].program
    assert sum(not stage.once for stage in best.stages) == 1


def apart(program):
    return any(stage.op.output.name.endswith("_padded_packed") for stage in program.stages)


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.every(3)
def test_windows_that_lie_apart_or_of_a_short_image_are_gathered_from_the_copy_without_tests(seed, short):
    random = np.random.default_rng(seed)
    drawn = random.integers((1, 1, 7, 3, 2, 3), (3, 7, 16, 20, 4, 6))
    images, channels, side, filters, stride, taps = (int(n) for n in drawn)
    padding = int(random.integers(1, taps))
    if short:
        images, side, stride, padding = 1, side - 2, 1, 1
    x = rg.tensor("x", (images, channels, side, side + 1))
    w = rg.tensor("w", (filters, channels, taps, taps), constant=True)
    expression = rg.ops.conv2d(x, w, stride=stride, padding=padding)
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    found = [one for one in variants(op, device("cpu")) if one.name == "padded, implicit GEMM"]
    space = lambda variant: serial_candidates(variant, device("cpu"), AlignmentRules(), 8, Ledger())
    candidates = [one for variant in found for one in space(variant)]
    assert candidates
    for one in candidates[:2]:
        program = program_of(graph, device("cpu"), (one,)).program
        check(program, device("cpu"))
        readers = [load for stage in program.stages for load in stage.op.loads() if load.buffer.name == "x_padded"]
        assert all(len(load.guard) <= 1 for load in readers)  # the end of the last panel
        arrays = small_integers(program)
        assert_values(expression, program, interpret(program, arrays, device("cpu")).outputs, arrays)
        assert_values(expression, program, run_opencl(program, arrays, device("cpu")), arrays)


def test_a_short_image_of_which_no_copy_is_made_is_gathered_with_tests():
    x, w = rg.tensor("x", (1, 16, 4, 4)), rg.tensor("w", (16, 32, 3, 3), constant=True)
    (op,) = canonicalize(rg.ops.conv_transpose2d(x, w, padding=1)).tensor_ops
    assert "implicit GEMM" in [one.name for one in variants(op, device("cpu"))]


@pytest.mark.parametrize("images", [2, 4])
def test_windows_of_stride_2_take_less_from_the_copy_than_with_tests(images):
    x, w = rg.tensor("x", (images, 128, 28, 28)), rg.tensor("w", (256, 128, 3, 3), constant=True)
    (op,) = canonicalize(rg.ops.conv2d(x, w, stride=2, padding=1)).tensor_ops
    least: dict[str, float] = {}
    for variant in variants(op, AVX512):
        for one in serial_candidates(variant, AVX512, AlignmentRules(), 8, Ledger()):
            least[variant.name] = min(one.seconds, least.get(variant.name, one.seconds))
    assert least["padded, implicit GEMM"] < least["implicit GEMM"]


def test_places_that_differ_from_lane_to_lane_are_found_before_the_loop():
    x, w = rg.tensor("x", (1, 32, 28, 28)), rg.tensor("w", (64, 32, 3, 3), constant=True)
    graph = canonicalize(rg.ops.conv2d(x, w, stride=2, padding=1))
    (variant,) = [one for one in variants(graph.tensor_ops[0], AVX512) if one.name == "padded, implicit GEMM"]
    found = serial_candidates(variant, AVX512, AlignmentRules(), 8, Ledger())
    packed = next(one for one in found if apart(program_of(graph, AVX512, (one,)).program))
    text = emit(program_of(graph, AVX512, (packed,)).program, AVX512).text
    places = [line for line in text.splitlines() if "places[lane] =" in line]
    read = next(line for line in text.splitlines() if "x_padded_lanes[lane] =" in line)
    assert places and "/14" in places[0] and "% 14" in places[0] and "/14" not in read and "% 14" not in read
