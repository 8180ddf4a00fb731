"""What an access costs depends on the shapes of threads, not on how many loops they are written as."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.model import predict_stage
from rollergen.program.model.lane_rows import known_of, reached
from rollergen.program.rprogram import Loop
from tests.programs import transpose

V100 = load_device("v100")


STAGE = transpose(96, 64).stages[0]


def unstaged(threads):
    """A transpose without a tile, by these thread loops."""
    loops = (*STAGE.loops[:2], *threads, *STAGE.loops[4:])
    at_loop = 2 + len(threads)
    return replace(STAGE, loops=loops, copies=(), accumulator=replace(STAGE.accumulator, at_loop=at_loop))


def path_clocks(stage):
    return {limiter.name: limiter.clocks for limiter in predict_stage(stage, V100).limiters}["shared path"]


ROWS, COLUMNS, ONE = Loop("j", 8, 1, "thread"), Loop("i", 32, 1, "thread"), Loop("j", 1, 8, "thread")


def test_a_loop_of_one_thread_changes_no_service():
    plain = path_clocks(unstaged((ROWS, COLUMNS)))
    assert path_clocks(unstaged((ONE, ROWS, COLUMNS))) == path_clocks(unstaged((ROWS, ONE, COLUMNS))) == plain


def test_the_order_of_the_threads_does():
    # X[i, j] is read by 32 lanes a row of 64 apart, or by 4 times 8 neighbours; Y[j, i] is written the other way.
    assert path_clocks(unstaged((ROWS, COLUMNS))) > 2 * path_clocks(unstaged((COLUMNS, ROWS)))


def test_twice_the_threads_beyond_an_execution_width_take_twice_the_clocks():
    near = (Loop("j", 2, 1, "thread"), Loop("i", 16, 1, "thread"))
    every = unstaged((Loop("j", 4, 2, "thread"), *near))
    assert 2 * path_clocks(every) == path_clocks(unstaged((Loop("j", 8, 2, "thread"), *near)))


def test_what_lanes_reach_is_the_inner_loops_and_as_much_of_the_next_as_fills_a_width():
    assert reached([9, 5, 3], 32) == [3, 5, 3]
    assert reached([4, 64], 32) == [1, 32]
    assert reached([2, 3], 32) == [2, 3]
    several = reached([8, np.array([1, 4, 64])], 32)
    assert [one.tolist() for one in several] == [[8, 8, 1], [1, 4, 32]]


def products(batch, m, n, k):
    A, B = rg.tensor("A", (batch, m, k)), rg.tensor("B", (batch, k, n))
    return construct(canonicalize(rg.ops.batch_matmul(A, B)), V100, top_k=5)


def predicted(programs):
    return [[predict_stage(stage, V100).seconds for stage in one.program.stages] for one in programs]


def test_operators_that_differ_where_lanes_do_not_move_share_what_was_found():
    first, second = products(2, 48, 80, 56), products(3, 48, 80, 56)
    known_of.cache_clear()
    predicted(second)
    alone = known_of.cache_info().currsize
    known_of.cache_clear()
    predicted(first)
    before = known_of.cache_info().currsize
    predicted(second)
    assert known_of.cache_info().currsize - before < alone / 2


@pytest.mark.parametrize("shapes", [[(2, 48, 80, 56), (3, 48, 80, 112), (1, 33, 80, 56), (5, 48, 17, 57)]])
def test_what_was_found_for_one_operator_changes_no_price_of_another(shapes):
    programs = [products(*shape) for shape in shapes]
    alone = []
    for some in programs:
        known_of.cache_clear()
        alone.append(predicted(some))
    assert [predicted(some) for some in programs] == alone
