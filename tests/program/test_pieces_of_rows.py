"""What reading rows in pieces costs that lie apart in memory, and what the last cache holds from one call to the next."""

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.model.prediction import predict_stage
from tests.program.hand_devices import AVX512

KNOWN = replace(AVX512, costs=(*AVX512.costs, ("walk_far_rows", 8), ("walk_piece_clocks", 12)))


def exchanged(*shape):
    """Two axes exchanged, whose rows of the third stay as they are."""
    return canonicalize(rg.ops.permute(rg.tensor("X", shape), (1, 0, 2)))


def walks(*shape, as_read=False):
    """Clocks that no overlap hides for each line read, where rows are taken one by one."""
    (op,) = exchanged(*shape).tensor_ops
    plan = ElementwisePlan(lanes=16, pn=shape[2] // 16, streaming=True, as_read=as_read)
    clocks = {one.name: one.clocks for one in predict_stage(elementwise_stage(op, plan, KNOWN), KNOWN).limiters}
    return clocks.get("column walks", 0) / (op.output.elements * 4 / 64)


def test_pieces_of_rows_from_memory_wait_and_whole_arrays_in_their_order_do_not():
    assert walks(1024, 1024, 64) == pytest.approx(12, rel=0.01)  # 256 MB in pieces of four lines
    assert walks(2048, 2048, 16) == pytest.approx(28, rel=0.01)  # lines alone
    assert walks(64, 64, 16384) == pytest.approx(12 / 16, rel=0.01)  # pieces of 16 pages, which begin anew
    assert walks(1024, 1024, 64, as_read=True) == 0
    assert walks(4, 2**18, 64) == 0  # four rows at once, which prefetchers follow
    assert walks(256, 64, 64) == 0  # 4 MB, which the last cache has kept


def test_rows_beyond_the_caches_are_exchanged_in_the_order_in_which_they_are_read():
    first = construct(exchanged(1024, 512, 64), KNOWN)[0].program.stages[0]
    assert first.store.streaming
    (grid, *_) = first.loops
    assert first.op.loads()[0].indices[0].axes() == {grid.axis}


def test_the_last_cache_loses_what_calls_touch_as_its_own_figures_say():
    """Of 0.75 times the last cache, all is kept where a set's share survives to 0.6 and half is gone at 1.55 times."""
    cache = AVX512.layers[3].capacity_bytes
    graph = canonicalize(rg.ops.relu(rg.tensor("X", (cache * 3 // 4 // 8 // 1024, 1024))))
    stage = elementwise_stage(graph.tensor_ops[0], ElementwisePlan(lanes=16), AVX512)

    def from_memory(*costs):
        device = replace(AVX512, costs=(*AVX512.costs, *costs))
        return dict(predict_stage(stage, device).traffic_bytes)["dram"]

    whole = 3 * cache * 3 / 8  # read, read before it is written, written
    assert from_memory() == pytest.approx(whole * (0.75 - 0.6) / (2.5 - 0.6))
    assert from_memory(("warm_below", 0.5), ("warm_above", 1.0)) == pytest.approx(whole / 2)
    assert from_memory(("warm_below", 0.8), ("warm_above", 1.0)) == 0
