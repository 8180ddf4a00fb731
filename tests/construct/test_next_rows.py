"""Few rows times a matrix: each pass over few of its rows asks for those of the next one."""

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.explain.explanation import decisions
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.program.loops import next_rows
from rollergen.program.model import predict_stage
from rollergen.program.rprogram import GRID, SERIAL, UNROLL, Loop
from tests.agreement.readers import assert_traffic, interpreted, run_opencl, small_integers
from tests.program import hand_devices

OPTIONS = BuildOptions()
AVX512 = replace(
    hand_devices.AVX512,
    layers=tuple(replace(one, capacity_bytes=min(one.capacity_bytes, 32 << 20)) for one in hand_devices.AVX512.layers[:-1])
    + hand_devices.AVX512.layers[-1:],
    costs=tuple({**dict(hand_devices.AVX512.costs), "tile_clocks": 3, "walk_far_rows": 8}.items()),
)
"""With a last cache of 32 MB, and tiles that cost as little as those of the CPU's spec."""


def product(m, k, n, dtype="float32"):
    return canonicalize(rg.ops.matmul(rg.tensor("A", (m, k), dtype), rg.tensor("B", (k, n), dtype)))


def best(graph, options=OPTIONS):
    return construct(graph, AVX512, options, top_k=1)[0].program


def stage_of(program):
    return program.stages[-1]


def asks(stage):
    return stage.prefetch >= 0 and bool(next_rows(stage))


def small(m, k, n):
    """A program for a small matrix with the loops of one for a large one: passes of eight rows, a line of each at once,
    the last panel guarded where n is no multiple of a line."""
    large, graph = stage_of(best(product(m, 4096, 4096 + n % 16))), product(m, k, n)
    (op,) = graph.tensor_ops
    extents = {("k", large.prefetch): k // 8, ("j", large.prefetch + 1): -(-n // 16)}
    loops = [replace(loop, extent=extents.get((loop.axis, p), loop.extent)) for p, loop in enumerate(large.loops)]
    program = best(graph)
    return replace(program, stages=(replace(large, op=op, loops=tuple(loops)),))


def plain(program):
    return replace(program, stages=(*program.stages[:-1], replace(stage_of(program), prefetch=-1)))


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_rows_of_a_matrix_beyond_the_caches_are_asked_for(rows):
    stage = stage_of(best(product(rows, 4096, 4096)))
    assert asks(stage) and [load.buffer.name for load in next_rows(stage)] == ["B"]
    assert stage.loops[stage.prefetch].stride == 8
    assert "the next rows are asked for while some are read" in decisions(stage, AVX512)
    without = BuildOptions(shapes=replace(OPTIONS.shapes, prefetch=False))
    assert stage_of(best(product(rows, 4096, 4096), without)).prefetch == -1


def test_steps_of_a_vector_are_written_out_and_those_of_several_rows_are_not():
    kinds = [{loop.kind for loop in stage_of(best(product(m, 4096, 4096))).loops[2:] if loop.axis == "k"} for m in (1, 4)]
    assert kinds == [{UNROLL}, {SERIAL}]


def test_each_row_is_read_by_single_lines():
    for dtype, line in (("float32", 16), ("int8", 64)):
        stage = stage_of(best(product(1, 16384, 8192, dtype)))
        assert asks(stage)
        assert np.prod([loop.extent for loop in stage.loops if loop.axis == "j" and loop.kind != SERIAL]) == line


@pytest.mark.parametrize(("k", "n"), [(1024, 1024), (1024, 50257), (50000, 256)])
def test_no_matrix_in_the_caches_no_rows_too_long_for_them_and_none_in_one_piece_are_asked_for(k, n):
    assert not asks(stage_of(best(product(1, k, n))))


def test_columns_that_are_added_up_in_few_passes_ask_for_the_next_rows_by_pages():
    stage = stage_of(best(canonicalize(rg.ops.sum(rg.tensor("x", (256, 65536)), 0))))
    assert asks(stage) and stage.loops[stage.prefetch].stride == 8  # in 32 passes
    columns = np.prod([loop.extent for loop in stage.loops if loop.axis != "k" and loop.kind != GRID])
    assert columns * 4 >= 8192


def test_sums_of_so_few_rows_that_the_first_pass_matters_ask_for_none():
    assert not asks(stage_of(best(canonicalize(rg.ops.sum(rg.tensor("x", (64, 262144)), 0)))))


def test_a_matrix_whose_rows_lie_along_the_reduction_is_read_as_before():
    linear = canonicalize(rg.ops.linear(rg.tensor("A", (1, 4096)), rg.tensor("B", (4096, 4096))))
    assert all(not asks(stage_of(one.program)) for one in construct(linear, AVX512, OPTIONS, top_k=10))


def test_what_is_asked_for_lies_eight_rows_on_and_goes_to_the_second_cache():
    program = small(1, 32, 48)
    check(program, AVX512)
    asked = re.findall(r"__builtin_prefetch\(.*\(B_at \+ j0\*16 \+ (\d+)\), 0, (\d)\);", emit(program, AVX512, "opencl").text)
    assert asked == [(str((8 + row) * 48), "2") for row in range(8)]


@pytest.mark.parametrize(("m", "n"), [(1, 48), (1, 57), (4, 48), (4, 57)])
def test_readers_agree_and_move_what_they_did_without(m, n):
    program = small(m, 32, n)
    arrays = small_integers(program)
    (one, _), (other, _) = (interpreted(some, arrays, AVX512, most_blocks=50) for some in (program, plain(program)))
    assert one.traffic == other.traffic
    assert_traffic(program, one.traffic, AVX512, {})
    (given,) = run_opencl(program, arrays, AVX512).values()
    a, b = (arrays[name].astype(np.float64) for name in "AB")
    assert np.array_equal(given.reshape(-1), (a.reshape(m, 32) @ b).reshape(-1))
    assert all(np.array_equal(x, y) for x, y in zip(one.outputs.values(), other.outputs.values(), strict=True))


def test_memory_and_the_last_cache_take_no_turns_where_rows_are_asked_for():
    program = best(product(1, 4096, 4096))
    asking, without = (predict_stage(stage_of(one), AVX512) for one in (program, plain(program)))
    clocks = lambda prediction: {one.name: one.clocks for one in prediction.limiters}
    caches = [layer.name for layer in AVX512.layers if layer.scope == "device"]
    memory = [f"{name} bandwidth" for name in caches]
    assert all(clocks(asking)[name] == clocks(without)[name] for name in memory)
    assert asking.seconds < without.seconds and clocks(asking)["issue"] > clocks(without)["issue"]


def test_passes_that_read_rows_again_for_other_tiles_are_refused():
    program = best(product(8, 4096, 4096))
    stage = stage_of(program)
    (at,) = [p for p, loop in enumerate(stage.loops) if loop.axis == "i"]
    tiles = Loop("i", 2, 4, SERIAL)
    loops = (*stage.loops[:2], tiles, *stage.loops[2:at], replace(stage.loops[at], extent=4), *stage.loops[at + 1 :])
    accumulator = replace(stage.accumulator, at_loop=stage.accumulator.at_loop + 1)
    again = replace(stage, loops=loops, accumulator=accumulator)
    check(replace(program, stages=(replace(again, prefetch=-1),)), AVX512)
    with pytest.raises(ProgramError, match="or some along rows of a matrix"):
        check(replace(program, stages=(again,)), AVX512)
