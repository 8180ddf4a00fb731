"""Nests that construction does not make and the rules allow: each means one thing, and that is written."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rollergen.emit import emit
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Load, Partial, named_combiner
from rollergen.program.check import check
from rollergen.program.rprogram import Accumulator, Copy, Loop
from tests import programs
from tests.lower.builders import ix, program_of
from tests.lower.devices import DEVICES
from tests.lower.harness import difference

F32 = "float32"


def row_sums(rows, columns, loops, at_loop, carry, **decisions):
    """``S[i] = sum over k of X[i, k], plus D[i]``: what is added to the last pass only shows an earlier one."""
    x, d = Load(Buffer("X", (rows, columns)), (ix("i"), ix("k"))), Load(Buffer("D", (rows,)), (ix("i"),))
    op = TensorOp(
        Buffer("S", (rows,), kind="output"), (Axis("i", rows), Axis("k", columns, "reduce")), (ix("i"),),
        Binary("add", Partial("r", F32), d, F32), (Reduction("r", named_combiner("sum", F32), ("k",), (x,)),),
    )  # fmt: skip
    program = program_of("cpu", op, loops, Accumulator(at_loop, F32, carry=carry), **decisions)
    check(program)
    return program


@pytest.mark.every(11)
@pytest.mark.parametrize("columns", [1, 4, 9, 11, 12])
@pytest.mark.parametrize(
    "digits",
    [
        ((3, 4, "unroll"), (4, 1, "serial")),  # the unrolled digit may reach the end before its last iteration
        ((4, 1, "serial"), (3, 4, "unroll")),
        ((4, 1, "serial"), (3, 4, "serial")),  # digits out of order: the point furthest along is not the last one
        ((2, 2, "serial"), (2, 1, "unroll"), (3, 4, "serial")),
        ((3, 4, "serial"), (2, 1, "unroll"), (2, 2, "serial")),
    ],
)
def test_a_result_is_finished_on_the_last_visit_in_any_order_of_digits(digits, columns):
    loops = [Loop("k", extent, stride, kind) for extent, stride, kind in digits]
    loops = [*loops, Loop("i", 5, 1, "serial")]
    overhangs = any(kind == "unroll" and columns % (extent * stride) for extent, stride, kind in digits)
    guards = (("k", "mask"),) if overhangs else ()
    assert difference(row_sums(5, columns, loops, len(digits), carry=True, guards=guards)) is None


@pytest.mark.parametrize("columns", [1, 4, 9, 12])
def test_a_result_is_finished_on_the_last_visit_where_the_loops_outside_are_not_the_leading_ones(columns):
    loops = [Loop("k", 2, 2, "serial"), Loop("k", 3, 4, "serial"), Loop("i", 5, 1, "serial"), Loop("k", 2, 1, "serial")]
    assert difference(row_sums(5, columns, loops, 2, carry=True)) is None
    loops[0:3] = [loops[0], loops[2], loops[1]]
    assert difference(row_sums(5, columns, loops, 1, carry=True)) is None


@pytest.mark.parametrize("along", ["k", "j"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_swizzled_tile_is_filled_along_any_axis(along, depth):
    program = programs.gpu_matmul(64, 64, 40, swizzle=4, padding=0)
    a, b, *fragments = program.stages[0].copies
    assert b.order[-1] == "j"
    turned = replace(b, along=along, vector=4 if along == "j" else 1, swizzle=4, depth=depth)
    a = replace(a, depth=depth)
    stage = replace(program.stages[0], copies=(a, turned, *(replace(f, vector=1) for f in fragments)))
    assert difference(replace(program, stages=(stage,))) is None


@pytest.mark.every(7)
@pytest.mark.parametrize("runs", [((8, 1), (1, 4)), ((2, 8), (8, 16)), ((1, 2), (4, 64))])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_tile_is_filled_run_by_run(runs, depth):
    """Runs of less than a round of the threads, of exactly one, and of more; ragged sizes."""
    program = programs.gpu_matmul(70, 100, 37)
    a, b, *fragments = program.stages[0].copies
    filled = [replace(copy, runs=own, depth=depth) for copy, own in zip((a, b), runs, strict=True)]
    stage = replace(program.stages[0], copies=(*filled, *fragments))
    check(replace(program, stages=(stage,)))
    assert difference(replace(program, stages=(stage,))) is None


@pytest.mark.parametrize(("swizzle", "vector"), [(2, 1), (4, 4)])
def test_a_swizzled_tile_is_read_along_lanes(swizzle, vector):
    """Y[j, i] = X[i, j] by way of a tile in local memory whose columns are read four at a time."""
    x = Load(Buffer("X", (32, 32)), (ix("i"), ix("j")))
    op = TensorOp(Buffer("Y", (32, 32), kind="output"), (Axis("j", 32), Axis("i", 32)), (ix("j"), ix("i")), x)
    loops = (Loop("j", 1, 32, "grid"), Loop("j", 32, 1, "thread"), Loop("i", 8, 4, "serial"), Loop("i", 4, 1, "lane"))
    for order in (("i", "j"), ("j", "i")):
        copies = (Copy(0, "dram", "shared", 2, order, "j", vector, swizzle=swizzle),)
        program = program_of("v100", op, loops, Accumulator(3, F32), copies=copies)
        check(program)
        assert difference(program) is None


def test_a_vector_is_moved_on_from_a_swizzled_tile():
    program = programs.gpu_matmul(64, 64, 40, swizzle=4, padding=0)
    a, b, fragment, other = program.stages[0].copies
    copies = (a, replace(b, vector=4, swizzle=4), fragment, replace(other, vector=2))
    program = replace(program, stages=(replace(program.stages[0], copies=copies),))
    assert difference(program) is None
    text = emit(program, DEVICES["v100"], "cuda").text
    written, read = (re.findall(rf"\*\({kind} \*\)\(B_shared", text) for kind in ("float4", "float2"))
    assert written and read and "_lanes" not in text and "store_float4" not in text  # each as one aligned access


def test_neighbours_of_two_vectors_of_a_swizzled_tile_are_read_one_by_one():
    program = programs.gpu_matmul(64, 64, 40, swizzle=4, padding=0)
    a, b, fragment, other = program.stages[0].copies
    copies = (a, replace(b, vector=1, swizzle=4), fragment, replace(other, vector=2))
    program = replace(program, stages=(replace(program.stages[0], copies=copies),))
    assert difference(program) is None
    assert "b_lanes" in emit(program, DEVICES["v100"], "cuda").text


def test_a_bound_that_is_a_choice_stands_in_parentheses():
    """``k < a < b ? a : b`` would never end."""
    loops = (Loop("i", 3, 2, "unroll"), Loop("i", 2, 1, "serial"), Loop("k", 4, 1, "serial"))
    program = row_sums(5, 4, loops, 1, carry=False, guards=(("i", "mask"),))
    heads = [line.strip() for line in emit(program, DEVICES["cpu"]).text.splitlines() if "?" in line and "for (" in line]
    assert heads
    assert all("< (" in head for head in heads)
    assert difference(program) is None


def test_threads_that_share_a_sum_meet_equally_often_where_their_axes_end_at_different_places():
    """Threads of j have one or two tiles each; all of them take part in every tree."""
    program = programs.gpu_matmul(6, 5, 16)
    loops = (
        Loop("j", 3, 1, "thread"), Loop("k", 4, 2, "thread"), Loop("k", 2, 8, "serial"), Loop("i", 6, 1, "serial"),
        Loop("j", 2, 3, "serial"), Loop("k", 2, 1, "unroll"),
    )  # fmt: skip
    op = program.stages[0].op
    shared = program_of("v100", op, loops, Accumulator(2, F32, combine="tree"), guards=(("j", "mask"),))
    check(shared)
    assert difference(shared) is None
    heads = [line for line in emit(shared, DEVICES["v100"]).text.split("barrier(")[0].splitlines() if "j1 <" in line]
    assert heads and all("j0" not in line.split(";")[1] for line in heads[-1:])
