"""Convolutions of images that lie channels first, by matrix instructions: image by image, or of a copy that lies
channels last."""

from __future__ import annotations

import re

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.model.price import worked
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
T = rg.tensor
ROUNDED = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 0.0}


def convolution(dtype, taps=3, constant=False, images=3, **how):
    weights = T("W", (24, 32, taps, taps), dtype, constant=constant)
    return rg.ops.conv2d(T("X", (images, 32, 9, 8), dtype), weights, **how)


def programs(name, expression, on):
    """The best programs by matrix instructions of one variant."""
    graph, device = canonicalize(expression), load_device(on)
    (variant,) = [one for one in variants(graph.tensor_ops[0], device) if one.name == name]
    found = matrix_candidates(variant, device, AlignmentRules(), 2, Ledger())
    return [program_of(graph, device, (one,)).program for one in found]


def assert_right(expression, made, on, dtype):
    device, arrays = load_device(on), small_integers(made)
    check(made, device)
    got = executed(made, emit(made, device, "cuda"), arrays)
    assert_values(expression, made, got, arrays, None, ROUNDED[dtype])
    counted = interpret(made, arrays, device).outputs
    assert_values(expression, made, counted, arrays, None, ROUNDED[dtype])


@on_host
@pytest.mark.parametrize(
    "on, dtype, how",
    [
        ("h200", "float16", {"padding": 1}), ("a100", "bfloat16", {"padding": 1, "stride": 2}),
        ("v100", "float16", {"dilation": 2, "padding": 2}), ("a100", "int8", {}),
    ],
)  # fmt: skip
def test_windows_are_taken_of_a_copy_that_lies_channels_last(on, dtype, how):
    expression = convolution(dtype, **how)
    made = programs("channels last", expression, on)[0]
    assert {x.name: x.shape for x in made.temporaries}["X_turned"] == (3, 9 * 8, 32)  # rows and columns as one
    assert_right(expression, made, on, dtype)


@pytest.mark.every(3)
@on_host
@pytest.mark.parametrize(
    "on, dtype, channels",
    [("v100", "float16", 128), ("a100", "bfloat16", 192), ("h200", "float16", 128), ("a100", "int8", 256)],
)
@pytest.mark.parametrize("name", ["channels last", "channels last, images together"])
def test_all_taps_of_a_line_of_channels_are_added_before_the_next_line(on, dtype, channels, name):
    image, weights = T("X", (3, channels, 5, 8), dtype), T("W", (24, channels, 3, 3), dtype)
    expression = rg.ops.conv2d(image, weights, padding=1)
    made = programs(name, expression, on)[0]
    line = 128 // ITEMSIZE[dtype]
    assert {x.name: x.shape for x in made.temporaries}["W_turned"] == (24 * channels // line, 9, line)
    assert_right(expression, made, on, dtype)


@on_host
@pytest.mark.parametrize("name, bounds", [("channels last", 2), ("channels last, images together", 3)])
def test_of_an_image_whose_padding_is_tested_only_images_beyond_the_last_are_tested_too(name, bounds):
    image, weights = T("X", (3, 64, 9, 9), "float16"), T("W", (24, 64, 3, 3), "float16")
    expression, device = rg.ops.conv2d(image, weights, padding=1), load_device("v100")
    made = programs(name, expression, "v100")[0]
    stage = made.stages[-1]
    masked = {one for one, how in stage.guards if how == "mask"}
    (axis,) = masked & {"oy", "n"}
    assert stage.op.extents()[axis] % 16  # the last tile runs over the end
    bounds += len(masked & {one.name for one in stage.op.of_role("reduce")})
    fetched = re.findall(r" = (.*) \? \*\(const \w+ \*\)\(X_turned", emit(made, device, "cuda").text)
    assert max(len(tests.split(" & ")) for tests in fetched) == bounds
    nest, work = worked(stage, device)
    image_read = [one for one in work.accesses if one.role == "fill_read" and nest.facts.loads[one.load].guard]
    assert [one.tested for one in image_read] == [bounds]
    assert_right(expression, made, "v100", "float16")


@pytest.mark.every(7)
@on_host
@pytest.mark.parametrize("on, dtype", [("h200", "float16"), ("a100", "bfloat16"), ("v100", "float16")])
@pytest.mark.parametrize("taps", [1, 3])
def test_results_of_one_image_are_stored_by_vectors(on, dtype, taps):
    expression = convolution(dtype, taps, padding=taps // 2)
    made = programs("implicit GEMM by image", expression, on)[0]
    assert len(made.stages) == 1 and made.stages[0].store.vector > 1
    assert_right(expression, made, on, dtype)


@pytest.mark.every(7)
@on_host
@pytest.mark.parametrize("on, dtype", [("h200", "float16"), ("a100", "int8")])
@pytest.mark.parametrize("name", ["channels last", "channels last, images together", "implicit GEMM by image"])
def test_more_images_than_filters_have_tiles_of_filters_and_pixels(on, dtype, name):
    expression = convolution(dtype, images=30, padding=1)
    made = programs(name, expression, on)[0]
    op = made.stages[-1].op
    filters = {load.buffer.name: load.axes() for load in op.body_loads()}["W" if "GEMM" in name else "W_turned"]
    threads = [loop.axis for _, loop in made.stages[-1].of_kind("thread")]
    assert threads[0] in filters and threads[1] not in filters
    assert_right(expression, made, on, dtype)


@pytest.mark.parametrize("on", ["a100", "h200"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_many_images_of_few_channels_are_turned_where_that_is_predicted_to_be_faster(on, dtype):
    weights = T("W", (64, 64, 3, 3), dtype)
    expression = rg.ops.conv2d(T("X", (128, 64, 56, 56), dtype), weights, padding=1)
    device = load_device(on)
    best = construct(canonicalize(expression), device, top_k=1)[0]
    gathered = programs("implicit GEMM", expression, on)[0]
    assert best.variants[0].startswith("channels last")
    assert predict(best.program, device).seconds < 0.8 * predict(gathered, device).seconds


@pytest.mark.parametrize("shape", [(32, 256, 28, 256), (128, 64, 56, 64)])
def test_windows_of_bytes_are_gathered_as_words_for_dot_products(shape):
    images, channels, side, filters = shape
    weights, device = T("W", (filters, channels, 3, 3), "int8"), load_device("v100")
    expression = rg.ops.conv2d(T("X", (images, channels, side, side), "int8"), weights, padding=1)
    best = construct(canonicalize(expression), device, top_k=1)[0]
    assert best.variants == ("dot products, implicit GEMM",)
    assert best.program.stages[-1].compute.instruction == "dp4a"
    products = images * side * side * filters * channels * 9 / 4
    bound = products / (device.instruction("dp4a").per_clock * device.units * device.clock_mhz * 1e6)
    assert predict(best.program, device).seconds < 1.5 * bound


def test_constant_weights_are_turned_once():
    made = programs("channels last", convolution("float16", constant=True), "h200")[0]
    assert {stage.name: stage.once for stage in made.stages[:2]} == {"copy_X_turned": False, "copy_W_turned": True}


@pytest.mark.parametrize(("dtype", "shapes"), [("float32", CodeShapes()), ("float16", CodeShapes(matrix_instructions=False))])
def test_without_matrix_instructions_images_are_left_as_they_lie(dtype, shapes):
    (op,) = canonicalize(convolution(dtype, padding=1)).tensor_ops
    names = [one.name for one in variants(op, load_device("h200"), AlignmentRules(shapes=shapes))]
    assert names and not {"channels last", "implicit GEMM by image"} & set(names)
