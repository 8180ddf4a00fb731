"""Predicted times: limiters with hand-counted figures, quantisation, batches, bounds."""

import gc
import sys
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.hal.load import load_device
from rollergen.hal.spec import Tlb
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.prediction import predict, predict_stage
from rollergen.program.model.roofline import compulsory_bytes, roofline_seconds
from rollergen.program.rprogram import Loop, Store
from tests.program.batches import CPU, batch, cpu_stage, gpu_stage, random_stages
from tests.program.hand_devices import AVX512, TURING
from tests.programs import ALL, cpu_matmul, gpu_conv, gpu_matmul, relu, row_sum, softmax, transpose

STAGES = random_stages()
DEVICES = {"gpu": TURING, "transpose": TURING}


def limiters(prediction):
    return {limiter.name: limiter.clocks for limiter in prediction.limiters}


@pytest.mark.parametrize("kind", STAGES)
def test_a_batch_gives_each_program_the_time_it_has_alone(kind):
    device = DEVICES.get(kind, AVX512)
    together = predict_stage(batch(STAGES[kind]), device).seconds
    alone = [predict_stage(stage, device).seconds for stage in STAGES[kind]]
    np.testing.assert_allclose(np.broadcast_to(together, len(alone)), alone, rtol=1e-12)


@pytest.mark.parametrize("kind", STAGES)
def test_no_program_beats_the_roofline(kind):
    device = DEVICES.get(kind, AVX512)
    for stage in STAGES[kind]:
        assert predict_stage(stage, device).seconds >= roofline_seconds(stage, device)


@pytest.mark.parametrize("name", ALL)
def test_hand_written_programs_are_no_faster_than_their_device_allows(name):
    program = ALL[name]
    device = load_device(program.device)
    for stage in program.stages:
        predicted = predict_stage(stage, device)
        assert predicted.seconds >= roofline_seconds(stage, device) > 0 or compulsory_bytes(stage) > 0
        assert np.isfinite(predicted.seconds)


def test_a_program_takes_the_sum_of_its_launches():
    program = cpu_matmul(512, 512, 512, kc=256)
    predicted = predict(program, AVX512)
    assert predicted.seconds == sum(stage.seconds for stage in predicted.stages)
    assert [stage.name for stage in predicted.stages] == ["pack_B", "matmul"]


def test_stages_that_run_at_build_are_reported_and_not_counted():
    program = cpu_matmul(512, 512, 512, kc=256)
    packed_once = replace(program, stages=(replace(program.stages[0], once=True), program.stages[1]))
    predicted = predict(packed_once, AVX512)
    assert predicted.seconds == predicted.stages[1].seconds
    assert predicted.stages[0].seconds > 0


def test_limiters_combine_as_a_norm_and_what_nothing_hides_is_added():
    stage = predict(cpu_matmul(512, 512, 512, kc=256), AVX512).stages[1]
    in_turn = sum(x.clocks for x in stage.limiters if x.how == "takes turns")
    overlapping = (sum(x.clocks**2 for x in stage.limiters if x.how == "overlaps") + in_turn**2) ** 0.5
    added = sum(x.clocks for x in stage.limiters if x.how == "adds")
    assert in_turn > 0
    assert stage.seconds == pytest.approx((overlapping + added) / 3.7e9)
    assert stage.binding == max(stage.limiters, key=lambda x: x.clocks).name


@pytest.mark.parametrize("lanes", [16, 32])
def test_a_multiply_add_does_not_cost_the_slot_it_is_issued_in_twice(lanes):
    """With 32 lanes behind each scheduler, slots of multiply-adds and of issue are the same slots."""
    fma = TURING.instruction("fma")
    wide = replace(TURING, instructions=(replace(fma, per_clock=lanes * TURING.schedulers),))
    stage = predict(gpu_matmul(4608, 4096, 1024), wide).stages[0]
    found = limiters(stage)
    twice = found["multiply-adds"] * lanes / 32
    overlapping = (sum(x.clocks**2 for x in stage.limiters if x.how == "overlaps") - twice**2) ** 0.5
    added = sum(x.clocks for x in stage.limiters if x.how == "adds")
    assert stage.seconds * wide.clock_mhz * 1e6 == pytest.approx(overlapping + added)
    if lanes == 32:
        rest = sum(x.clocks**2 for x in stage.limiters if x.how == "overlaps" and x.name != "multiply-adds")
        assert overlapping == pytest.approx(rest**0.5)


