"""Windows whose lines' parts are put together first: the same values, shared by the outputs that a line serves."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.line_parts import MOST_TAPS, line_parts
from rollergen.program.model.facts import facts_of
from rollergen.program.model.line_parts import saved_operations
from rollergen.program.model.nest import nest_of
from tests.lower.devices import AVX512
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program

NAME = "direct, parts of lines first"


def pooled(how, shape, *window, dtype="float32", **more):
    return getattr(rg.ops, f"{how}_pool2d")(rg.tensor("X", shape, dtype), *window, name="Y", **more)


POOLS = {
    "maxima": pooled("max", (1, 3, 12, 19), 3, 1, 1),
    "maxima of every other window": pooled("max", (1, 2, 15, 57), 3, 2, 1),
    "wide windows in lines shorter than a vector": pooled("max", (1, 3, 13, 13), 5, 1, 2),
    "maxima of halves": pooled("max", (1, 2, 13, 39), 3, 1, 1, dtype="float16"),
    "means": pooled("avg", (1, 2, 11, 35), 3, 1, 1),
    "means of what is inside": pooled("avg", (1, 3, 9, 33), 3, 1, 1, count_include_pad=False),
}


def program_of(tensor):
    ranked = construct(canonicalize(tensor), AVX512, top_k=20)
    return next(one.program for one in ranked if one.variants == (NAME,))


def run(program, inputs):
    found, (output,) = execute(emit(program, AVX512), program, inputs), program.outputs
    assert all(buffer.zones_intact() for buffer in found.values())
    expected = run_program(program, inputs)[output.name]
    return found[output.name].array.reshape(expected.shape), expected


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.every(5)
def test_windows_put_together_by_lines_are_right_and_read_nothing_outside(name):
    program = program_of(POOLS[name])
    found, expected = run(program, random_inputs(program, seed=3))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-5, atol=1e-3 if "halves" in name else 1e-5)


def test_a_nan_is_the_maximum_of_every_window_that_holds_it():
    program = program_of(POOLS["maxima"])
    inputs = random_inputs(program, seed=3)
    inputs["X"].reshape(3, 12, 19)[1, 5, 7] = np.nan
    found, expected = run(program, inputs)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(expected).sum() == 3 * 3


def test_windows_of_one_line_and_long_ones_stay_as_they_are():
    (op,) = canonicalize(POOLS["maxima"]).tensor_ops
    assert line_parts(line_parts(op, "kx"), "ky") is None
    (op,) = canonicalize(pooled("max", (1, 2, 30, 30), MOST_TAPS + 1, 1)).tensor_ops
    assert line_parts(op, "kx") is None


def test_weights_leave_lines_of_an_image_apart():
    X, W = rg.tensor("X", (1, 3, 12, 19)), rg.tensor("W", (3, 1, 3, 3))
    (op,) = canonicalize(rg.ops.conv2d(X, W, padding=1, groups=3)).tensor_ops
    assert NAME not in [variant.name for variant in variants(op, AVX512)]


def test_a_line_s_part_is_counted_once_for_all_outputs_of_a_tile():
    (stage,) = program_of(POOLS["maxima"]).stages
    nest = nest_of(stage, facts_of(stage.op), AVX512)
    rows = next(loop.extent for loop in stage.loops if loop.axis == "oy" and loop.kind == "unroll")
    operations, saved = saved_operations(nest)
    assert operations == (("max", 2),)
    assert saved == pytest.approx(1 - (rows + 2) / (3 * rows))  # lines of 3 taps each


@pytest.mark.filterwarnings("error")  # of negative clocks there are no powers
def test_what_lines_and_other_axes_have_in_common_is_saved_once():
    """A factor of whole channels, and the conditions at borders, which all channels have in common."""
    X, factor = rg.tensor("X", (2, 8, 9, 4)), rg.tensor("factor", (2, 4))
    ky, kx = rg.reduce_axis("ky", 3), rg.reduce_axis("kx", 3)

    def largest(i, y, x, c):
        row, column = y + ky - 1, x + kx - 1
        inside = (row >= 0) & (row < 8) & (column >= 0) & (column < 9)
        return rg.max(rg.select(inside, X[i, row, column, c] * factor[i, c], -np.inf), axis=(ky, kx))

    assert len(construct(canonicalize(rg.compute((2, 8, 9, 4), largest)), AVX512, top_k=5)) == 5
