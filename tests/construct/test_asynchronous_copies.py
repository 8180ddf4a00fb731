"""Construction chooses asynchronous copies by the model; what it makes of them computes the definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from tests.agreement.readers import assert_values, device, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

T = rg.tensor
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(T("A", (141, 68)), T("B", (68, 203))),
    "matmul, both transposed": lambda: rg.ops.matmul(
        T("A", (76, 141)), T("B", (104, 76)), transpose_a=True, transpose_b=True
    ),
    "matmul, float16": lambda: rg.ops.matmul(T("A", (141, 200), "float16"), T("B", (200, 104), "float16")),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (2, 7, 15, 13)), T("W", (37, 7, 3, 3)), padding=1),
}


def staged(program):
    return [c for stage in program.stages for c in stage.copies if c.to_layer == "shared"]


def chosen(expression, name, count=10, **shapes):
    options = rg.BuildOptions(shapes=rg.CodeShapes(**shapes))
    return [one.program for one in construct(canonicalize(expression), device(name), options, count)]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_programs_with_asynchronous_copies_compute_the_definition(name):
    expression = EXPRESSIONS[name]()
    program = next(p for p in chosen(expression, "a100") if any(c.asynchronous for c in staged(p)))
    arrays = small_integers(program)
    got = executed(program, emit(program, device("a100"), "cuda"), arrays, reverse="float16" in name)
    assert_values(expression, program, got, arrays, None, 2.0**-11 if "float16" in name else 0.0)


def lies_along_k(program):
    """Staged tiles that keep the operand's order along the reduction, and whose fragments are of several steps."""
    stage = program.stages[0]
    last = {c.load: c.order[-1] for c in stage.copies if c.to_layer == "shared"}
    reduced = {axis.name for axis in stage.op.of_role("reduce")}
    return [c for c in stage.copies if c.to_layer == "registers" and c.along in reduced and last[c.load] == c.along]


def along_k(expression):
    return next(p for p in chosen(expression, "a100", 40) if lies_along_k(p))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["matmul", "matmul of odd sizes", "conv 3x3"])
def test_operands_that_stay_as_they_lie_along_the_reduction_compute_the_definition(name):
    """17 steps of four, in tiles of four of them: the last tile is not whole.  Of odd sizes, elements come one by one
    and are read four at a time."""
    expressions = {
        "matmul": EXPRESSIONS["matmul"],
        "matmul of odd sizes": lambda: rg.ops.matmul(T("A", (141, 69)), T("B", (69, 203))),
        "conv 3x3": lambda: rg.ops.conv2d(T("X", (2, 12, 15, 13)), T("W", (37, 12, 3, 3)), padding=1),
    }
    expression = expressions[name]()
    program = along_k(expression)
    if "odd" in name:
        assert all(copy.vector == 1 and copy.asynchronous for copy in staged(program))
    arrays = small_integers(program)
    got = executed(program, emit(program, device("a100"), "cuda"), arrays)
    assert_values(expression, program, got, arrays, None, 0.0)
    counted = interpret(program, arrays, device("a100")).outputs
    assert_values(expression, program, counted, arrays, None, 0.0)


@pytest.mark.parametrize("name", ["a100", "h200"])
def test_all_copies_and_reads_of_a_large_product_are_of_16_bytes(name):
    product = rg.ops.matmul(T("A", (2048, 2048)), T("B", (2048, 2048)))
    first, *_ = chosen(product, name)
    assert lies_along_k(first) and all(c.vector == 4 for c in first.stages[0].copies)
    assert not any(lies_along_k(p) for p in chosen(product, name, vectors_along_k=False))


def test_rows_kept_along_the_reduction_are_padded_against_conflicts_of_banks():
    """Rows of 8, 16 or 32 elements begin in few banks; four more each make neighbouring rows begin in others."""
    device_ = device("a100")
    (stage,) = along_k(rg.ops.matmul(T("A", (2048, 2048)), T("B", (2048, 2048)))).stages
    (kept,) = (c for c in stage.copies if c.to_layer == "shared" and c.order[-1] == c.along and c.padding)
    bare = replace(stage, copies=tuple(replace(c, padding=0) if c == kept else c for c in stage.copies))
    path = lambda one: {x.name: x.seconds for x in predict_stage(one, device_).limiters}["shared path"]
    assert path(bare) > 1.2 * path(stage)


@pytest.mark.parametrize("name", ["a100", "h200"])
def test_a_large_product_is_staged_past_the_registers(name):
    product = rg.ops.matmul(T("A", (2048, 2048)), T("B", (2048, 2048)))
    assert all(c.asynchronous for c in staged(chosen(product, name)[0]))
    assert not any(c.asynchronous for p in chosen(product, name, asynchronous_copies=False) for c in staged(p))


def test_a_device_without_them_is_given_none():
    product = rg.ops.matmul(T("A", (2048, 2048)), T("B", (2048, 2048)))
    assert not any(c.asynchronous for p in chosen(product, "v100") for c in staged(p))


@pytest.mark.parametrize(("name", "size"), [("v100", 1024), ("a100", 1024), ("mi50", 1024), ("h200", 2048)])
def test_a_product_of_one_more_row_column_and_step_takes_a_quarter_longer_at_most(name, size):
    """No row of it begins at a multiple of 16 bytes, and every tile overhangs."""
    seconds = []
    for extent in (size, size + 1):
        product = rg.ops.matmul(T("A", (extent, extent)), T("B", (extent, extent)))
        seconds.append(construct(canonicalize(product), device(name), top_k=1)[0].seconds)
    assert seconds[1] <= 1.25 * seconds[0]