def test_multiply_adds_run_at_the_rate_of_the_instruction():
    gpu = predict(gpu_matmul(4608, 4096, 1024), TURING).stages[0]  # 72 * 64 rows of blocks: no unit idles
    assert limiters(gpu)["multiply-adds"] == pytest.approx(4608 * 4096 * 1024 / 72 / 64, rel=1e-9)
    cpu = predict(cpu_matmul(1026, 1024, 1024, kc=256), AVX512).stages[1]
    assert limiters(cpu)["multiply-adds"] == pytest.approx(1026 * 1024 * 1024 / 32, rel=1e-9)


def test_reads_of_a_matmul_step_cost_their_wavefronts():
    """Threads 16 x 16, 2 x 2 quads: per step a warp reads A twice (2 addresses: one wavefront each) and B twice
    (16 addresses of 8 bytes, 2 lanes each: one word pair a bank, one wavefront with merging)."""
    stage = gpu_matmul(72 * 64, 64, 8, padding=0).stages[0]
    path = limiters(predict_stage(stage, TURING))["shared path"]
    wave = 128 / 64
    reads = 8 * 8 * (2 * 1 + 2 * 2) * wave  # 8 warps, 8 steps; B: two phases of 16 distinct addresses
    staging = 8 * 2 * 1 * wave  # A: 64 x 8 floats by 256 threads: 2 loads a thread
    assert path > reads + staging


def test_one_block_more_than_the_units_hold_takes_a_round_more():
    full, more = (predict_stage(gpu_matmul(64 * 72, 64 * b, 512).stages[0], TURING) for b in (1, 2))
    assert (full.blocks, more.blocks) == (72, 144)
    one_more = predict_stage(gpu_matmul(64 * 73, 64, 512).stages[0], TURING)
    assert limiters(one_more)["multiply-adds"] == 2 * limiters(full)["multiply-adds"]
    assert limiters(more)["multiply-adds"] == 2 * limiters(full)["multiply-adds"]


def test_resident_blocks_hide_the_latency_of_each_other():
    stage = predict_stage(gpu_matmul(64 * 72, 64 * 8, 512).stages[0], TURING)
    alone = predict_stage(gpu_matmul(64 * 72, 64, 512).stages[0], TURING)
    assert stage.resident_blocks == 4  # 1024 threads of a unit in blocks of 256
    assert limiters(stage)["latency"] == 2 * limiters(alone)["latency"]  # 8 blocks a unit in 2 rounds


def test_what_is_read_after_a_reduction_costs_its_latency_once():
    """A bias beside staged operands is read once for each output, not at each of the 64 steps."""
    costs = costs_of(TURING)
    assert costs.exposed_direct_clocks > costs.exposed_managed_clocks

    def latency(k, bias):
        return limiters(predict_stage(gpu_matmul(64 * 72, 64, k, bias=bias).stages[0], TURING))["latency"]

    assert 0 < latency(512, bias=True) - latency(512, bias=False) <= costs.exposed_direct_clocks


def test_occupancy_follows_the_scarcest_resource():
    roomy = gpu_stage(8, 8, 2, 2, 8)
    deep = gpu_stage(8, 8, 4, 4, 32)
    assert predict_stage(roomy, TURING).shared_bytes == 8 * (32 + 4) * 4 + 8 * 32 * 4
    assert predict_stage(roomy, TURING).resident_blocks == 8  # 16 x 32 blocks of 64 threads on 72 units
    shared = replace(TURING.layer("shared"), capacity_bytes=17000)
    small = replace(TURING, layers=(TURING.layers[0], shared, *TURING.layers[2:]))
    assert predict_stage(deep, small).resident_blocks == 1


def test_the_system_takes_its_share_of_the_memory_of_each_resident_block():
    stage = gpu_stage(8, 8, 2, 2, 8)
    each = predict_stage(stage, TURING).shared_bytes
    for reserved, resident in ((0, 4), (1, 3)):
        shared = replace(TURING.layer("shared"), capacity_bytes=4 * each, block_reserved_bytes=reserved)
        small = replace(TURING, layers=(TURING.layers[0], shared, *TURING.layers[2:]))
        assert predict_stage(stage, small).resident_blocks == resident


