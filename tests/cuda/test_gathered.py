"""Gathered images fetched by whole vectors, executed from the CUDA text on a host: equal to the definition."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.interpreter import interpret
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed
from tests.matrices import T, nhwc_convolution

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

# Remainders on every axis that a vector does not lie along; windows that overhang each side of the image.
CASES = {
    "pixels of several images": (
        "v100", lambda: rg.ops.conv2d(T("X", (3, 10, 6, 6), "float32"), T("W", (20, 10, 1, 1), "float32")),
    ),
    "pixels of several images, past the registers": (
        "a100", lambda: rg.ops.conv2d(T("X", (3, 10, 6, 6), "float32"), T("W", (20, 10, 1, 1), "float32")),
    ),
    "channels": ("a100", lambda: nhwc_convolution(2, 5, 7, 16, 37, 3, "float16")),
    "channels through registers": ("v100", lambda: nhwc_convolution(2, 5, 7, 24, 20, 3, "float16")),
    "channels of bytes": ("h200", lambda: nhwc_convolution(2, 5, 7, 16, 19, 3, "int8")),
}  # fmt: skip


@pytest.mark.every(11)
@pytest.mark.parametrize("name", CASES)
def test_vectors_of_a_gathered_image_hold_what_the_definition_says(name):
    device_name, expression = CASES[name]
    device, expression = load_device(device_name), expression()
    graph = canonicalize(expression)
    programs = [one.program for one in construct(graph, device, top_k=10)]
    made = next(one for one in programs if _moves_images_by_vectors(one))
    arrays = small_integers(made)
    got = executed(made, emit(made, device, "cuda"), arrays, reverse=device_name == "a100")
    assert_values(expression, made, got, arrays, None, 2.0**-11 if made.outputs[0].dtype == "float16" else 0.0)
    wanted = interpret(made, arrays, device).outputs
    assert all(np.array_equal(got[key], wanted[key]) for key in wanted)


def _moves_images_by_vectors(program) -> bool:
    stage = program.stages[0]
    return any(
        copy.vector > 1 and copy.to_layer == "shared" and stage.load(copy).buffer.name == "X" for copy in stage.copies
    )
