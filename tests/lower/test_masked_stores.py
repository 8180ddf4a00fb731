"""Vectors of which some lanes are stored: at once where the processor can, with no other place touched."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from tests import programs
from tests.lower.devices import AVX512, DEVICES
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program

GUARD = "#if defined(__AVX512F__) && defined(__AVX512DQ__)"


def compiled(way):
    """A matrix product whose columns are no whole vectors, with the processor's masked stores or without."""
    program = programs.ALL["cpu_matmul"]
    source = emit(program, DEVICES["cpu"])
    assert GUARD in source.text and source.text.count("store_lanes16(") > 1
    return program, source if way == "at once" else replace(source, text=source.text.replace(GUARD, "#if 0"))


@pytest.mark.parametrize("way", ["at once", "lane by lane"])
def test_the_lanes_inside_are_written_and_nothing_else(way):
    program, source = compiled(way)
    inputs = random_inputs(program)
    found, (output,) = execute(source, program, inputs), program.outputs
    assert all(buffer.zones_intact() for buffer in found.values())
    np.testing.assert_array_equal(found[output.name].array, run_program(program, inputs)[output.name])


def test_processors_of_narrower_vectors_get_no_such_text():
    narrow = replace(DEVICES["cpu"].targets[0], dialect=(("kernel_attribute", "__attribute__((min_vector_width(256)))"),))
    text = emit(programs.ALL["cpu_matmul"], replace(DEVICES["cpu"], targets=(narrow,))).text
    assert "store_lanes16" not in text


@pytest.mark.every(7)
@pytest.mark.parametrize("way", ["at once", "lane by lane"])
@pytest.mark.parametrize("size", [7, 9, 14])
def test_lines_that_end_within_a_vector_are_stored_and_resumed_piece_by_piece(size, way):
    X, W = rg.tensor("X", (1, 320, size, size)), rg.tensor("W", (32, 320, 3, 3))
    graph = canonicalize(rg.ops.conv2d(X, W, padding=1, name="Y"))
    ranked = (one.program for one in construct(graph, AVX512, top_k=50))
    program = next(one for one in ranked if one.stages[0].op.output.name == "X_padded" and one.stages[-1].accumulator.carry)
    source = emit(program, AVX512)
    assert source.text.count("store_lanes16(") > 2 and "? *(global float16u *)(Y_at" in source.text
    if way == "lane by lane":
        source = replace(source, text=source.text.replace(GUARD, "#if 0"))
    inputs = random_inputs(program)
    found = execute(source, program, inputs)
    assert all(buffer.zones_intact() for buffer in found.values())
    np.testing.assert_array_equal(found["Y"].array[0], run_program(program, inputs)["Y"])


@pytest.mark.every(7)
@pytest.mark.parametrize("way", ["at once", "lane by lane"])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_chosen_lanes_of_integers_are_stored_too(dtype, way):
    x, w = rg.tensor("X", (1, 6, 9, 9), "int8"), rg.tensor("W", (7, 6, 3, 3), "int8")
    if dtype == "int32":
        expression = rg.ops.conv2d(x, w, padding=1, name="Y")
    else:
        expression = rg.ops.quantized_conv2d(x, w, 0.5, 0.25, padding=1, scale=1.0, dtype=dtype, name="Y")
    (best,) = construct(canonicalize(expression), AVX512, top_k=1)
    source = emit(best.program, AVX512)
    name = {"int32": "store_ints16_masked", "int8": "store_chars16_masked", "uint8": "store_uchars16_masked"}[dtype]
    assert source.text.count(f"{name}(") > 1
    if way == "lane by lane":
        text = source.text.replace(f"{GUARD} && defined(__AVX512BW__) && defined(__AVX512VL__)", "#if 0")
        source = replace(source, text=text.replace(GUARD, "#if 0"))
    inputs = random_inputs(best.program)
    found = execute(source, best.program, inputs)
    assert all(buffer.zones_intact() for buffer in found.values())
    np.testing.assert_array_equal(found["Y"].array.reshape(1, 7, 9, 9), expression.evaluate(*inputs.values()))
