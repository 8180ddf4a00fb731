"""Windows in registers: what neighbouring outputs share is read once; in all readers, of any stride and tail."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.ledger import Ledger
from rollergen.construct.options import BuildOptions
from rollergen.construct.window_space import window_candidates
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.lower import windows as lowered
from rollergen.program.assemble.plan import WindowPlan
from rollergen.program.assemble.window import window_loads, window_stage
from rollergen.program.check.program import check
from rollergen.program.interpreter import interpret
from rollergen.program.interpreter.copies import WindowLayout
from rollergen.program.model.prediction import predict_stage
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json
from rollergen.program.windows import needed, window_shape
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import DEVICES, assert_traffic, assert_values, device, run_opencl, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

V100 = device("v100")
X = rg.tensor("X", (2, 3, 11, 14))
W = rg.tensor("W", (3, 1, 3, 3))
IMAGES = {
    "stride 1, padded": lambda: rg.ops.conv2d(X, W, padding=1, groups=3),
    "taps apart": lambda: rg.ops.conv2d(X, W, padding=2, dilation=2, groups=3),
    "stride 2, padded": lambda: rg.ops.conv2d(X, W, stride=2, padding=1, groups=3),
    "nothing padded": lambda: rg.ops.conv2d(X, W, groups=3),
    "largest of 3 x 3": lambda: rg.ops.max_pool2d(X, 3, stride=2, padding=1),
    "mean of 2 x 2": lambda: rg.ops.avg_pool2d(X, 2, stride=1),
}
PATCHES = {"4 x 4": (4, 4, 2, 4), "3 x 5": (3, 5, 4, 3), "a row": (1, 8, 8, 1), "a column": (6, 1, 1, 16)}


def program_of(expression, rows, columns, down, across) -> RProgram:
    """The expression in patches of rows x columns a thread, down x across threads a block."""
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    y, x = (axis.name for axis in op.of_role("spatial")[-2:])
    plan = WindowPlan(((y, rows), (x, columns)), ((y, down), (x, across)))
    return RProgram("v100", graph.inputs, graph.outputs, (window_stage(op, plan, V100),))


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.every(11)
def test_interpreter_and_source_give_the_definition_and_bytes_are_the_closed_forms(image, patch):
    expression = IMAGES[image]()
    program = program_of(expression, *PATCHES[patch])
    if image == "taps apart" and 1 in PATCHES[patch][:2]:
        with pytest.raises(ProgramError, match="gaps"):
            check(program, V100)
        return
    check(program, V100)
    arrays = small_integers(program)
    tolerance = 1e-6 if "mean" in image else 0.0
    found = interpret(program, arrays, V100)
    assert_values(expression, program, found.outputs, arrays, tolerance=tolerance)
    assert_traffic(program, found.traffic, V100, {})
    assert_values(expression, program, run_opencl(program, arrays, V100), arrays, tolerance=tolerance)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("image", ["stride 2, padded", "taps apart", "largest of 3 x 3"])
def test_cuda_text_gives_the_definition(image):
    expression = IMAGES[image]()
    program = program_of(expression, *PATCHES["3 x 5"])
    arrays = small_integers(program)
    assert_values(expression, program, executed(program, emit(program, V100, "cuda"), arrays), arrays)


def test_each_element_of_the_window_is_read_once_and_unguarded_where_it_is_always_inside():
    program = program_of(IMAGES["stride 1, padded"](), 4, 7, 4, 2)
    assert window_shape(program.stages[0], program.stages[0].copies[0]) == (1, 1, 6, 9)
    text = emit(program, V100, "cuda").text
    assert "float x[6][9]" in text
    # 11 rows in patches of 4 overhang, 14 columns in patches of 7 do not: inner columns have their row's test only.
    assert "x[0][at] = inside ? X_at[at" in text
    assert "ox1*7" not in text and "(unsigned int)(ox0*7 - 1) < limit" in text


def test_a_window_reads_no_element_that_only_points_beyond_the_tail_would():
    (op,) = canonicalize(rg.ops.max_pool2d(rg.tensor("X", (1, 1, 9, 16)), 2, stride=2)).tensor_ops
    ranges = {axis.name: (0, axis.extent - 1) for axis in op.axes}
    load = op.body_loads()[0]
    rows = next(d for d, index in enumerate(load.indices) if load.buffer.shape[d] == 9 and index.terms)
    assert needed(load, rows, ranges) == (0, 8), "the ninth row is in no window of two"


def test_programs_with_windows_survive_their_text():
    program = program_of(IMAGES["stride 1, padded"](), 4, 4, 2, 4)
    assert from_json(to_json(program)) == program
    (copy,) = program.stages[0].copies
    assert copy.window


def variants(options=BuildOptions(), where="v100"):
    expression = rg.ops.conv2d(rg.tensor("X", (8, 64, 28, 28)), rg.tensor("W", (64, 1, 3, 3)), padding=1, groups=64)
    return [one.variants for one in construct(canonicalize(expression), device(where), options, top_k=10)]


@pytest.mark.parametrize("where", ["v100", "mi50"])
def test_the_model_prefers_windows_for_depthwise_convolutions(where):
    assert variants(where=where)[0] == ("windows",)


def test_windows_are_left_out_where_they_are_switched_off_or_threads_are_vectors():
    assert ("windows",) not in variants(BuildOptions(shapes=CodeShapes(windows=False)))
    op = canonicalize(IMAGES["stride 1, padded"]()).tensor_ops[0]
    made = {where: list(window_candidates(op, device(where), BuildOptions().rules, 4, Ledger())) for where in DEVICES}
    assert made == {"v100": made["v100"], "mi50": made["mi50"], "cpu": [], "ipu": []}
    assert made["v100"] and made["mi50"]


def test_contractions_with_channels_have_no_windows():
    expression = rg.ops.conv2d(rg.tensor("X", (2, 16, 14, 14)), rg.tensor("W", (32, 16, 3, 3)), padding=1)
    assert ("windows",) not in [one.variants for one in construct(canonicalize(expression), V100, top_k=10)]


def test_the_model_counts_each_element_of_a_window_once():
    program = program_of(IMAGES["stride 1, padded"](), 4, 4, 2, 4)
    stage = program.stages[0]
    bare = replace(stage, copies=())
    once = predict_stage(stage, V100).seconds
    assert once < predict_stage(bare, V100).seconds


def test_what_cannot_be_a_window_is_refused():
    program = program_of(IMAGES["stride 1, padded"](), 4, 4, 2, 4)
    stage = program.stages[0]
    (copy,) = stage.copies
    for change, message in (
        ({"vector": 2}, "vectors of 2"),
        ({"padding": 1}, "in registers without padding"),
        ({"load": 1, "order": ("ky", "kx"), "along": "kx", "at_loop": stage.accumulator.at_loop + 1}, "ky is not looped over"),
    ):
        with pytest.raises(ProgramError, match=message):
            check(replace(program, stages=(replace(stage, copies=(replace(copy, **change),)),)), V100)


def one_column_too_many(patch):
    patch(lowered, "needed", lambda load, d, ranges: (needed(load, d, ranges)[0], needed(load, d, ranges)[1] + (d == 3)))


def one_row_too_few(patch):
    patch(lowered, "needed", lambda load, d, ranges: (needed(load, d, ranges)[0] + (d == 2), needed(load, d, ranges)[1]))


def rows_tested_as_inside(patch):
    patch(lowered, "_joined", lambda out, dimension, run, at, outside, limit: dimension.test(run, at))


@pytest.mark.parametrize("fault", [one_column_too_many, one_row_too_few, rows_tested_as_inside])
def test_faults_of_the_lowering_are_seen(fault, monkeypatch):
    expression = IMAGES["stride 1, padded"]()
    program = program_of(expression, 4, 4, 2, 4)
    arrays = small_integers(program)
    fault(monkeypatch.setattr)
    with pytest.raises(AssertionError):
        assert_values(expression, program, run_opencl(program, arrays, V100), arrays)


def test_a_fault_of_the_interpreters_filling_is_seen(monkeypatch):
    expression = IMAGES["stride 1, padded"]()
    program = program_of(expression, 4, 4, 2, 4)
    old = WindowLayout.reached
    monkeypatch.setattr(WindowLayout, "reached", lambda self, index, points: old(self, index, points) // 2)
    with pytest.raises((AssertionError, ProgramError)):
        assert_values(expression, program, interpret(program, small_integers(program), V100).outputs, small_integers(program))


def test_weights_do_not_slide():
    (op,) = canonicalize(IMAGES["stride 1, padded"]()).tensor_ops
    assert [op.loads()[n].buffer.name for n in window_loads(op)] == ["X"]
