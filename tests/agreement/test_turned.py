"""Contractions whose results are turned when they are stored: readers agree, and only what may be is."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from random import Random

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.choose import choice, construct, program_of
from rollergen.construct.options import BuildOptions
from rollergen.construct.turned import turned_candidates
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.expr.turned import turned as sums_of_lanes
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from tests.agreement.readers import assert_traffic, assert_values, interpreted, run_opencl, small_integers
from tests.lower.devices import AVX512

T = rg.tensor
RULES = BuildOptions(winograd=0).rules


def conv(image, filters, size, stride=1, groups=1, dtype="float32", constant=True, **more):
    weight = T("w", (filters, image[-3] // groups, size, size), dtype, constant=constant)
    return rg.ops.conv2d(T("x", image, dtype), weight, stride=stride, padding=size // 2, groups=groups, **more)


def epilogue():
    image, bias, beside = (2, 24, 7, 7), T("b", (48,), constant=True), T("r", (2, 48, 7, 7))
    return rg.ops.relu(conv(image, 48, 1, bias=bias) + beside)


EXPRESSIONS = {
    "1x1": lambda: conv((1, 40, 7, 7), 64, 1),
    "one vector of pixels": lambda: conv((1, 40, 4, 4), 64, 1),
    "no batch, odd sizes": lambda: conv((13, 5, 5), 16, 1),
    "bias, sum and relu of two images": epilogue,
    "half the lines": lambda: conv((1, 12, 14, 14), 32, 1, 2),
    "windows of stride 2": lambda: conv((1, 12, 14, 14), 32, 3, 2),
    "windows of 5 x 5 in two images": lambda: conv((2, 6, 9, 11), 48, 5),
    "windows in float16": lambda: conv((1, 10, 13, 13), 16, 3, 2, dtype="float16"),
    "groups": lambda: conv((1, 16, 7, 6), 32, 1, groups=2),
    "float16": lambda: conv((1, 40, 7, 7), 32, 1, dtype="float16"),
    "bfloat16": lambda: conv((1, 40, 7, 7), 32, 1, dtype="bfloat16"),
    "a constant matrix times few columns": lambda: rg.ops.matmul(T("w", (48, 96), constant=True), T("x", (96, 9))),
    "largest of sums of two": lambda: rg.compute(
        (32, 5),
        lambda i, j: rg.max(
            T("w", (32, 20), constant=True)[i, (k := rg.reduce_axis("k", 20))] + T("x", (20, 5))[k, j], axis=k
        ),
    ),
}


def only_turned(expression):
    """The best turned candidate of the expression's one tensor op, as a program; None where there is none."""
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    sums = lambda own: choice(own, AVX512, RULES, 2).candidates
    found = next(turned_candidates(op, AVX512, RULES, sums), None)
    return None if found is None else program_of(graph, AVX512, (found,)).program


@lru_cache(maxsize=32)
def turned(name):
    expression = EXPRESSIONS[name]()
    return expression, only_turned(expression)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_interpreter_and_text_compute_the_definition(name):
    expression, program = turned(name)
    assert program.stages[-1].name == "results"
    check(program, AVX512)
    assert predict(program, AVX512).seconds > 0
    arrays = small_integers(program)
    tolerance = 0.0 if program.outputs[0].dtype == "float32" else 1e-2
    assert_values(expression, program, interpret(program, arrays, AVX512).outputs, arrays, None, tolerance)
    assert_values(expression, program, run_opencl(program, arrays, AVX512), arrays, None, tolerance)


@pytest.mark.parametrize("name", ["1x1", "bias, sum and relu of two images", "half the lines", "windows of stride 2"])
def test_the_interpreter_moves_the_bytes_of_the_closed_forms(name):
    _, program = turned(name)
    found, blocks = interpreted(program, small_integers(program), AVX512, 64)
    assert_traffic(program, found.traffic, AVX512, blocks)


def test_random_products_agree():
    chance = Random(11)
    for _ in range(6):
        m, n, k = 16 * chance.randrange(1, 5), chance.choice([1, 3, 5, 9, 23, 49]), chance.randrange(3, 70)
        expression = rg.ops.matmul(T("w", (m, k), constant=True), T("x", (k, n)))
        program = only_turned(expression)
        if program is None:
            assert n == 1  # a vector, which has no rows to turn
            continue
        arrays = small_integers(program, n)
        assert_values(expression, program, interpret(program, arrays, AVX512).outputs, arrays)
        assert_values(expression, program, run_opencl(program, arrays, AVX512), arrays)


