"""The order of blocks follows a wave's footprint, and every way of writing a contraction can be switched off."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.swizzle import group_rows
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.rprogram import GROUP, UNROLL
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.readers import device, small_integers

T = rg.tensor
V100 = device("v100")


@cache
def product(m, n, k):
    return canonicalize(rg.ops.matmul(T("A", (m, k)), T("B", (k, n))))


def chosen(graph, **shapes):
    return construct(graph, V100, rg.BuildOptions(shapes=CodeShapes(**shapes)), top_k=10)


def width(rows, columns, block, at_once, size=4096, **shapes):
    (op,) = product(size, size, size).tensor_ops
    return group_rows(op, rows, columns, block, at_once, V100, AlignmentRules(shapes=CodeShapes(**shapes)))


def test_the_swizzle_makes_the_footprint_of_a_wave_smallest():
    # 160 blocks at once of 32 x 32: a row and a column panel cost the same, so 16 x 10 (26 panels) is least;
    # in the linear order it is 5 x 32 (37), in groups of 8 it is 8 x 20 (28).
    assert width(32, 32, (128, 128), 160) == 16
    # Column panels four times as wide: 16 x 8 (16 + 4 x 8) is as good as 32 x 4 and better than the linear 4 x 32.
    assert width(32, 32, (64, 256), 128) == 16
    # Row panels four times as tall: the linear 4 x 32 (4 x 4 + 32) is as good as 8 x 16.
    assert width(32, 32, (256, 64), 128) == 0


@pytest.mark.parametrize(
    ("rows", "columns", "at_once", "size", "shapes"),
    [
        (1, 32, 160, 4096, {}),
        (32, 1, 160, 4096, {}),
        (4, 4, 160, 4096, {}),  # all blocks run at once, in any order
        (32, 32, 160, 512, {}),  # two operands of 1 MB lie in a cache of 6 MB
        (32, 32, 160, 4096, {"block_order": False}),
    ],
)
def test_no_swizzle_where_none_helps_or_none_is_allowed(rows, columns, at_once, size, shapes):
    assert width(rows, columns, (128, 128), at_once, size, **shapes) == 0


def test_the_model_agrees_that_the_chosen_swizzle_lowers_the_traffic_of_the_backing_store():
    stage = chosen(product(4096, 4096, 4096))[0].program.stages[0]
    traffic = lambda w: dict(
        predict_stage(replace(stage, block_order=replace(stage.block_order, group_rows=w)), V100).traffic_bytes
    )["dram"]
    assert stage.block_order.group_rows > 0
    assert traffic(stage.block_order.group_rows) < traffic(0)
    assert traffic(stage.block_order.group_rows) <= min(traffic(w) for w in (2, 4, 8, 16, 32)) * 1.02


def spatial_unrolled(stage):
    return [x for x in stage.loops if x.kind == UNROLL and stage.op.axis(x.axis).role == "spatial"]


SWITCHED_OFF = {
    "prefetch": lambda stage: all(copy.depth == 1 for copy in stage.copies),
    "wide_accesses": lambda stage: all(copy.vector == 1 for copy in stage.copies) and stage.store.vector == 1,
    "register_tiles": lambda stage: not spatial_unrolled(stage),
    "warp_tiles": lambda stage: not any(loop.kind == GROUP for loop in stage.loops),
    "split_reductions": lambda stage: "split" not in stage.name and stage.op.output.kind == "output",
}


@pytest.mark.parametrize("switch", SWITCHED_OFF)
def test_a_way_of_writing_that_is_switched_off_is_not_used_and_the_programs_stay_correct(switch):
    graph = product(64, 64, 4096)
    used = [all(SWITCHED_OFF[switch](stage) for stage in one.program.stages) for one in chosen(graph)]
    assert not all(used), "what is never used could not be switched off"
    found = chosen(graph, **{switch: False})
    assert all(SWITCHED_OFF[switch](one.program.stages[0]) for one in found)
    program = chosen(product(36, 40, 70), **{switch: False})[0].program
    arrays = small_integers(program)
    got = interpret(program, arrays, V100).outputs[program.outputs[0].name]
    assert np.array_equal(got, arrays["A"] @ arrays["B"])
