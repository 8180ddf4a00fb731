"""What construction promises: aligned, ranked, diverse, deterministic candidates for every definition."""

import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.candidate import best, rounded
from rollergen.construct.choose import choice, op_candidates
from rollergen.construct.copies import copy_stage
from rollergen.construct.grow import Reuse, grow_layer, grow_registers, reuse_score, scale_out, staging_layers
from rollergen.construct.notes import construction_notes
from rollergen.construct.options import BuildOptions
from rollergen.dropped import every_drop_raises
from rollergen.errors import DoesNotFitError, DropWarning, ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.plan import Roles
from rollergen.program.check import check
from rollergen.program.model import predict_stage
from rollergen.tile.rules import AlignmentRules, vector_lanes
from tests.program.hand_devices import AVX512, TURING
from tests.programs import matmul_op

DEVICES = [AVX512, TURING]


def matmul(m, n, k):
    return canonicalize(rg.ops.matmul(rg.tensor("A", (m, k)), rg.tensor("B", (k, n))))


OPERATORS = {
    "matmul": matmul(100, 72, 90),
    "batch": canonicalize(rg.ops.batch_matmul(rg.tensor("A", (3, 17, 20)), rg.tensor("B", (3, 20, 31)))),
    "convolution": canonicalize(rg.ops.conv2d(rg.tensor("X", (2, 6, 15, 13)), rg.tensor("W", (8, 6, 3, 3)), padding=1)),
    "strided": canonicalize(
        rg.ops.conv2d(rg.tensor("X", (1, 3, 20, 21)), rg.tensor("W", (8, 3, 7, 7)), stride=2, padding=3)
    ),
    "sum of rows": canonicalize(rg.ops.sum(rg.tensor("X", (50, 70)), axis=1)),
    "sum of columns": canonicalize(rg.ops.sum(rg.tensor("X", (50, 70)), axis=0)),
    "scalar": canonicalize(rg.ops.sum(rg.tensor("X", (50, 70)), axis=(0, 1))),
    "softmax": canonicalize(rg.ops.softmax(rg.tensor("X", (50, 70)), axis=-1)),
    "transpose": canonicalize(rg.ops.permute(rg.tensor("X", (50, 70)), (1, 0))),
    "relu": canonicalize(rg.ops.relu(rg.tensor("X", (3, 5, 7)))),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_valid_programs_in_rising_order_of_predicted_time(name, device):
    ranked = construct(OPERATORS[name], device)
    assert 1 <= len(ranked) <= 10
    assert [one.seconds for one in ranked] == sorted(one.seconds for one in ranked)
    for one in ranked:
        check(one.program, device)


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_at_most_two_candidates_share_variant_tile_split_and_depth(device):
    for graph in OPERATORS.values():
        for op in graph.tensor_ops:
            keys = [one.key for one in op_candidates(op, device, AlignmentRules(), 10)]
            assert max(keys.count(key) for key in keys) <= 2


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_construction_is_deterministic(device):
    graph = OPERATORS["convolution"]
    first = construct(graph, device)
    choice.cache_clear()
    assert construct(graph, device) == first


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_few_programs_are_the_first_of_many(name, device):
    many = construct(OPERATORS[name], device, top_k=10)
    assert [construct(OPERATORS[name], device, top_k=count) for count in (1, 2, 5)] == [many[:1], many[:2], many[:5]]


@given(m=st.integers(1, 300), n=st.integers(1, 300), k=st.integers(1, 3000))
@settings(max_examples=15, deadline=None)
def test_few_split_sums_are_the_first_of_many(m, n, k):
    many = construct(matmul(m, n, k), TURING, top_k=10)
    assert [construct(matmul(m, n, k), TURING, top_k=count) for count in (1, 2)] == [many[:1], many[:2]]


@pytest.mark.parametrize("shape", [(64, 28, 28), (33, 14, 15)])
def test_few_convolutions_by_winograd_are_the_first_of_many(shape):
    taps = rg.tensor("W", (48, shape[0], 3, 3), constant=True)
    graph = canonicalize(rg.ops.conv2d(rg.tensor("X", (1, *shape)), taps, padding=1))
    many = construct(graph, TURING, top_k=10)
    assert any("winograd" in one.variants[0] for one in many)
    assert [construct(graph, TURING, top_k=count) for count in (1, 2)] == [many[:1], many[:2]]


def test_where_too_few_of_few_programs_are_sound_more_are_drafted(monkeypatch):
    many = construct(OPERATORS["matmul"], TURING, top_k=10)
    unsound = [one.program for one in many[:3]]

    def checked(programs, device):
        if any(program in unsound for program in programs):
            raise ProgramError("is not sound")

    monkeypatch.setattr(sys.modules["rollergen.construct.choose"], "check_each", checked)
    with every_drop_raises(False), pytest.warns(DropWarning, match="is not sound"):
        assert construct(OPERATORS["matmul"], TURING, top_k=2) == many[3:5]


@given(m=st.integers(1, 300), n=st.integers(1, 300), k=st.integers(1, 300))
@settings(max_examples=15, deadline=None)
def test_threads_come_in_whole_warps_unless_the_rule_is_off(m, n, k):
    for one in construct(matmul(m, n, k), TURING, top_k=4):
        assert all(stage.threads % TURING.execution_width == 0 for stage in one.program.stages)


def test_switching_the_execution_rule_off_admits_other_blocks():
    graph = matmul(24, 24, 64)
    options = BuildOptions(alignment=AlignmentRules(execution_unit=False))
    threads = {stage.threads for one in construct(graph, TURING, options, 10) for stage in one.program.stages}
    assert any(count % TURING.execution_width for count in threads)


def test_a_unit_limit_changes_what_is_constructed():
    graph = matmul(512, 512, 512)
    few = construct(graph, TURING, BuildOptions(max_units=1), 1)[0]
    many = construct(graph, TURING, BuildOptions(), 1)[0]
    assert few.seconds > 5 * many.seconds


def test_a_device_without_a_backing_store_says_how_many_bytes_are_missing():
    small = replace(TURING, layers=(*TURING.layers[:-1], replace(TURING.layers[-1], capacity_bytes=10_000)))
    needed = 4 * (100 * 90 + 90 * 72 + 100 * 72)
    with pytest.raises(DoesNotFitError, match=str(needed - 10_000)):
        construct(OPERATORS["matmul"], small)


def test_the_best_candidates_leave_out_what_does_not_fit():
    op = OPERATORS["matmul"].tensor_ops[0]
    candidates = op_candidates(op, TURING, AlignmentRules(), 4)
    broken = [replace(one, seconds=float("inf")) for one in candidates]
    assert best([*broken, candidates[-1]], 10) == [candidates[-1]]


def test_at_most_half_of_the_candidates_have_one_variant_while_there_are_others_worth_a_try():
    op = OPERATORS["matmul"].tensor_ops[0]
    one = op_candidates(op, TURING, AlignmentRules(), 1)[0]
    *outer, last = one.stages[0].loops
    tiles = lambda n: replace(one.stages[0], loops=(*outer, replace(last, extent=1000 + n)))
    made = [
        replace(one, variant=variant, seconds=seconds, own=(tiles(n),))
        for n, (variant, seconds) in enumerate([("a", 1.0), ("a", 2.0), ("a", 3.0), ("b", 3.5), ("a", 4.0), ("b", 9.0)])
    ]
    assert [x.seconds for x in best(made, 4)] == [1.0, 2.0, 3.0, 3.5]
    assert [x.seconds for x in best(made, 5)] == [1.0, 2.0, 3.0, 3.5, 4.0]
    assert [x.seconds for x in best([x for x in made if x.variant == "a"], 4)] == [1.0, 2.0, 3.0, 4.0]


ROLES = Roles("j", "i", (), "k", ())


def test_reuse_grows_with_what_the_other_axis_reuses():
    tile = {"i": 1024, "j": 1024, "k": 8}
    score = reuse_score(matmul_op(2**20, 2**20, 2**10), tile, "i", 2048)
    # From 1024 to 2048 the traffic of B halves; 1024 more rows of A, 8 elements each, are held.
    assert score == pytest.approx(4 * 2**50 * (1 / 1024 - 1 / 2048) / (1024 * 8 * 4))
    assert reuse_score(matmul_op(256, 256, 256), {"i": 32, "j": 32, "k": 8}, "k", 16) == 0


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_every_step_of_growth_follows_the_best_reuse_score_until_the_registers_are_full(device):
    op = matmul_op(1024, 1024, 1024)
    tiles = grow_registers(op, ROLES, device)
    sizes = [tile["i"] * tile["j"] for tile in tiles]
    assert sizes == sorted(sizes) and len(set(sizes)) == len(sizes)
    for before, after in pairwise(tiles):
        (grown,) = [axis for axis in "ij" if before[axis] != after[axis]]
        (other,) = {"i", "j"} - {grown}
        score = lambda axis, extent, tile=before: reuse_score(op, tile, axis, extent)
        assert score(grown, after[grown]) >= score(other, before[other] * after[grown] // before[grown])
    lanes = vector_lanes(device, "float32")
    assert sizes[-1] // lanes >= device.limits.registers_per_thread // 8


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_a_block_tile_grows_within_half_of_its_layer(device):
    op = matmul_op(1024, 1024, 1024)
    small = grow_registers(op, ROLES, device)[-1]
    for layer in staging_layers(device):
        tiles = grow_layer(op, ROLES, device, AlignmentRules(), small, layer)
        assert len(tiles) > 1
        assert Reuse.of(op, tiles[-1]).footprint_bytes <= layer.capacity_bytes // 2


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_scale_out_shrinks_tiles_until_every_unit_has_a_block(device):
    op = matmul_op(256, 256, 256)
    whole, small = {"i": 256, "j": 256, "k": 32}, {"i": 1, "j": 16, "k": 1}
    out = scale_out(op, ROLES, device, small, whole)
    assert -(-256 // out["i"]) * -(-256 // out["j"]) >= device.units


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["matmul", "convolution"])
def test_the_grown_program_is_valid_and_its_distance_from_the_optimum_is_told(name, device):
    graph = OPERATORS[name]
    for one in construct(graph, device, BuildOptions(search="grow"), 4):
        check(one.program, device)
    assert construction_notes(graph, device)[1].startswith(f"{graph.tensor_ops[0].output.name}: growth by data reuse alone would end at ")


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("count", [2, 4, 16])
def test_notes_ask_for_nothing_that_construction_has_asked_for(device, count):
    graph = OPERATORS["matmul"]
    choice.cache_clear()
    construct(graph, device, BuildOptions(), count)
    made = choice.cache_info().misses
    construction_notes(graph, device, BuildOptions(), count)
    assert choice.cache_info().misses <= made + len(graph.tensor_ops)  # the grown ones


@given(i=st.integers(0, 10), j=st.integers(0, 10))
def test_reuse_grows_most_along_the_shorter_side(i, j):
    op = matmul_op(4096, 4096, 4096)
    tile = {"i": 2**i, "j": 2**j, "k": 1}
    along_i, along_j = (reuse_score(op, tile, axis, 2 * tile[axis]) for axis in ("i", "j"))
    if i != j:
        assert (along_i > along_j) == (i < j)


def test_programs_that_spill_rank_by_what_that_costs():
    X, W = rg.tensor("X", (128, 168, 42, 42)), rg.tensor("W", (168, 168, 1, 1))
    programs = rg.construct(rg.ops.conv2d(X, W), "mali-g71", 10)  # 64 registers for a thread
    priced = [predict_stage(one.stages[-1], rg.load_device("mali-g71")) for one in programs]
    spilled = [bool(one.spilled) for one in priced]
    assert any(spilled) and not all(spilled) and sorted(spilled) != spilled
    ranked = [rounded(one.seconds) for one in priced]
    assert ranked == sorted(ranked)


def test_copies_of_constants_are_made_for_programs_alone():
    made = lambda: copy_stage.cache_info().misses
    op = canonicalize(rg.ops.matmul(rg.tensor("A", (192, 256)), rg.tensor("B", (256, 320), constant=True))).tensor_ops[0]
    copy_stage.cache_clear()
    found = op_candidates(op, AVX512, AlignmentRules(), 10)
    waiting = [one for one in found if one.before]
    assert waiting and made() == 0
    assert waiting[0].stages[0].once and made() == 1


@given(tile=st.fixed_dictionaries({axis: st.integers(1, 300) for axis in "ijk"}), axis=st.sampled_from("ijk"),
       extent=st.integers(1, 300))  # fmt: skip
def test_another_extent_of_one_axis_counts_as_a_new_tile_does(tile, axis, extent):
    op = matmul_op(100, 37, 250)
    assert Reuse.of(op, tile).with_extent(op, axis, extent) == Reuse.of(op, {**tile, axis: extent})