REFUSED = {
    "weights of the call": lambda: conv((1, 40, 7, 7), 64, 1, constant=False),
    "filters that are no whole vectors": lambda: conv((1, 40, 7, 7), 40, 1),
    "whole vectors of pixels": lambda: conv((1, 40, 8, 8), 64, 1),
    "few idle lanes": lambda: conv((1, 40, 14, 14), 64, 1),
    "whole vectors of pixels of windows": lambda: conv((1, 12, 32, 32), 32, 3, 2),
    "depthwise": lambda: conv((1, 32, 7, 7), 32, 3, groups=32),
    "constants along the rows": lambda: rg.ops.matmul(T("x", (48, 20)), T("w", (20, 9), constant=True)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_gain_nothing_is_not_turned(name):
    assert only_turned(REFUSED[name]()) is None


def test_filters_are_the_lanes_where_pixels_leave_many_idle():
    options = BuildOptions()
    few, many = (
        construct(canonicalize(conv((1, 320, side, side), 1280, 1)), AVX512, options, top_k=1)[0] for side in (7, 16)
    )
    assert few.variants[0].startswith("turned, direct, packed w") and "turned" not in many.variants[0]
    narrow = construct(canonicalize(conv((1, 2, 7, 7), 1280, 1)), AVX512, options, top_k=1)[0]
    assert "turned" not in narrow.variants[0], "to turn the results takes longer than two terms of each"


@pytest.mark.parametrize("size, stride, side", [(3, 2, 28), (5, 1, 28), (5, 2, 13)])
def test_filters_are_the_lanes_of_windows_that_would_be_packed(size, stride, side):
    known = dict(load_device("cpu").costs)
    more = {name: known[name] for name in ("guard_instructions", "decode_instructions")}
    core = replace(AVX512, costs=tuple(sorted((dict(AVX512.costs) | more).items())))
    (best,) = construct(canonicalize(conv((1, 128, side, side), 256, size, stride)), core, BuildOptions(), top_k=1)
    assert best.variants == ("turned, padded, packed w",)


@pytest.mark.parametrize("image, size", [((12, 14, 14), 3), ((4, 12, 9, 9), 5), ((2, 8, 12, 12, 12), 3)])
def test_rows_lie_along_the_lines_of_an_image_and_the_tap_along_them_outside_the_others(image, size):
    conv3d = lambda: rg.ops.conv3d(T("x", image), T("w", (32, image[1], 3, 3, 3), constant=True), stride=2, padding=1)
    (op,) = canonicalize(conv3d() if len(image) == 5 else conv(image, 32, size, 2)).tensor_ops
    sums = sums_of_lanes(op, op.of_role("spatial")[-1].name, 16).sums
    padded = next(one for one in variants(sums, AVX512) if one.name == "padded")
    (pixels,) = (load for load in padded.op.body_loads() if padded.roles.m in load.axes())
    assert pixels.indices[-1].axes() == {padded.roles.m, padded.roles.taps[0]}


def test_random_windows_agree():
    chance = Random(5)
    for _ in range(4):
        side, size, stride = chance.randrange(5, 15), chance.choice([2, 3, 5]), chance.choice([1, 2, 3])
        expression = conv((chance.randrange(1, 3), chance.randrange(1, 9), side, side + 1), 16, size, stride)
        program = only_turned(expression)
        if program is None:  # few lanes are idle
            continue
        arrays = small_integers(program, side)
        assert_values(expression, program, interpret(program, arrays, AVX512).outputs, arrays)
        assert_values(expression, program, run_opencl(program, arrays, AVX512), arrays)


@pytest.mark.parametrize("change", [lambda y: y.T, lambda y: np.roll(y, 1, -1), lambda y: y + (y == y.max())])
def test_the_comparison_finds_results_in_other_places(change):
    expression, program = turned("1x1")
    arrays = small_integers(program)
    (name,) = (one.name for one in program.outputs)
    got = interpret(program, arrays, AVX512).outputs[name]
    wrong = np.ascontiguousarray(change(got)).reshape(got.shape)
    with pytest.raises(AssertionError):
        assert_values(expression, program, {name: wrong}, arrays)
