"""Tiles of an operand that a block of one thread copies into an array of its own."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import exact, grid
from rollergen.construct.serial_structures import structures
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.tile.rules import AlignmentRules
from tests.program.hand_devices import AVX512

RULES = AlignmentRules()
T = rg.tensor


def own_structures(expression):
    (op,) = canonicalize(expression).tensor_ops
    return [one for variant in variants(op, AVX512) for one in structures(variant, AVX512, RULES) if one.staged]


def matmul(m, n, k):
    return rg.ops.matmul(T("A", (m, k)), T("B", (k, n)), name="C")


def test_only_what_rows_share_is_copied():
    (name,) = {one.name for one in own_structures(matmul(200, 300, 400))}
    assert name == "direct, own tiles of B"


@pytest.mark.parametrize(
    "expression",
    [
        matmul(1, 300, 400),  # one row
        rg.ops.linear(T("X", (128, 256)), T("W", (512, 256), constant=True), T("b", (512,), constant=True)),  # packed
        rg.ops.depthwise_conv2d(T("X", (1, 64, 28, 28)), T("W", (64, 1, 3, 3), constant=True), padding=1),  # no rows
    ],
)
def test_nothing_is_copied_where_it_is_used_once_or_lies_apart(expression):
    assert own_structures(expression) == []


def test_tiles_stay_within_half_of_the_second_cache():
    structure = own_structures(matmul(2000, 4000, 4000))[0]
    points = grid(structure, AVX512, RULES, Ledger())
    width = structure.vectors * structure.lanes
    assert 0 < (points["kc"] * points["pn"] * width * 4).max() <= 512 << 10


@pytest.mark.parametrize("shape", [(30, 96, 40), (31, 101, 41)])
def test_the_program_says_what_the_definition_says(shape):
    m, n, k = shape
    expression = matmul(*shape)
    structure = next(one for one in own_structures(expression) if one.vectors == 2)
    made = exact(structure, structure.plan(6, 16, 3, 2), AVX512, RULES)
    program = rg.construct(expression, AVX512, top_k=1)[0]
    program = replace(program, stages=made.stages, temporaries=made.temporaries)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, size).astype(np.float32) for size in ((m, k), (k, n)))
    found = interpret(program, {"A": a, "B": b}, AVX512).outputs["C"]
    np.testing.assert_array_equal(found, a @ b)


def windows():
    return rg.ops.conv2d(T("X", (1, 8, 13, 13)), T("W", (20, 8, 3, 3), constant=True), padding=1, stride=2, name="Y")


def test_a_tile_of_windows_holds_each_element_for_every_tap():
    structure = next(one for one in own_structures(windows()) if one.vectors == 2)
    assert structure.name == "padded, own tiles of X_padded"
    assert structure.tile_bytes(4, 1) == 4 * 9 * 32 * 4
    stage = structure.stage(structure.plan(6, 4, 4, 2), AVX512, RULES)
    (copy,) = stage.copies
    assert stage.buffer_shape(copy, block=False) == (4, 3, 3, 64)


def test_windows_out_of_own_tiles_are_those_of_the_definition():
    expression = windows()
    structure = next(one for one in own_structures(expression) if one.vectors == 2)
    made = exact(structure, structure.plan(6, 4, 4, 2), AVX512, RULES)
    program = replace(rg.construct(expression, AVX512, top_k=1)[0], stages=made.stages, temporaries=made.temporaries)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, size).astype(np.float32) for size in ((1, 8, 13, 13), (20, 8, 3, 3)))
    found = interpret(program, {"X": x, "W": w}, AVX512).outputs["Y"]
    np.testing.assert_array_equal(found, expression.evaluate(x, w))


def test_filling_is_added_to_what_is_computed_meanwhile():
    """No multiply-add waits beside a copy: 4 MB from beyond the second cache, at its rate."""
    structure = next(one for one in own_structures(matmul(1024, 1024, 1024)) if one.vectors == 4)
    stage = structure.stage(structure.plan(6, 1024, 171, 2), AVX512, RULES)
    limiters = {one.name: one for one in predict_stage(stage, AVX512).limiters}
    filling = limiters["filling tiles"]
    outer = AVX512.layer("l3")
    read = 1024 * 1024 * 4 / outer.bytes_per_clock
    assert filling.how == "adds"
    assert read < filling.clocks < 1.5 * read
