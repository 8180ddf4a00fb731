"""Results inside a constant frame: what is computed is stored where the frame leaves room for it, the frame apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice, program_of
from rollergen.construct.edges import frame_candidates
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.frames import without_frame
from rollergen.gate.tiles import tilings
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.tile.rules import ALL_SHAPES, AlignmentRules
from tests.agreement.readers import assert_values, device, run_opencl, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

T = rg.tensor


def convolution(pads, value=0, dtype="float32"):
    """Two images of 6 x 7 pixels and 8 channels, channels last, within a frame."""
    x, w = T("x", (2, 8, 9, 4), dtype), T("w", (8, 4, 3, 3), dtype, constant=True)
    y = rg.ops.relu(rg.ops.conv2d(rg.ops.permute(x, (0, 3, 1, 2)), w) + T("r", (2, 8, 6, 7), dtype))
    return rg.ops.permute(rg.ops.pad(y, pads, value=value), (0, 2, 3, 1))


def below_largest(rows):
    """How far each element is below the largest one of its row."""
    return rg.ops.amax(rows, 1, keepdim=True) - rows


def constant_first():
    """Sums of rows behind two elements of -1, the constant chosen where the condition holds."""
    total = rg.ops.sum(T("A", (9, 33)), 1)
    return rg.compute((14,), lambda i: rg.select((i < 2) | (i >= 11), -1.0, total[i - 2]))


EXPRESSIONS = {
    "a line on each side": lambda: convolution((1, 1, 1, 1)),
    "more after than before": lambda: convolution((0, 2, 1, 3)),
    "one side, ones": lambda: convolution((0, 0, 2, 0), 1),
    "half precision": lambda: convolution((1, 1, 1, 1), dtype="float16"),
    "columns of a product": lambda: rg.ops.pad(rg.ops.matmul(T("A", (9, 33)), T("B", (33, 20))), (3, 1), value=-2),
    "sums of rows": lambda: rg.ops.pad(rg.ops.sum(T("A", (9, 33)), 1), (2, 3)),
    "rows that are kept": lambda: rg.ops.pad(below_largest(T("A", (9, 16))), (0, 0, 1, 2)),
    "prefixes": lambda: rg.ops.pad(rg.ops.cumsum(T("A", (2, 9, 16)), 2), (0, 0, 2, 1)),
    "the constant first": lambda: constant_first(),
    "largest of windows": lambda: rg.ops.pad(rg.ops.max_pool2d(T("x", (2, 3, 9, 9)), 3, 2, 1), (1, 1, 1, 1)),
}


def apart(graph, on, count=2):
    """The candidates whose frame is stored apart."""
    (op,) = graph.tensor_ops
    found = lambda own, shapes: choice(own, device(on), AlignmentRules(shapes=shapes), count).candidates
    return [*frame_candidates(op, ALL_SHAPES, found)]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_parts_store_each_element_once_and_compute_none_of_the_frame(name):
    (op,) = canonicalize(EXPRESSIONS[name]()).tensor_ops
    inner, sides = without_frame(op)
    stored = lambda one: np.prod([axis.extent for axis in one.axes if axis.role in ("spatial", "row")])
    assert stored(inner) + sum(map(stored, sides)) == op.output.elements
    assert not any(side.loads() for side in sides)
    assert not any(load.guard for load in inner.loads()) or name == "largest of windows"


@pytest.mark.parametrize("on", ["cpu", "v100", "mi50"])
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.every(4)
def test_all_readers_compute_the_definition(name, on):
    expression = EXPRESSIONS[name]()
    graph = canonicalize(expression)
    found = apart(graph, on)
    assert found
    tolerance = 2.0**-11 if name == "half precision" else 0.0
    for one in found:
        program = program_of(graph, device(on), (one,)).program
        check(program, device(on))
        arrays = small_integers(program)
        counted = interpret(program, arrays, device(on))
        assert_values(expression, program, counted.outputs, arrays, None, tolerance)
        if on != "v100":
            got = run_opencl(program, arrays, device(on))
        elif compiler() is not None:
            got = executed(program, emit(program, device(on), "cuda"), arrays)
        else:
            continue
        assert_values(expression, program, got, arrays, None, tolerance)


def test_the_gate_compares_what_each_kernel_stores():
    graph = canonicalize(EXPRESSIONS["more after than before"]())
    program = program_of(graph, device("cpu"), apart(graph, "cpu")[:1]).program
    output = program.outputs[0]
    stored = np.zeros(output.shape, int)
    for tiling in tilings(program, output.name, np.random.default_rng(0)):
        for number in range(len(tiling.order)):
            stored[tiling.points(number, stored.shape)] += 1
    assert (stored == 1).all()


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(lambda: rg.ops.pad(rg.ops.relu(T("x", (9, 9))), (1, 1)), id="nothing is summed"),
        pytest.param(lambda: rg.ops.relu(rg.ops.pad(rg.ops.sum(T("x", (9, 9)), 1), (1, 1))), id="it is read again"),
        pytest.param(lambda: rg.ops.pad(rg.ops.sum(T("x", (9, 9)), 1), (1, 1), "reflect"), id="it is no constant"),
        pytest.param(lambda: rg.ops.pad(rg.ops.softmax(T("x", (9, 9))), (1, 1)), id="along rows that are kept"),
    ],
)
def test_other_results_have_no_frame(expression):
    assert all(without_frame(op) is None for op in canonicalize(expression()).tensor_ops)


def test_an_image_within_its_padding_is_stored_there_unless_that_is_forbidden():
    x, w = T("x", (1, 30, 30, 64)), T("w", (64, 64, 3, 3), constant=True)
    y = rg.ops.pad(rg.ops.conv2d(rg.ops.permute(x, (0, 3, 1, 2)), w), (1, 1, 1, 1))
    graph = canonicalize(rg.ops.permute(y, (0, 2, 3, 1)))
    first, *_ = construct(graph, device("cpu"), rg.BuildOptions(winograd=0), top_k=1)
    assert first.variants[0].startswith("frame apart")
    forbidden = rg.BuildOptions(winograd=0, shapes=replace(ALL_SHAPES, edges_apart=False))
    whole, *_ = construct(graph, device("cpu"), forbidden, top_k=1)
    assert "frame" not in whole.variants[0] and whole.seconds > first.seconds
