"""What reduces much: construction gives a row to one width of threads or to a block, its CUDA text reads rows once and
in vectors of 16 bytes, and computes the definition."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.tile.rules import ALL_SHAPES, CodeShapes
from tests.agreement.readers import assert_values, device, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
T = rg.tensor

# (expression, tolerance): extents leave remainders, or (the longer ones) fill vectors and several widths.
EXPRESSIONS = {
    "softmax of short rows": (lambda: rg.ops.softmax(T("X", (37, 19)), axis=-1), 1e-6),
    "softmax of a width's rows": (lambda: rg.ops.softmax(T("X", (11, 516)), axis=-1), 1e-6),
    "softmax of a block's rows": (lambda: rg.ops.softmax(T("X", (3, 4100)), axis=-1), 1e-6),
    "softmax of rows too long to keep": (lambda: rg.ops.softmax(T("X", (2, 70004)), axis=-1), 1e-6),
    "log softmax": (lambda: rg.ops.log_softmax(T("X", (9, 260)), axis=-1), 1e-5),
    "layer norm": (lambda: rg.ops.layer_norm(T("X", (9, 772)), 772, T("g", (772,)), T("b", (772,))), 1e-5),
    "rms norm": (lambda: rg.ops.rms_norm(T("X", (9, 772)), 772, T("g", (772,))), 1e-5),
    "float16 rms norm": (lambda: rg.ops.rms_norm(T("X", (9, 776), "float16"), 776), 2.0**-10),
    "mean": (lambda: rg.ops.mean(T("X", (13, 1028)), axis=1), 1e-6),
    "variance": (lambda: rg.ops.var(T("X", (13, 516)), axis=1), 1e-5),
    "argmax": (lambda: rg.ops.argmax(T("X", (13, 515)), axis=1), 0),
    "sum of all": (lambda: rg.ops.sum(T("X", (130, 1027))), 0),
    "sum of few long rows": (lambda: rg.ops.sum(T("X", (2, 30011)), axis=1), 0),
}


@lru_cache(maxsize=16)
def made(name, count=1):
    expression = EXPRESSIONS[name][0]()
    return expression, construct(canonicalize(expression), device("v100"), top_k=count)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.every(11)
def test_cuda_text_and_interpreter_compute_the_definition(name):
    expression, (one,) = made(name)
    arrays = small_integers(one.program)
    tolerance = EXPRESSIONS[name][1]
    reverse = list(EXPRESSIONS).index(name) % 2 == 1
    got = executed(one.program, emit(one.program, device("v100"), "cuda"), arrays, reverse)
    assert_values(expression, one.program, got, arrays, None, tolerance)
    if name in ("softmax of short rows", "softmax of a block's rows", "layer norm", "argmax"):
        counted = interpret(one.program, arrays, device("v100"))
        assert_values(expression, one.program, counted.outputs, arrays, None, tolerance)


def parallel(stage):
    """(kind, extent) of the loops that share a reduction."""
    reduced = {a.name for a in stage.op.of_role("reduce", "row")}
    return tuple((x.kind, x.extent) for x in stage.loops if x.kind in ("group", "thread") and x.axis in reduced)


def softmax_stage(columns, rows=8192, shapes=ALL_SHAPES, name="v100"):
    graph = canonicalize(rg.ops.softmax(T("X", (rows, columns)), axis=-1))
    return construct(graph, device(name), BuildOptions(shapes=shapes), top_k=1)[0].program.stages[0]


@pytest.mark.parametrize("name", ["v100", "a100", "h200"])
def test_short_rows_share_a_block_and_long_ones_have_one_each(name):
    (short,) = parallel(softmax_stage(512, name=name))
    assert short[0] == "thread" and short[1] <= 32
    groups = dict(parallel(softmax_stage(12288, 512, name=name)))
    assert groups["thread"] == 32 and groups["group"] >= 4


def test_rows_stay_in_registers_as_long_as_they_fit():
    layers = lambda stage: {kept_row.layer for kept_row in stage.kept_rows}
    assert layers(softmax_stage(1024)) == {"registers"}
    assert layers(softmax_stage(200_000)) == set(), "too long"
    assert layers(softmax_stage(1024, shapes=CodeShapes(rows_in_registers=False))) == set()


@pytest.mark.parametrize(("columns", "vector"), [(1024, "float4"), (1022, "float2")])
def test_a_row_is_read_and_written_once_in_the_widest_vectors(columns, vector):
    graph = canonicalize(rg.ops.softmax(T("X", (64, columns)), axis=-1))
    program = construct(graph, device("v100"), top_k=1)[0].program
    text = emit(program, device("v100"), "cuda").text
    assert text.count(f"*(const {vector} *)") == 1 and text.count(f"*({vector} *)(out") == 1
    traffic = interpret(program, small_integers(program), device("v100")).traffic
    once = 64 * columns * 4
    # Rows of 1022 elements share transactions, which each of their tiles counts.
    assert all(once <= one.bytes <= once + one.tiles * one.transaction_bytes for one in traffic), traffic


def test_predicted_registers_hold_the_row_once():
    """The exponentials take the place of what they were made of."""
    stage = softmax_stage(1024)
    share = np.prod([x.extent for x in stage.loops if x.kind == "unroll"])
    assert share <= predict_stage(stage, device("v100")).registers < 2 * share + 24


def test_steps_before_the_row_s_last_need_no_test_of_their_elements():
    (first,) = construct(canonicalize(rg.ops.softmax(T("X", (2048, 3000)), axis=-1)), device("v100"), top_k=1)
    text = emit(first.program, device("v100"), "cuda").text
    masks = [line for line in text.splitlines() if " + i13 < 3000" in line]
    assert len(masks) == 2 and all("i12 < 11 || i12*256 + " in line for line in masks)  # 11 whole steps of 256
