"""Reductions whose length has no divisors, over tiles: the last one's part is short, all readers agree on every tile."""

import pytest

import rollergen as rg
from rollergen.bsp.assemble import BulkPlan, bulk_stage, with_tile_mappings
from rollergen.bsp.grids import grids, plain_roles
from rollergen.construct.choose import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.splitting import split_reduction
from rollergen.hal.load import load_device
from rollergen.program.rprogram import RProgram
from tests.bulk.test_interpreter import assert_agree

T = rg.tensor


def sums_above_their_row():
    """The result is of the sum and of its place."""
    x, k = T("X", (3, 2053)), rg.reduce_axis("k", 2053)
    return rg.compute((3,), lambda i: rg.maximum(rg.sum(x[i, k], axis=k), rg.cast(2 * i, "float32")))


EXPRESSIONS = {
    "sum": lambda: rg.ops.sum(T("X", (5003,)), axis=0),
    "sums of rows": lambda: rg.ops.sum(T("X", (3, 2053)), axis=1),
    "largest of int8": lambda: rg.ops.amax(T("X", (2053,), "int8"), axis=0),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (1, 61, 4, 5)), T("W", (7, 61, 3, 3)), padding=1),
    "sums above their row": sums_above_their_row,
    "matmul": lambda: rg.ops.matmul(T("A", (2, 5003)), T("B", (5003, 3))),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_first_choice_has_parts_and_agrees_on_every_tile(name):
    expression = EXPRESSIONS[name]()
    one = construct(canonicalize(expression), load_device("ipu"), top_k=1)[0]
    assert "parts" in one.variants[0]
    assert_agree(expression, one.program)


@pytest.mark.parametrize(("m", "n", "k", "parts"), [(5, 7, 331, 9), (4, 3, 97, 10)])
def test_products_in_parts_that_end_early_agree(m, n, k, parts):
    device = load_device("ipu")
    expression = rg.ops.matmul(T("A", (m, k)), T("B", (k, n)), name="C")
    graph = canonicalize(expression)
    first, second = split_reduction(graph.tensor_ops[0], "k", parts, tile=1)
    grid = (("i", 2), ("j", 3), ("k_part", 1))
    stages = (
        bulk_stage(first, BulkPlan(grid, (0, 1)), device, "products"),
        bulk_stage(second, BulkPlan(shares=first.output.name), device, "sums"),
    )
    program = with_tile_mappings(RProgram("ipu", graph.inputs, graph.outputs, stages, (first.output,)))
    assert_agree(expression, program)


@pytest.mark.parametrize("length", [5003, 4096, 1 << 16, 65537])
def test_parts_are_uneven_only_where_too_few_tiles_would_have_equal_ones(length):
    device = load_device("ipu")
    (op,) = canonicalize(rg.ops.sum(T("X", (length,)), axis=0)).tensor_ops
    room = device.layers[1].capacity_bytes // 2
    parts = {grid.parts for grid in grids(op, plain_roles(op), device, room, 400)}
    assert max(parts) > 1
    assert all(length % count == 0 for count in parts) == (length % 2 == 0)
