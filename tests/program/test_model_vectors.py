"""What vectors of one core cost beside multiply-adds: the model counts what the text does."""

from __future__ import annotations

from dataclasses import replace
from math import log2, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.serial_structures import Packing
from rollergen.construct.space import space
from rollergen.construct.variants import needs_packing, variants
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.turned import turned
from rollergen.hal.load import load_device
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.model import predict_stage
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.limiters.arithmetic import slot_clocks
from rollergen.program.model.moved import moved_of
from rollergen.program.model.nan_tests import nan_tests
from rollergen.program.model.nest import nest_of
from rollergen.program.rprogram import Compute, Loop
from tests.program.hand_devices import AVX512
from tests.program.test_model import limiters
from tests.programs import relu, softmax

CPU = load_device("cpu")
CORE = replace(CPU, execution_width=16)


def fetched(stage, layer, device=AVX512):
    """Bytes read from a layer and written to it."""
    return dict(predict_stage(stage, device).traffic_bytes)[layer]


def cut(elements, each):
    """A map of so many elements in blocks of ``each``."""
    stage = relu(elements).stages[0]
    _, serial, lane = stage.loops
    blocks = Loop("i", -(-elements // each), each, "grid")
    return replace(stage, loops=(blocks, replace(serial, extent=each // 16), lane))


@settings(max_examples=60, deadline=None)
@given(st.integers(1 << 18, 1 << 20), st.sampled_from([1 << 12, 1 << 14, 1 << 16]))
def test_blocks_of_which_the_last_is_cut_fetch_the_lines_of_the_tensor(vectors, each):
    elements = vectors // 16 * 16
    whole, parts = (fetched(one, "l3") for one in (cut(elements, elements), cut(elements, each)))
    assert parts == pytest.approx(whole, rel=1e-9)


def test_a_core_finds_in_its_own_caches_what_fits_there():
    small, large = cut(1 << 12, 1 << 12), cut(1 << 24, 1 << 24)
    assert fetched(small, "l2") == fetched(small, "l3") == 0 < fetched(large, "l3")
    cores = replace(AVX512, units=4)  # the next call's blocks run anywhere
    assert fetched(small, "l3", cores) == (1 << 12) * 4  # read once, stored past the caches


def first_of(expression, device=CORE, count=20):
    form = canonicalize(expression)
    return [one.program for one in construct(form, device, BuildOptions(), count)]


def fills(stage, device):
    """(vectors or elements stored into tiles, slots beside)."""
    nest = nest_of(stage, facts_of(stage.op, stage.kept_rows), device)
    moved = moved_of(nest, device, costs_of(device))
    return sum(one.count for one in moved.accesses if one.role == "fill_write"), moved.slots


@pytest.mark.parametrize("shape", [(64, 48), (70, 50), (793, 133)])
def test_a_square_block_that_is_turned_takes_stores_of_vectors_and_a_shuffle_for_each_halving(shape):
    A = rg.tensor("A", shape)
    programs = first_of(rg.compute(shape[::-1], lambda i, j: A[j, i]))
    turned = 0
    for program in programs:
        (stage,) = program.stages
        text = emit(program, CORE).text
        if not stage.copies:
            continue
        (copy,) = stage.copies
        stored, slots = fills(stage, CORE)
        tile = stage.buffer_shape(copy, block=True)
        turns = "__builtin_shufflevector" in text
        assert turns == copy.turns(tile)
        without = replace(stage, copies=(replace(copy, along=copy.order[-1]),))
        if turns:
            turned += 1
            halvings = copy.vector.bit_length() - 1
            assert slots - fills(without, CORE)[1] == pytest.approx(stored * halvings)
            assert stored == pytest.approx(fills(without, CORE)[0])
            assert prod(tile) % copy.vector**2 == 0
    assert turned


@pytest.mark.parametrize("shape", [(784, 256), (1024, 512)])
def test_the_rows_of_squares_are_asked_for_together_whatever_their_stride(shape):
    A = rg.tensor("A", shape)
    programs = first_of(rg.compute(shape[::-1], lambda i, j: A[j, i]))
    (stage,) = programs[0].stages
    (copy,) = stage.copies
    assert copy.turns(stage.buffer_shape(copy, block=True))
    by_elements = replace(stage, copies=(replace(copy, along=copy.order[-1]),))
    walks = [limiters(predict_stage(one, CORE)).get("column walks", 0) for one in (stage, by_elements)]
    assert walks[0] == 0 < walks[1]


def test_a_maximum_tests_for_nan_beside_several_chains_and_within_one():
    A = rg.tensor("A", (40, 92))
    found = {}
    for program in space(canonicalize(rg.ops.amax(A, 1)), CORE, BuildOptions()).sample(100):
        stage = program.stages[-1]
        lane = stage.loops[-1]
        if lane.kind != "lane" or stage.op.axis(lane.axis).role != "reduce":
            continue
        nest = nest_of(stage, facts_of(stage.op), CORE)
        several = bool(stage.accumulator.separate)
        found[several] = tuple(map(int, nan_tests(nest)))
        assert ("met_nan" in emit(program, CORE).text) == several
    assert found == {False: (2, 3), True: (0, 1)}


def test_a_spec_says_how_many_slots_such_a_test_takes():
    A = rg.tensor("A", (40, 96))
    free = replace(CORE, costs=tuple((name, value) for name, value in CORE.costs if name != "nan_slots"))
    stage = first_of(rg.ops.amax(A, 1), count=1)[0].stages[-1]
    slots = lambda device: moved_of(nest_of(stage, facts_of(stage.op), device), device, costs_of(device)).slots
    nest = nest_of(stage, facts_of(stage.op), CORE)
    lane = stage.loops[-1]
    rows = nest.passed(tuple(p for p in nest.in_thread() if stage.loops[p].axis != lane.axis))
    tests = rows * (96 / lane.extent * nan_tests(nest).all + 3 * log2(lane.extent))  # of vectors, then of their halves
    assert slots(CORE) - slots(free) == pytest.approx(tests * costs_of(CORE).nan_slots)


@pytest.mark.parametrize(
    ("per_clock", "pipes", "lanes", "clocks"),
    [(1, 2, 16, 1), (1, 2, 8, 1 / 2), (1, 2, 4, 1 / 2), (2, 2, 16, 1 / 2), (2, 2, 8, 1 / 2), (1, 0, 8, 1)],
)
def test_vectors_no_wider_than_a_pipe_take_its_clock(per_clock, pipes, lanes, clocks):
    """Of 16 lanes: one a clock by two pipes of 8 lanes, two by two of 16."""
    half = tuple([replace(one, per_clock=per_clock) for one in AVX512.instructions])
    device = replace(AVX512, instructions=half, costs=(*AVX512.costs, ("vector_pipes", pipes)))
    stage = replace(softmax(64, 1024).stages[0], compute=Compute("vfma", lanes))
    loops = tuple([replace(loop, extent=lanes) if loop.kind == "lane" else loop for loop in stage.loops])
    nest = nest_of(replace(stage, loops=loops), facts_of(stage.op), device)
    assert slot_clocks(nest, device, costs_of(device)) == clocks


def test_a_sum_tests_for_no_nan():
    A = rg.tensor("A", (40, 96))
    for program in first_of(rg.ops.sum(A, 1), count=3):
        stage = program.stages[-1]
        assert tuple(map(int, nan_tests(nest_of(stage, facts_of(stage.op), CORE)))) == (0, 0)


@pytest.mark.parametrize("lanes", [8, 16])
def test_lanes_are_put_together_by_halves(lanes):
    A = rg.tensor("A", (40, 16 * lanes))
    device = replace(CPU, execution_width=lanes)
    for program in first_of(rg.ops.sum(A, 1), device, 3):
        stage = program.stages[-1]
        lane = stage.loops[-1]
        if lane.kind != "lane" or stage.accumulator.separate or stage.op.axis(lane.axis).role != "reduce":
            continue
        nest = nest_of(stage, facts_of(stage.op), device)
        rows = nest.passed(tuple(p for p in nest.in_thread() if stage.loops[p].axis != stage.op.reductions[0].axes[0]))
        vectors = 16 * rows
        assert moved_of(nest, device, costs_of(device)).slots == vectors + rows * 2 * (lane.extent.bit_length() - 1)


@pytest.mark.parametrize("rows", [4, 7, 14])
def test_what_is_read_behind_tests_waits_in_registers_and_finds_its_place_by_itself(rows):
    weight = rg.tensor("w", (64, 12, 3, 3), constant=True)
    (op,) = canonicalize(rg.ops.conv2d(rg.tensor("x", (2, 12, 28, 28)), weight, stride=2, padding=1)).tensor_ops
    sums = turned(op, "ox", 16).sums
    (tested,) = [one for one in variants(sums, CORE) if one.name == "implicit GEMM"]
    (plain,) = [one for one in variants(sums, CORE) if one.name == "padded"]
    plan = ContractionPlan(rm=rows, rn=2, lanes=16, kc=sums.axis("c").extent)

    def stage_of(variant, **costs):
        packed = Packing(variant, 32, tuple(needs_packing(variant.op, variant.roles, 16))).op
        device = replace(CORE, costs=tuple(sorted((dict(CORE.costs) | costs).items())))
        whole = replace(plan, kc=packed.axis(variant.roles.k).extent)
        return predict_stage(contraction_stage(packed, variant.roles, whole, device), device)

    assert stage_of(tested).registers - stage_of(plain).registers == rows
    issue = lambda each: limiters(stage_of(tested, guard_instructions=0, decode_instructions=each))["issue"]
    steps = 2 * 14 * 14 / rows * 64 / 32 * 12 * 9
    divisions = 3  # k // 9, k % 9 // 3 and k % 3, which all rows share
    assert issue(6) - issue(0) == pytest.approx(steps * 6 * (divisions + rows) / costs_of(CORE).issue_per_clock)
