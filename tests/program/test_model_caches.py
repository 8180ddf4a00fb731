"""Footprints, sets and reuse in caches against hand counts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from benches.operators_beside import nhwc
from rollergen.emit import emit
from rollergen.expr.index import Index
from rollergen.expr.values import Buffer
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.model import predict_stage
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import Operand, facts_of
from rollergen.program.model.indices import alignment_of, count_of, range_of
from rollergen.program.model.limiters.bandwidth import is_one_with_tiles
from rollergen.program.model.memory import (
    Cache,
    Footprint,
    Stream,
    cache_of,
    footprint,
    sets_reached,
    stride_sets,
    survival,
)
from rollergen.program.model.nest import nest_of, waves_of
from rollergen.program.model.price import worked
from rollergen.program.model.reuse import ReuseBySize
from rollergen.program.model.work import work_of
from rollergen.program.windows import overlaps
from tests.matrices import matmul, planned
from tests.program.batches import batch, random_stages
from tests.program.hand_devices import AVX512, TURING
from tests.programs import cpu_matmul, gpu_conv

ix = Index.axis
COSTS = Costs({"keep_below": 0.6, "keep_above": 2.5})


def operand(rows, columns):
    return Operand.of(Buffer("X", (rows, columns)), (ix("i"), ix("j")), frozenset("ij"))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from([16, 32, 48, 100, 128, 1024]))
def test_tiles_on_a_boundary_touch_the_lines_of_their_addresses(rows, lines, columns):
    width = min(16 * lines, columns)
    tile = footprint(operand(64, columns), {"i": rows, "j": width}, 64)
    touched = {(i * columns + j) * 4 // 64 for i in range(rows) for j in range(width)}
    if columns % 16 == 0:
        assert tile.lines == len(touched)
    else:  # rows start anywhere in a line: the mean over the starts, never below the bytes
        assert width * rows * 4 / 64 <= tile.lines <= len(touched) + rows


def test_rows_that_fill_the_tensor_are_one_segment():
    tile = footprint(operand(64, 32), {"i": 10, "j": 32}, 64)
    assert (tile.rows, tile.segment) == (1, 10 * 32 * 4)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 80), st.sampled_from([1, 2, 4]), st.sampled_from([16, 64, 256, 1024, 2048, 4096]))
def test_sets_of_power_of_two_rows_are_those_of_the_addresses(rows, lines, columns):
    tile = footprint(operand(4096, columns), {"i": rows, "j": min(16 * lines, columns)}, 64)
    used = {(i * columns + j) * 4 // 64 % 64 for i in range(rows) for j in range(0, min(16 * lines, columns), 16)}
    assert sets_reached(tile, 64, 64) == len(used)


def test_power_of_two_strides_begin_in_few_sets():
    assert stride_sets(4096, 64, 64) == 1
    assert stride_sets(512, 64, 64) == 8
    assert stride_sets(997 * 4, 64, 64) == 64


def test_lines_survive_until_their_set_is_full():
    assert survival(0.5, COSTS) == 1
    assert survival(3.0, COSTS) == 0
    assert survival(1.55, COSTS) == pytest.approx(0.5)
    assert survival(np.array([0.5, 1.55, 3.0]), COSTS).tolist() == pytest.approx([1, 0.5, 0])


def reuse_of(stage, streams, line=64):
    nest = nest_of(stage, facts_of(stage.op), AVX512)
    return ReuseBySize(nest, waves_of(nest, AVX512, 1), streams(nest)).of_line(line)


def test_without_a_cache_every_visit_fetches_its_tile_again():
    stage = cpu_matmul(48, 128, 32, pack=False, kc=32).stages[0]
    streams = lambda nest: tuple(Stream(o, n, len(nest.loops)) for n, o in enumerate(nest.facts.loads))
    a, b = (lines * stage.blocks for lines in reuse_of(stage, streams).fetched(None, COSTS))
    steps = 48 // 6 * (128 // 32) * 32
    assert a == steps * 6  # one line for each of six rows
    assert b == steps * 2  # two vectors of a line


def test_a_large_cache_fetches_every_line_once():
    stage = cpu_matmul(48, 128, 32, pack=False, kc=32).stages[0]
    streams = lambda nest: tuple(Stream(o, n, len(nest.loops)) for n, o in enumerate(nest.facts.loads))
    large = Cache(64, 1, 10**9, False)
    a, b = (lines * stage.blocks for lines in reuse_of(stage, streams).fetched(large, COSTS))
    assert (a, b) == (48 * 32 * 4 / 64, 32 * 128 * 4 / 64)


def test_a_cache_shared_by_all_sees_the_blocks_of_a_wave_together():
    stage = cpu_matmul(48, 128, 32, pack=False, kc=32).stages[0]
    streams = lambda nest: tuple(Stream(o, n, len(nest.loops)) for n, o in enumerate(nest.facts.loads))
    large = Cache(64, 1, 10**9, True)
    a, b = (lines * stage.blocks for lines in reuse_of(stage, streams).fetched(large, COSTS))
    assert (a, b) == (48 * 32 * 4 / 64, 32 * 128 * 4 / 64)


def own_tiles(m, cache):
    """(lines of the tensor that fills a tile of 16 x 64 floats, of its being written, of its being read) by one item."""
    stage = cpu_matmul(m, 64, 64, pack=False, own=True).stages[0]
    nest = nest_of(stage, facts_of(stage.op), AVX512)
    work = work_of(nest, AVX512, COSTS)
    found = ReuseBySize(nest, waves_of(nest, AVX512, 1), work.streams).of_line(64).fetched(cache, COSTS)
    return [lines for stream, lines in zip(work.streams, found, strict=True) if stream.fills or stream.array >= 0]


def test_a_tile_of_a_threads_own_stays_where_it_is():
    tile, steps = 16 * 64 * 4 / 64, 4
    assert own_tiles(24, Cache(64, 1, 10**9, False)) == [steps * tile, tile, tile]
    filled, written, read = own_tiles(24, None)  # four tiles of rows read it in each of the steps
    assert (filled, written, read) == (steps * tile, steps * tile, steps * 4 * tile)


def test_what_passes_a_tile_of_a_threads_own_does_not_drive_it_out():
    """A is walked beside the tile, which is in use all the time: only what fills it comes between two passes."""
    tile = 16 * 64 * 4 / 64
    small = Cache(64, 1, 4 * tile, False)
    assert own_tiles(24, small)[1] == tile
    assert own_tiles(24, Cache(64, 1, tile / 2, False))[1] == 4 * tile


STAGES = random_stages(count=12)
CACHES = {"none": None, "sets": Cache(64, 64, 8, False), "shared": Cache(64, 1, 500, True)}


def reuse(kind, stage):
    device = AVX512 if kind in ("cpu", "own tiles", "softmax", "relu") else TURING
    nest = nest_of(stage, facts_of(stage.op, stage.kept_rows), device)
    return ReuseBySize(nest, waves_of(nest, device, 1), work_of(nest, device, costs_of(device)).streams).of_line(64)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", STAGES)
def test_a_batch_fetches_what_each_of_its_programs_fetches(kind, cache):
    together = reuse(kind, batch(STAGES[kind])).fetched(CACHES[cache], COSTS)
    alone = [reuse(kind, stage).fetched(CACHES[cache], COSTS) for stage in STAGES[kind]]
    for lines, own in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(np.broadcast_to(lines, len(own)), np.ravel(own), rtol=1e-12)


@pytest.mark.parametrize("kind", STAGES)
def test_a_batch_has_the_columns_of_each_of_its_programs(kind):
    together = reuse(kind, batch(STAGES[kind]))
    alone = [reuse(kind, stage) for stage in STAGES[kind]]
    for i in range(len(together.streams)):
        for n, one in enumerate(alone):
            assert rows_walked(one, i, 0) == rows_walked(together, i, n)


def rows_walked(reuse, i, n):
    """Of stream i in program n; a batch has a row, too, for a loop that has one iteration in this program alone."""
    return {float(f.rows) for found in reuse.columns(i) for f in rows_of(found, n)} - {1.0}


def rows_of(found, n):
    """The rows of a stacked footprint, of program n."""
    fields = np.broadcast_arrays(*found)
    return [Footprint(*(field[r][n % len(field[r])] for field in fields)) for r in range(len(fields[0]))]


def test_ranges_and_counts_of_a_window():
    window = ix("p") % 56 + ix("k") % 3
    assert range_of(window, {"p": 16, "k": 9}) == 16 + 2
    assert count_of(ix("p") // 56 * 2, {"p": 112}) == 2
    assert count_of(ix("i") * 4 + ix("j") * 1, {"i": 3, "j": 2}) == 3 * 2


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(2, 9))
def test_alignment_divides_every_value(i_step, j_step, divisor):
    index = ix("i") * 6 + (ix("j") % divisor) * 4
    step = alignment_of(index, {"i": i_step, "j": j_step})
    values = [index.evaluate({"i": a * i_step, "j": b * j_step}) for a in range(9) for b in range(9)]
    assert all(v % step == 0 for v in values) and math.gcd(*values) % step == 0


def test_a_gathered_operand_never_counts_fewer_elements_than_its_tile_reaches():
    stage = gpu_conv().stages[0]
    image = facts_of(stage.op).loads[1]
    spans = {"p": 32, "k": 4, "f": 16}
    reached = set()
    for p in range(32):
        for k in range(4):
            at = {"p": p, "k": k}
            if all(bound.evaluate(at) for bound in image.guard):
                reached.add(image.offset.evaluate(at))
    counted = math.prod(count_of(index, spans) for index in image.indices)
    assert len(reached) <= counted


def test_staged_tiles_leave_less_of_a_memory_that_is_one_with_the_cache():
    l1 = load_device("h100").layer("l1")
    whole, half, apart = cache_of(l1, 2), cache_of(l1, 2, 64 << 10), cache_of(load_device("mi50").layer("l1"), 2)
    assert whole.ways * whole.line == l1.capacity_bytes / 2 and half.ways * half.line == l1.capacity_bytes / 2 - (64 << 10)
    assert is_one_with_tiles(load_device("h100"), l1) and not is_one_with_tiles(load_device("mi50"), load_device("mi50").layer("l1"))
    assert apart.ways * apart.line == 8192


def test_what_a_window_reads_again_is_copied_through_the_units_cache_and_all_else_past_it():
    device = load_device("h100")
    found = rg.construct(nhwc(8, 28, 28, 64, 64, 3, 1, "float16"), device, 4)
    one = next(one for one in found if any(copy.asynchronous for copy in one.stages[0].copies))
    (stage,) = one.stages
    nest, work = worked(stage, device)
    past = {nest.facts.loads[s.load].buffer.name: s.past for s in work.streams if s.load >= 0}
    image, weights = (buffer.name for buffer in one.inputs)
    assert past[image] == 0 < past[weights]
    text = emit(one, device, "cuda").text
    assert "copy_async_cached_16(" in text and "copy_async_16(" in text


@pytest.mark.parametrize(
    "index, found",
    [(ix("i") + ix("r"), True), (2 * ix("i") + ix("r"), True), (4 * ix("i") + ix("r"), False), (ix("i"), False),
     (3 * ix("i") + ix("r"), False), ((ix("i") // 4) % 7 + ix("r"), True), ((ix("i") // 4) * 8 + ix("i") % 4, False)],
)  # fmt: skip
def test_windows_are_told_from_rows_that_lie_one_behind_the_other(index, found):
    assert overlaps((index,), {"i": 28, "r": 3}) == found


def test_lines_from_memory_take_the_shared_caches_rate_twice():
    """Blocks in groups of rows read less from memory, and as much from the cache."""
    device, shared = load_device("h200"), load_device("h200").layer("l2")
    per_clock = shared.bandwidth_gb_s * 1e3 / device.clock_mhz
    plan = MatrixPlan("wgmma", 1, 32, 2, 1, 4, 4, boxes=True, producer=True)
    side, clocks, read = 8192, [], []
    for group_rows in (0, 16):
        made = planned(matmul(side, side, side), device, replace(plan, group_rows=group_rows))
        stage = predict_stage(made.stages[0], device)
        clocks.append(next(one.clocks for one in stage.limiters if one.name == "l2 bandwidth"))
        read.append(dict(stage.traffic_bytes))
    assert read[0]["l2"] == read[1]["l2"] and read[0]["dram"] > 1.5 * read[1]["dram"]
    results = 2 * side * side  # bytes that are written, which no line is read for
    for took, bytes_ in zip(clocks, read, strict=True):
        assert took * per_clock == pytest.approx(bytes_["l2"] + bytes_["dram"] - results)