def test_a_block_that_does_not_fit_takes_for_ever():
    huge = gpu_stage(32, 32, 4, 4, 64)
    assert predict_stage(huge, TURING).seconds == np.inf
    too_many = gpu_stage(32, 64, 1, 1, 8)
    assert predict_stage(too_many, TURING).seconds == np.inf


@pytest.mark.parametrize(
    ("rows", "vectors", "unroll", "spilled"),
    [
        (12, 2, 1, 0),
        (14, 2, 1, 0),
        (15, 2, 1, 15 * 2 + 2 + 2 - 32 + 1),
        (1, 24, 1, 0),  # no operand is used twice: none stays live
        (12, 4, 2, 48 + 4 + 2 - 32 + 1 + 12),
    ],
)
def test_live_vectors_beyond_the_registers_spill(rows, vectors, unroll, spilled):
    stage = cpu_stage(rows, vectors, 64, 1, 1)
    if unroll > 1:
        loops = list(stage.loops)
        loops[5:6] = [Loop("k", 64 // unroll, unroll, "serial"), Loop("k", unroll, 1, "unroll")]
        stage = replace(stage, loops=tuple(loops))
    assert predict_stage(stage, AVX512).spilled == spilled


def test_unaligned_rows_cross_lines():
    wide = {n: cpu_stage(2, 4, 64, 1, 1, base=cpu_matmul(500, n, 300, pack=False).stages[0], n=n) for n in (1024, 1021)}
    even, odd = (limiters(predict_stage(stage, AVX512))["load ports"] for stage in wide.values())
    steps = 250 * 16 * 300
    assert even == pytest.approx(steps * max(4 * 64 / 128 + 2 * 4 / 128, 6 / 3))
    assert odd == pytest.approx(steps * (4 * 64 * (1 + 60 / 64) / 128 + 2 * 4 / 128))  # 15 of 16 vectors cross


def test_a_short_reduction_overlaps_the_next_one():
    chains = [limiters(predict_stage(cpu_stage(2, 2, kc, 1, 1), AVX512)).get("latency", 0) for kc in (20, 32, 300)]
    assert chains[0] == 0
    assert 0 < chains[1] < chains[2] < 4 * 300 * 250 * 32


def test_separate_chains_divide_the_latency_of_a_sum():
    one = row_sum(64, 4096).stages[0]
    chained = replace(one, accumulator=replace(one.accumulator, separate=()))
    latency = lambda stage: limiters(predict_stage(stage, AVX512))["latency"]
    assert latency(chained) > 1.9 * latency(one)


def test_streaming_stores_do_not_read_their_lines():
    plain = relu(2**26).stages[0]
    plain = replace(plain, store=Store())
    streaming = replace(plain, store=Store(streaming=True))
    bytes_of = lambda stage: dict(predict_stage(stage, AVX512).traffic_bytes)["l3"]
    assert bytes_of(plain) == pytest.approx(3 * 4 * 2**26, rel=1e-6)  # read, read for ownership, write back
    assert bytes_of(streaming) == pytest.approx(4 * 2**26, rel=1e-6)


def test_carried_partial_sums_are_read_and_written_for_each_block_of_k():
    one, four = (predict_stage(cpu_stage(8, 2, kc, 1, 1), AVX512) for kc in (300, 75))
    clocks = lambda p: limiters(p)["tiles"]
    assert clocks(four) > 3 * clocks(one)


def test_a_kept_row_is_read_once():
    program = softmax(1000, 1024, shape="gpu")
    kept = predict_stage(program.stages[0], TURING)
    again = predict_stage(replace(program.stages[0], kept_rows=()), TURING)
    paths = [limiters(p)["shared path"] for p in (kept, again)]
    blocks = -(-1000 // TURING.units)
    assert paths[1] - paths[0] == blocks * 2 * 1024 * 4 / 64  # two more reads of each row, 64 bytes a clock
    dram = dict(kept.traffic_bytes)["dram"]
    assert dram == pytest.approx(2 * 1000 * 1024 * 4, rel=0.01)


def test_a_transpose_through_a_padded_tile_has_no_bank_conflicts():
    program = transpose(2048, 2048).stages[0]
    conflicting = replace(program, copies=(replace(program.copies[0], padding=0),))
    paths = [limiters(predict_stage(stage, TURING))["shared path"] for stage in (program, conflicting)]
    assert paths[1] > 5 * paths[0]


def test_swizzled_rows_spread_over_the_banks_like_padded_ones():
    padded = transpose(2048, 2048).stages[0]
    swizzled = replace(padded, copies=(replace(padded.copies[0], padding=0, swizzle=32),))
    paths = [limiters(predict_stage(stage, TURING))["shared path"] for stage in (padded, swizzled)]
    assert paths[0] == paths[1]


def test_threads_that_fill_runs_along_rows_meet_on_the_same_banks():
    """A tile of 32 x 32 by 256 threads: each four words of a column (neighbours beside it), or four of a row: then
    lanes eight apart lie in one bank, in the tile and in the tensor, and each access takes four wavefronts for one."""
    plain = transpose(2048, 2048).stages[0]
    (copy,) = plain.copies

    def path(runs):
        stage = replace(plain, copies=(replace(copy, padding=0, runs=runs),))
        return limiters(predict_stage(stage, TURING))["shared path"]

    assert path((1, 1)) == path(()) == path((4, 1))
    warps, accesses, more, clocks = 8, 4, 3 + 3, 128 / 64
    assert path((1, 4)) - path(()) == -(-64 * 64 // TURING.units) * warps * accesses * more * clocks


def test_staged_elements_cost_their_divisions_and_each_bound_that_is_tested():
    """Both operands of a convolution divide k at each step (k // 9, k % 9, k % 3); two elements of the image for one
    weight, tested for the bounds of row and column."""
    stage = gpu_conv(9, 16, 16, 16).stages[0]
    assert not stage.guards and len(stage.op.loads()[1].guard) == 2

    def issue(**costs):
        device = replace(TURING, costs=tuple(sorted((dict(TURING.costs) | costs).items())))
        return limiters(predict_stage(stage, device))["issue"]

    plain = issue(guard_instructions=0, decode_instructions=0)
    tested = issue(guard_instructions=1, decode_instructions=0) - plain
    decoded = issue(guard_instructions=0, decode_instructions=1) - plain
    assert tested > 0 and decoded == pytest.approx(tested * (2 + 1) * 3 / (2 * 2))


def test_gathered_convolutions_have_finite_times_on_all_devices():
    for shape in ((3, 20, 20, 16), (16, 14, 14, 32, 2)):
        stage = gpu_conv(*shape).stages[0]
        for name in ("v100", "mi50"):
            assert 0 < predict_stage(stage, load_device(name)).seconds < 1e-3


def test_guarded_accesses_cost_instructions():
    stage = gpu_matmul(4096, 4096, 512).stages[0]
    ragged = gpu_matmul(4095, 4096, 512).stages[0]
    assert limiters(predict_stage(ragged, TURING))["issue"] > limiters(predict_stage(stage, TURING))["issue"]


def test_long_power_of_two_columns_are_walked_at_a_price():
    walks = []
    for n in (1024, 1000):
        base = cpu_matmul(1024, n, 1024, pack=False, kc=256).stages[0]
        stage = cpu_stage(8, 2, 256, 8, 1, base=base, m=1024, n=n, k=1024)
        walks.append(limiters(predict_stage(stage, AVX512)).get("column walks", 0))
    assert walks[0] > 0 == walks[1]


def test_pages_beyond_the_translation_buffers_are_walked():
    base = cpu_matmul(1024, 4096, 4096, pack=False, kc=256).stages[0]
    stage = cpu_stage(8, 2, 256, 8, 1, base=base, m=1024, n=4096, k=4096)
    few = replace(AVX512, tlbs=(Tlb(64, 4096, 2), Tlb(96, 4096, 16)))
    walked = lambda device: limiters(predict_stage(stage, device))["tlb 2"]
    assert walked(few) > walked(AVX512)


def test_warm_caches_hold_what_fits_them():
    stage = cpu_matmul(1024, 1024, 1024, pack=False, kc=256).stages[0]
    cold = replace(AVX512, costs=tuple((n, v) for n, v in AVX512.costs if n != "warm_cache"))
    dram = lambda device: dict(predict_stage(stage, device).traffic_bytes)["dram"]
    assert dram(AVX512) == 0
    assert dram(cold) == pytest.approx(3 * 4 * 2**20 + 4 * 2**20, rel=0.05)  # A, B and C in, C out
    half = replace(AVX512, costs=tuple((n, 0.5 if n == "warm_cache" else v) for n, v in AVX512.costs))
    assert dram(half) == pytest.approx(dram(cold) / 2)


def test_the_wave_of_a_swizzled_grid_moves_less_than_a_row_of_blocks():
    stage = gpu_matmul(4096, 4096, 4096).stages[0]
    linear = replace(stage, block_order=replace(stage.block_order, group_rows=0))
    swizzled = replace(stage, block_order=replace(stage.block_order, group_rows=16))
    dram = lambda s: dict(predict_stage(s, TURING).traffic_bytes)["dram"]
    assert dram(swizzled) < dram(linear)


def test_a_cost_that_a_spec_lacks_is_nothing_and_a_misspelled_one_is_refused():
    assert costs_of(TURING).reorder_window == 0
    with pytest.raises(AttributeError, match="reordering is no cost of the model"):
        _ = Costs({}).reordering


def test_a_batch_is_scored_without_a_loop_over_its_programs():
    """As many calls of Python functions for 20,000 programs as for a hundredth of them."""
    stages = STAGES["gpu"]

    def calls(count):
        many, events = batch([stages[n % len(stages)] for n in range(count)]), []
        predict_stage(many, TURING)
        gc.disable()  # whose callbacks of others would be counted
        sys.setprofile(lambda frame, event, argument: events.append(event))
        try:
            predict_stage(many, TURING)
        finally:
            sys.setprofile(None)
            gc.enable()
        return events.count("call")

    assert calls(20_000) == calls(200) > 0


def test_binding_of_a_batch_names_each_programs_limiter():
    together = predict_stage(batch(STAGES["cpu"]), AVX512)
    alone = [predict_stage(stage, AVX512).binding for stage in STAGES["cpu"]]
    assert list(together.binding) == alone


def test_flops_are_those_of_the_definition():
    assert predict_stage(CPU, AVX512).flops == 2 * 500 * 1000 * 300
    assert predict_stage(relu(1000).stages[0], AVX512).flops == 1000


def test_a_cache_as_slow_as_memory_is_no_nearer():
    """A row times a matrix of 16 MB, walked 64 rows at once: prefetchers follow eight of a matrix that is far."""
    base = cpu_matmul(1, 2048, 2048, pack=False, kc=64).stages[0]
    stage = cpu_stage(1, 4, 64, 1, 32, base=base, m=1, n=2048, k=2048)
    known = replace(AVX512, costs=(*AVX512.costs, ("walk_far_rows", 8)))
    memory = replace(known.backing, bytes_per_clock=known.layer("l3").bytes_per_clock)
    slow = replace(known, layers=(*known.layers[:-1], memory))
    walks = [limiters(predict_stage(stage, device)).get("column walks", 0) for device in (known, slow)]
    assert walks[1] > walks[0]


def test_loads_that_together_read_lines_in_a_row_walk_no_columns():
    """Panels of 16 columns whose groups are four lines long, each of them a load: all four, or every other one."""
    known = replace(AVX512, costs=(*AVX512.costs, ("walk_far_rows", 8)))
    assert _walk_clocks(range(4), known) == 0 < _walk_clocks(range(0, 4, 2), known)


def test_loads_of_planes_far_apart_fill_no_gaps_of_each_other():
    known = replace(AVX512, costs=(*AVX512.costs, ("walk_far_rows", 8)))
    assert _walk_clocks(range(4), known, apart=True) > 0


def _walk_clocks(words, device, apart=False):
    """Clocks of column walks in the program chosen for the sum of these words of each group, which lie in rows of 64
    numbers, or ``apart``: each in a plane of its own."""
    w = rg.tensor("w", (4, 512, 512, 64) if apart else (512, 512, 4, 16))
    x, g = rg.tensor("x", (512,)), rg.reduce_axis("g", 512)
    of = lambda n, word: w[word, n // 16, g, n % 16] if apart else w[n // 16, g, word, n % 16]
    term = lambda n: reduce(add, [of(n, word) for word in words]) * x[g]
    expression = rg.compute((8192,), lambda n: rg.sum(term(n), axis=g))
    first = construct(planned(expression, device, BuildOptions()), device, BuildOptions())[0]
    return limiters(predict_stage(first.program.stages[-1], device)).get("column walks", 0)
