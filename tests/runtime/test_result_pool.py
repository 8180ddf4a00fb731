"""Large results come from memory that earlier ones left; nothing that is still seen is given out again."""

import gc

import numpy as np
import pytest

import rollergen as rg
from rollergen.runtime import result_pool
from rollergen.runtime.result_pool import ResultPool
from tests.threads import in_threads

SHAPE, FLOAT = (1024, 512), np.dtype("float32")
BYTES = 1024 * 512 * 4


@pytest.fixture
def pool():
    return ResultPool(most_bytes=3 * BYTES)


def test_memory_of_a_dead_result_is_used_for_the_next(pool):
    first = pool.array(SHAPE, FLOAT)
    address = first.ctypes.data
    del first
    assert pool.free_bytes >= BYTES
    second = pool.array(SHAPE, FLOAT)
    assert second.ctypes.data == address and pool.free_bytes == 0


@pytest.mark.parametrize("seen", [lambda a: a[3:5], lambda a: a.T, lambda a: a.view(np.int32).reshape(-1)[::7], memoryview])
def test_memory_that_a_view_still_sees_is_not_given_out(pool, seen):
    result = pool.array(SHAPE, FLOAT)
    result[...] = 7
    view = seen(result)
    before = np.array(view)
    del result
    gc.collect()
    other = pool.array(SHAPE, FLOAT)
    other[...] = 8
    assert np.array_equal(np.array(view), before)
    del view
    assert pool.free_bytes >= BYTES


def test_views_of_the_owner_that_die_give_nothing_back(pool):
    result = pool.array(SHAPE, FLOAT)
    result[...] = 7
    assert result.base[3:5].T.size  # a view of the owner, which dies at once
    gc.collect()
    assert pool.free_bytes == 0
    pool.array(SHAPE, FLOAT)[...] = 8
    assert (result == 7).all()


def test_two_results_that_live_together_share_nothing(pool):
    arrays = [pool.array(SHAPE, FLOAT) for _ in range(3)]
    assert not any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_the_pool_keeps_no_more_than_its_bound(pool):
    arrays = [pool.array(SHAPE, FLOAT) for _ in range(5)]
    del arrays
    assert 0 < pool.free_bytes <= 3 * BYTES
    huge = pool.array((8 * 1024, 512), FLOAT)
    del huge
    assert pool.free_bytes <= 3 * BYTES
    pool.clear()
    assert pool.free_bytes == 0


@pytest.mark.parametrize("beside", [0, 16, 2048, 4096 + 1008])
def test_a_result_lies_on_a_line_half_a_page_from_its_input(pool, beside):
    address = pool.array(SHAPE, FLOAT, beside).ctypes.data
    assert address % 64 == 0
    assert 2048 - 64 < (address - beside) % 4096 <= 2048


def test_threads_take_and_give_without_harm(pool):
    wrong = []

    def work(seed):
        for turn in range(200):
            mine = pool.array((64, 64), FLOAT)
            mine[...] = seed * 1000 + turn
            if not (mine == seed * 1000 + turn).all():
                wrong.append(seed)

    in_threads(work)
    assert not wrong


def test_calls_without_out_reuse_the_memory_of_results_that_are_gone():
    kernel = rg.build(rg.ops.relu(rg.tensor("X", SHAPE)), "cpu", top_k=1, profile=False)
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    rg.clear_pool()
    first = kernel(x)
    address = first.ctypes.data
    kept = kernel(x)
    del first
    assert abs(kernel(x + 1).ctypes.data - address) < 4096  # the same pages, another place beside the input
    assert np.array_equal(kept, np.maximum(x, 0))
    rg.clear_pool()
    assert result_pool.POOL.free_bytes == 0
